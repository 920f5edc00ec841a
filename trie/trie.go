// Package trie knows which targets have served how much of a text.
//
// It is one radix tree for all targets. A node holds a run of bytes and the set
// of targets that hold it; a target that holds a run holds all above it, so one
// descent gives the exact depth of every target. Bounds are exact: the least
// recently inserted prompt is evicted first, and text that other prompts share
// stays.
//
// The tree has one shape for one content, whatever its history: a node ends only
// at the end of a recorded prompt, at a branch of texts, or at a multiple of 64
// KiB. Nodes, prompts and texts live in slabs without pointers, which the garbage
// collector does not scan.
//
// A text passes at most about 1,024 nodes: beyond that, prompts that end or branch off
// along it are dropped, so that a Match never takes long. The holders of the longest
// of them keep it.
package trie

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router/internal/idmemo"
	"github.com/warmroute/router/internal/prefix"
	"github.com/warmroute/router/internal/scopekey"
	"github.com/warmroute/router/internal/sharers"
)

// Stats is the size of a Trie. The prompts of a forgotten target count until
// they are swept.
type Stats struct {
	Nodes   int // runs of text
	Bytes   int // of text; shared text counts once
	Prompts int // recorded (text, target) pairs
	Evicted int // prompts that went because of a bound, since New
}

// window is the span of depths that no run crosses: it bounds what a merge or a
// compaction copies at once.
const window = 64 << 10

// maxSlots bounds the targets that are known at once, swept ones aside, so that
// a holder fits 16 bits. Inserts for more are ignored.
const maxSlots = math.MaxUint16

// Trie is the tree. Its methods are safe for concurrent use; Match and Warmed
// run side by side and change nothing.
type Trie struct {
	cfg     Config
	maxMany int // nodes, and prompts, of all targets

	mu      sync.RWMutex
	nodes   slab[node]
	prompts slab[prompt]
	sets    sets
	text    texts
	roots   map[string]uint32 // by scope
	scopes  map[uint32]string // by root
	kids    map[uint64]uint32 // by parent and first byte, of parents with several
	ends    map[uint64]uint32 // prompts by last node and slot

	ids    map[string]uint16 // slots of the targets that are known
	slots  []slot
	vacant []uint16 // slots to use again
	dead   []uint16 // slots of forgotten targets that hold prompts yet
	over   []uint16 // slots that a split may have brought above MaxNodes
	all    list     // every prompt, the least recently inserted first
	bytes  int
	evict  int
	seq    uint64 // of the last insert of a prompt

	gen     uint64 // of ids
	scratch []uint16
	slotsOf []uint16      // scratch of shorten; its drops use the other
	long    atomic.Uint32 // the end of a path of more than maxPath nodes; 0: none was found
	known   idmemo.Memo[resolution]
}

// slot has the data of one target.
type slot struct {
	id      string
	nodes   int // that it holds
	bytes   int // of their text
	limit   int // of bytes; 0: none
	prompts int
	lost    int  // prompts that Expire and limit dropped, halved with those of the other slots now and then
	list    list // its prompts, the least recently inserted first
}

// New returns an empty Trie. A negative bound is an error, a *ConfigError for each,
// joined.
func New(cfg Config) (*Trie, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Trie{
		cfg:     cfg,
		maxMany: max(cfg.MaxBytes/128, 1<<16),
		roots:   make(map[string]uint32),
		scopes:  make(map[uint32]string),
		kids:    make(map[uint64]uint32),
		ends:    make(map[uint64]uint32),
		ids:     make(map[string]uint16),
		text:    newTexts(),
	}, nil
}

// Match returns how many leading bytes of text each of ids has been recorded to
// hold in scope, 0 for an unknown id; the result reuses cached if it is large
// enough. It allocates nothing if ids holds the same string values as in an
// earlier call (up to eight such slices are remembered).
func (t *Trie) Match(scope, text string, ids []string, cached []int) []int {
	cached, _ = t.MatchShared(scope, text, ids, cached, sharers.Count{Prompts: math.MaxUint32})
	return cached
}

