package router

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"sync"
)

// MaxHeldID is the greatest length of an id of state that is kept as it is, in bytes. A longer one is replaced by
// a digest of it.
const MaxHeldID = 512

// maxIDTargets bounds the targets that are remembered for one id. More than one can have the state of an id that
// its clients chose, such as a medium's.
const maxIDTargets = 4

// maxHeldIDs bounds the ids that one request may have followed or bound.
const maxHeldIDs = 64

// HoldersConfig configures a Holders. The zero value is the documented default.
type HoldersConfig struct {
	// MaxIDs bounds the ids that are remembered; 0 means 100,000. MaxBytes bounds the memory that
	// they take, in bytes, with about 200 for each id in addition to its own length; 0 means 64
	// MiB. Over either the ids that were not used for the longest time are dropped.
	MaxIDs, MaxBytes int
	// Bound is called, if it is not nil, after each call that changed the target of an id, for
	// example to pass the binding on to the Holders of another gateway. A Bind that changes nothing
	// does not call it, so two Holders may pass their bindings to each other. It must be safe for
	// concurrent use and should not block.
	Bound func(id, target string)
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c HoldersConfig) WithDefaults() HoldersConfig {
	if c.MaxIDs == 0 {
		c.MaxIDs = 100_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	return c
}

// Holders remembers which target has the state with an id: the response, the conversation, the file
// or the medium that one engine keeps in its process. A Router asks it for the ids in Prompt.Must.
// Ids are those of the engines, which know of no tenants: equal ids are the same state for every
// client. One Holders may serve several Routers if equal IDs of their targets mean the same target.
// Its methods are safe for concurrent use. The zero Holders has the default bounds and is ready to
// use; it is not copied.
type Holders struct {
	cfg HoldersConfig

	mu      sync.Mutex
	ids     map[string]*list.Element // of *heldID
	recent  list.List                // the id that was used last is in front
	targets map[string]*heldBy
	bytes   int
}

// heldID is an id and the targets that have it, the first one first.
type heldID struct {
	id string
	by []*heldBy
}

// heldBy is a target until it is forgotten.
type heldBy struct {
	id   string
	ids  int // entries that name it
	gone bool
}

// NewHolders returns an empty Holders. The error names each bound that is negative.
func NewHolders(cfg HoldersConfig) (*Holders, error) {
	for _, f := range []struct {
		name string
		n    int
	}{{"MaxIDs", cfg.MaxIDs}, {"MaxBytes", cfg.MaxBytes}} {
		if f.n < 0 {
			return nil, &ConfigError{Field: f.name, Value: f.n, Allowed: "0 and more"}
		}
	}
	return &Holders{cfg: cfg}, nil
}

// Bind remembers that the target has the state with this id. Earlier bindings of the id stay: the first target that
// was not forgotten is the one that Holder returns. An empty id is ignored.
func (h *Holders) Bind(id, target string) {
	if id == "" {
		return
	}
	id = heldKey(id)
	if h.bind(id, target) && h.cfg.Bound != nil {
		h.cfg.Bound(id, target)
	}
}

// bind is Bind and reports whether the binding is new.
func (h *Holders) bind(id, target string) bool {
	cfg := h.cfg.WithDefaults()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids, h.targets = make(map[string]*list.Element), make(map[string]*heldBy)
	}
	e := h.ids[id]
	if e == nil {
		id = string([]byte(id)) // not a part of a longer text
		e = h.recent.PushFront(&heldID{id: id})
		h.ids[id] = e
		h.bytes += costOf(id)
	} else {
		h.recent.MoveToFront(e)
	}
	x := e.Value.(*heldID)
	h.prune(x)
	if len(x.by) >= maxIDTargets || slices.ContainsFunc(x.by, func(b *heldBy) bool { return b.id == target }) {
		return false
	}
	b := h.targets[target]
	if b == nil {
		b = &heldBy{id: target}
		h.targets[target] = b
	}
	b.ids++
	x.by = append(x.by, b)
	for len(h.ids) > cfg.MaxIDs || h.bytes > cfg.MaxBytes {
		h.drop(h.recent.Back())
	}
	return true
}

// costOf returns the memory that an id is counted with.
func costOf(id string) int { return len(id) + 200 }

// prune drops the targets of x that were forgotten.
func (h *Holders) prune(x *heldID) {
	x.by = slices.DeleteFunc(x.by, func(b *heldBy) bool { return b.gone })
}

// drop forgets an id.
func (h *Holders) drop(e *list.Element) {
	x := h.recent.Remove(e).(*heldID)
	delete(h.ids, x.id)
	h.bytes -= costOf(x.id)
	for _, b := range x.by {
		if b.ids--; b.ids == 0 && !b.gone {
			delete(h.targets, b.id)
		}
	}
}

// Holder returns the first target that has the state with this id and was not forgotten since; false if none is
// known.
func (h *Holders) Holder(id string) (target string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	by := h.holders(id)
	if len(by) == 0 {
		return "", false
	}
	return by[0].id, true
}

// holders returns the targets that have id.
func (h *Holders) holders(id string) []*heldBy {
	e := h.ids[heldKey(id)]
	if e == nil {
		return nil
	}
	x := e.Value.(*heldID)
	if h.prune(x); len(x.by) == 0 {
		h.drop(e)
		return nil
	}
	h.recent.MoveToFront(e)
	return x.by
}

// all returns the targets that have each of the ids of which any are known.
func (h *Holders) all(ids []string) (all [][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids[:min(len(ids), maxHeldIDs)] {
		by := h.holders(id)
		if len(by) == 0 {
			continue
		}
		targets := make([]string, len(by))
		for i, b := range by {
			targets[i] = b.id
		}
		all = append(all, targets)
	}
	return all
}

// Forget drops all bindings to the target with this ID: it is gone, or its process was
// restarted.
func (h *Holders) Forget(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.targets[target]; b != nil {
		b.gone = true // the entries that name it are dropped when they are used or the oldest
		delete(h.targets, target)
	}
}

// Len returns the number of ids that are remembered. Ids of targets that were forgotten count until their places
// are needed or they are asked for.
func (h *Holders) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids)
}

// All returns every binding, the id and its target, as they are when the iteration begins, those that were used
// last first: for example to hand them to a gateway that has just started.
func (h *Holders) All() iter.Seq2[string, string] {
	return func(yield func(id, target string) bool) {
		for _, b := range h.bindings() {
			if !yield(b[0], b[1]) {
				return
			}
		}
	}
}

func (h *Holders) bindings() (all [][2]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.recent.Front(); e != nil; e = e.Next() {
		x := e.Value.(*heldID)
		for _, b := range x.by {
			if !b.gone {
				all = append(all, [2]string{x.id, b.id})
			}
		}
	}
	return all
}

// heldKey returns the key of an id: itself, or a digest of a long one.
func heldKey(id string) string {
	if len(id) <= MaxHeldID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}
