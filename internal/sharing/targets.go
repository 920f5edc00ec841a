package sharing

import (
	"slices"
	"strings"
	"sync"

	"github.com/warmroute/router/internal/idmemo"
)

// targets numbers the targets that this process or another gateway has named. Fewer than maxTarget are known at
// once: the one that was named longest ago makes place for another.
type targets struct {
	key *Key

	mu    sync.RWMutex
	byID  map[string]uint16
	byTag map[uint64]uint16
	list  []target
	gen   uint64 // of byID
	known idmemo.Memo[resolution]
}

type target struct {
	tag  uint64
	id   string // "" as long as this process has not named it
	last stamp  // when it was last named
}

// resolution is a list of IDs by number: index has the place of a target in the list, -1 if it is not there, and
// numbers the target at a place, noNumber if there is none.
type resolution struct {
	index   []int32
	numbers []uint16
	twice   bool // some target is in the list twice
}

const noNumber = maxTarget

func newTargets(k *Key) *targets {
	return &targets{key: k, byID: map[string]uint16{}, byTag: map[uint64]uint16{}}
}

// number returns the number of a target that this process names, noNumber beyond the bound. make says that it may be
// new.
func (t *targets) number(id string, now stamp) uint16 {
	t.mu.RLock()
	n, ok := t.byID[id]
	t.mu.RUnlock()
	if ok {
		return n
	}
	tag := t.key.tag(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	n = t.put(tag, now)
	if n != noNumber && t.list[n].id == "" {
		id = strings.Clone(id)
		t.list[n].id = id
		t.byID[id] = n
		t.gen++
	}
	return n
}

// ofTag returns the number of a target that another gateway names.
func (t *targets) ofTag(tag uint64, now stamp) uint16 {
	t.mu.RLock()
	n, ok := t.byTag[tag]
	t.mu.RUnlock()
	if ok {
		return n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(tag, now)
}

// put is under mu.
func (t *targets) put(tag uint64, now stamp) uint16 {
	if n, ok := t.byTag[tag]; ok {
		t.list[n].last = max(t.list[n].last, now)
		return n
	}
	if len(t.list) >= maxTarget {
		return noNumber
	}
	n := uint16(len(t.list))
	t.list = append(t.list, target{tag: tag, last: now})
	t.byTag[tag] = n
	return n
}

// tagOf and idOf return the names of a target.
func (t *targets) tagOf(n uint16) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list[n].tag
}

func (t *targets) idOf(n uint16) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list[n].id
}

// resolve returns the numbers of ids, which are named from then on.
func (t *targets) resolve(ids []string, now stamp) *resolution {
	t.mu.RLock()
	gen := t.gen
	r := t.known.Get(gen, ids)
	t.mu.RUnlock()
	if r != nil {
		return r
	}
	var made resolution
	for i, id := range ids {
		n := t.number(id, now)
		made.numbers = append(made.numbers, n)
		if n == noNumber {
			continue
		}
		for int(n) >= len(made.index) {
			made.index = append(made.index, -1)
		}
		if made.index[n] >= 0 {
			made.twice = true
			continue
		}
		made.index[n] = int32(i)
	}
	t.mu.RLock()
	gen = t.gen
	t.mu.RUnlock()
	return t.known.Put(gen, ids, made)
}

// spread gives targets that are in the list twice the number of the first.
func (r *resolution) spread(held []int) {
	if !r.twice {
		return
	}
	for i, n := range r.numbers {
		if n != noNumber {
			held[i] = held[r.index[n]]
		}
	}
}

// oldest returns the number of the target that was named longest ago, for its place to be used again.
func (t *targets) oldest() uint16 {
	at := slices.IndexFunc(t.list, func(x target) bool { return x.last == slices.MinFunc(t.list, byLast).last })
	return uint16(at)
}

func byLast(a, b target) int { return int(int64(a.last) - int64(b.last)) }
