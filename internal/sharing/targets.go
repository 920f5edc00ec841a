package sharing

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/idmemo"
)

// targets numbers the targets that this process or another gateway has named. Fewer than maxTarget are known at
// once: the one that was named longest ago makes place for another.
type targets struct {
	key *Key

	mu    sync.RWMutex
	byID  map[string]uint16
	byTag map[uint64]uint16
	list  []*target
	free  []uint16 // numbers to use again
	gen   uint64   // of byID
	known idmemo.Memo[resolution]
}

type target struct {
	tag  uint64
	id   string        // "" as long as this process has not named it
	last atomic.Uint32 // stamp: when it was last named, by anybody
	pins int           // members of the fleet that have its Sum
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
	if ok {
		t.list[n].named(now)
	}
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
	if ok {
		t.list[n].named(now)
	}
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
		t.list[n].named(now)
		return n
	}
	n := uint16(len(t.list))
	switch k := len(t.free); {
	case k > 0:
		n = t.free[k-1]
		t.free = t.free[:k-1]
	case n >= maxTarget:
		return noNumber
	default:
		t.list = append(t.list, nil)
	}
	t.list[n] = &target{tag: tag}
	t.list[n].named(now)
	t.byTag[tag] = n
	return n
}

// named notes that the target was named; 0: at no time that counts.
func (x *target) named(now stamp) {
	if now != 0 && x.last.Load() < uint32(now) {
		x.last.Store(uint32(now))
	}
}

// pin keeps the number of a target for it, by 1, or no longer, by -1.
func (t *targets) pin(n uint16, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list[n].pins += by
}

// The numbers of targets that nobody has named for idleTarget are used again once most of them are in use.
const (
	idleTarget  = stamp(10 * time.Minute / stampUnit)
	manyTargets = maxTarget * 7 / 8
)

// release returns numbers that are to be used again, of which nothing is known to anybody any more.
func (t *targets) release(now stamp) (free []uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list)-len(t.free) < manyTargets {
		return nil
	}
	for n, x := range t.list {
		if x.tag == 0 || x.pins > 0 || stamp(x.last.Load())+idleTarget > now {
			continue
		}
		delete(t.byTag, x.tag)
		if x.id != "" {
			delete(t.byID, x.id)
			t.gen++
		}
		t.list[n] = &target{}
		free = append(free, uint16(n))
	}
	return free
}

// reuse puts released numbers back into use.
func (t *targets) reuse(free []uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, free...)
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