// match walks down from root along text. Each time the set of holders shrinks,
// those of the larger set are given the depth reached so far; those that go on
// get a greater one later. It returns how many leading bytes of text at least
// sharers prompts begin with. If cached is empty, it goes no further than these.
func (t *Trie) match(root uint32, text string, index []int32, cached []int, sharers uint32) (shared int) {
	var last *node
	n, depth, nodes := root, 0, 0
	for depth < len(text) {
		c := t.child(n, text[depth])
		if c == 0 {
			break
		}
		nodes++
		nd := t.nodes.at(c)
		if nd.below < sharers && len(cached) == 0 {
			break
		}
		if last != nil && nd.holders != last.holders { // a subset of equal size is the same set
			t.emit(last, index, cached, depth)
		}
		k := prefix.Common(t.run(nd), text[depth:])
		depth += k
		if nd.below >= sharers {
			shared = depth
		}
		n, last = c, nd
		if k < int(nd.size) {
			break
		}
	}
	if last != nil {
		t.emit(last, index, cached, depth)
	}
	if nodes > maxPath {
		t.long.Store(n)
	}
	return shared
}

// Insert records that id was sent text in scope. An identical insert makes it
// the most recent one. An empty text is not recorded.
func (t *Trie) Insert(scope, text, id string) {
	if text == "" || len(text) > t.cfg.MaxBytes {
		return
	}
	scope = scopekey.Of(scope)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.slotOf(id); ok {
		t.insert(scope, text, s, nil)
	}
}

// insert is Insert of a text of a size that is allowed, under mu. It sets past if that is not nil.
func (t *Trie) insert(scope, text string, s uint16, past *Past) {
	n, had, hadAt := t.put(t.rootOf(scope), text, s)
	if past != nil {
		*past = Past{Held: had, Last: t.lastInsert(hadAt, s), Now: t.seq + 1}
	}
	if p := t.ends[endKey(n, s)]; p != 0 {
		pr := t.prompts.at(p)
		if pr.count < math.MaxUint32 {
			pr.count++
		}
		t.unlist(p)
		t.enlist(p)
	} else {
		t.record(n, s, len(text))
	}
	t.keepBounds(s)
	t.maintain(len(text))
}

// Remove takes back one Insert of the same scope, text and id: when as many were
// taken back as were made, the prompt is forgotten, with the part of its text
// that no other prompt of id shares. It does nothing if there is none to take
// back.
func (t *Trie) Remove(scope, text, id string) {
	scope = scopekey.Of(scope)
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ids[id]
	if !ok {
		return
	}
	n := t.find(t.roots[scope], text)
	p := t.ends[endKey(n, s)]
	if n == 0 || p == 0 {
		return
	}
	if pr := t.prompts.at(p); pr.count > 1 {
		pr.count--
		return
	}
	t.drop(p)
	t.maintain(len(text))
}

// Extend records that id holds more after a text that it was sent: it replaces
// one Insert of text. If both together are longer than MaxBytes, text stays
// unchanged.
func (t *Trie) Extend(scope, text, more, id string) {
	if len(text)+len(more) > t.cfg.MaxBytes {
		return
	}
	// The longer text first: the shared part never leaves.
	t.Insert(scope, text+more, id)
	t.Remove(scope, text, id)
}

// Forget forgets all that id holds, in one step however much it is; the storage
// is swept then and by later calls.
func (t *Trie) Forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ids[id]
	if !ok {
		return
	}
	delete(t.ids, id)
	t.gen++
	t.dead = append(t.dead, s)
	t.sweep(256)
	t.maintain(0)
}

// Warmed returns how many prompts are recorded for each of ids. Prompts that Expire and Limit dropped lately count too,
// so that the numbers of targets compare although the record of one of them was cut. The result reuses
// n if it is large enough. Allocations are as for Match.
func (t *Trie) Warmed(ids []string, n []int) []int {
	n = sized(n, len(ids))
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.resolve(ids)
	for i, s := range r.slots {
		n[i] = 0
		if s >= 0 {
			n[i] = t.slots[s].prompts + t.slots[s].lost
		}
	}
	return n
}

// Stats returns the size of t.
func (t *Trie) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Stats{Nodes: t.nodes.used - len(t.roots), Bytes: t.bytes, Prompts: t.prompts.used, Evicted: t.evict}
}

func sized(s []int, n int) []int {
	if cap(s) < n {
		return make([]int, n)
	}
	return s[:n]
}
