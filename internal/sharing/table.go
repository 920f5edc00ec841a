package sharing

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	segments  = 64      // that grow apart, so that no call moves many slots
	leastSeg  = 16      // slots of a segment at first
	maxFill   = 7       // eighths of a segment that are used at most
	sampled   = 8       // slots of which the oldest is evicted
	own       = 1 << 15 // this gateway said it
	others    = 1 << 14 // another one said it
	targetSet = own | others
	manySlot  = 1<<16 - 1 // the holders are in a set
	maxTarget = 4096      // targets that are known at once
	maxSharer = 1<<16 - 1 // of a slot
	largeSet  = 32        // holders from which two sets of equal size are taken for the same
)

// stamp is a time, in sixteenths of a second since the table was made.
type stamp uint32

// table knows which targets were sent which marks, by whom (by this gateway, by others) and when the last time. It is
// an open hash table of 16 bytes a slot: a mark that one target holds takes one slot, one that several hold has
// them in a set. It is bounded: the marks that were sent longest ago go first, about.
type table struct {
	mu      sync.RWMutex
	segs    [segments]segment
	most    int // slots of a segment that may be used
	sets    []set
	free    []uint32 // sets to use again
	horizon []stamp  // by target: what was said before it does not count
	lost    []stamp  // by target: when it lost its cache, the part of horizon that stays
	ages    []age    // by target
	now     stamp
	backs   backs
	evicted uint64
	used    int
}

type segment struct {
	slots []slot
	used  int
	hand  int
}

// slot is one mark, empty if key is 0.
type slot struct {
	key     uint64 // the mark above, the holder with own and others below
	stamp   stamp  // of the holder; the index of the set
	sharers uint16 // prompts that were said to go on here
	_       uint16
}

// set has the holders of a mark with several.
type set struct {
	held    []holding
	newest  stamp
	foreign int // holdings with others
}

type holding struct {
	target uint16 // with own and others
	stamp  stamp
}

func newTable(maxMarks int) *table {
	return &table{most: max(maxMarks/segments, leastSeg/2)}
}

func (s *slot) mark() Mark     { return Mark(s.key >> 16) }
func (s *slot) holder() uint16 { return uint16(s.key) }

// segmentOf returns the segment of a mark, and its place in it.
func segmentOf(m Mark) (seg, place int) {
	h := uint64(m) * 0x9e3779b97f4a7c15
	return int(h >> 58), int(h >> 20 & (1<<38 - 1))
}

// find returns the slot of m, nil if there is none.
func (t *table) find(m Mark) *slot {
	i, at := segmentOf(m)
	g := &t.segs[i]
	if g.used == 0 {
		return nil
	}
	for mask := len(g.slots) - 1; ; at++ {
		switch s := &g.slots[at&mask]; {
		case s.key == 0:
			return nil
		case s.mark() == m:
			return s
		}
	}
}

// make returns the slot of m, a new one if there is none. It may move other slots.
func (t *table) make(m Mark) *slot {
	if s := t.find(m); s != nil {
		return s
	}
	i, at := segmentOf(m)
	g := &t.segs[i]
	if g.used >= t.most {
		t.evict(g)
	}
	if 8*(g.used+1) > maxFill*len(g.slots) {
		t.grow(g)
	}
	mask := len(g.slots) - 1
	for ; g.slots[at&mask].key != 0; at++ {
	}
	s := &g.slots[at&mask]
	*s = slot{key: uint64(m) << 16}
	g.used++
	t.used++
	return s
}

func (t *table) grow(g *segment) {
	old := g.slots
	g.slots = make([]slot, max(2*len(old), leastSeg))
	mask := len(g.slots) - 1
	for _, s := range old {
		if s.key == 0 {
			continue
		}
		_, at := segmentOf(s.mark())
		for ; g.slots[at&mask].key != 0; at++ {
		}
		g.slots[at&mask] = s
	}
}

// evict drops the oldest of the next few slots.
func (t *table) evict(g *segment) {
	oldest, when, seen := -1, stamp(0), 0
	for n := 0; n < len(g.slots) && seen < sampled; n++ {
		at := (g.hand + n) & (len(g.slots) - 1)
		s := &g.slots[at]
		if s.key == 0 {
			continue
		}
		seen++
		if last := t.last(s); oldest < 0 || last < when {
			oldest, when = at, last
		}
	}
	g.hand = (g.hand + sampled) & (len(g.slots) - 1)
	if oldest >= 0 {
		t.drop(g, oldest)
		t.evicted++
	}
}

// last returns when a slot was last said of a target for which that counts; 0: of none.
func (t *table) last(s *slot) stamp {
	if s.holder() == manySlot {
		return t.sets[s.stamp].newest
	}
	if s.stamp < t.horizonOf(s.holder()&^targetSet) {
		return 0
	}
	return s.stamp
}

// drop empties slot at, and closes the gap.
func (t *table) drop(g *segment, at int) {
	if s := &g.slots[at]; s.holder() == manySlot {
		t.sets[s.stamp] = set{held: t.sets[s.stamp].held[:0]}
		t.free = append(t.free, uint32(s.stamp))
	}
	mask := len(g.slots) - 1
	for next := at; ; {
		next = (next + 1) & mask
		s := &g.slots[next]
		if s.key == 0 {
			break
		}
		_, home := segmentOf(s.mark())
		if (next-home)&mask >= (next-at)&mask { // it may stand at the gap
			g.slots[at] = *s
			at = next
		}
	}
	g.slots[at] = slot{}
	g.used--
	t.used--
}

func (t *table) horizonOf(target uint16) stamp {
	if int(target) < len(t.horizon) {
		return t.horizon[target]
	}
	return 0
}

// hold notes that who (own or others) said at s that the target holds m. It reports whether that is new: nobody has
// said so since the target's horizon.
func (t *table) hold(m Mark, target uint16, s stamp, who uint16) (isNew bool) {
	sl := t.make(m)
	horizon := t.horizonOf(target)
	if s < horizon {
		s = horizon
	}
	h := sl.holder()
	switch {
	case h == manySlot:
		return t.holdIn(&t.sets[sl.stamp], target, s, who)
	case h&targetSet == 0: // it was just made
	case h&^targetSet == target:
		isNew = sl.stamp < horizon
		if !isNew {
			who |= h & targetSet
		}
		s = max(s, sl.stamp)
		sl.key = uint64(m)<<16 | uint64(target|who)
		sl.stamp = s
		return isNew
	case sl.stamp < t.horizonOf(h&^targetSet): // the other holds it no more
	default:
		i := t.newSet()
		x := &t.sets[i]
		x.held = append(x.held, holding{h, sl.stamp})
		x.newest = sl.stamp
		if h&others != 0 {
			x.foreign++
		}
		sl.key = uint64(m)<<16 | manySlot
		sl.stamp = stamp(i)
		return t.holdIn(x, target, s, who)
	}
	sl.key = uint64(m)<<16 | uint64(target|who)
	sl.stamp = s
	return true
}

func (t *table) newSet() uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.sets = append(t.sets, set{})
	return uint32(len(t.sets) - 1)
}

func (t *table) holdIn(x *set, target uint16, s stamp, who uint16) (isNew bool) {
	x.newest = max(x.newest, s)
	dead := -1
	for i := range x.held {
		h := &x.held[i]
		id := h.target &^ targetSet
		gone := h.stamp < t.horizonOf(id)
		if id != target {
			if gone {
				dead = i
			}
			continue
		}
		before := h.target & targetSet
		if !gone {
			who |= before
		}
		x.foreign += int(who&others)/others - int(before&others)/others
		h.target = target | who
		h.stamp = max(h.stamp, s)
		return gone
	}
	x.foreign += int(who&others) / others
	h := holding{target | who, s}
	if dead >= 0 {
		x.foreign -= int(x.held[dead].target&others) / others
		x.held[dead] = h
		return true
	}
	x.held = append(x.held, h)
	return true
}

// goesOn counts a prompt that goes on after m.
func (t *table) goesOn(m Mark) {
	if s := t.find(m); s != nil && s.sharers < maxSharer {
		s.sharers++
	}
}

// look returns when the target was last said to hold m, and by whom; false if nobody has.
func (t *table) look(m Mark, target uint16) (s stamp, who uint16, ok bool) {
	sl := t.find(m)
	if sl == nil {
		return 0, 0, false
	}
	horizon := t.horizonOf(target)
	if h := sl.holder(); h != manySlot {
		return sl.stamp, h & targetSet, h&^targetSet == target && h&targetSet != 0 && sl.stamp >= horizon
	}
	for _, h := range t.sets[sl.stamp].held {
		if h.target&^targetSet == target {
			return h.stamp, h.target & targetSet, h.stamp >= horizon
		}
	}
	return 0, 0, false
}

// unhold takes back what who said of one target, unless somebody said so after last.
func (t *table) unhold(m Mark, target, who uint16, last stamp) {
	sl := t.find(m)
	if sl == nil {
		return
	}
	if h := sl.holder(); h != manySlot {
		if h&^targetSet != target || sl.stamp > last {
			return
		}
		if h &^= who; h&targetSet != 0 {
			sl.key = uint64(m)<<16 | uint64(h)
			return
		}
		i, at := segmentOf(m)
		g := &t.segs[i]
		for mask := len(g.slots) - 1; ; at++ {
			if &g.slots[at&mask] == sl {
				t.drop(g, at&mask)
				return
			}
		}
	}
	x := &t.sets[sl.stamp]
	for i := range x.held {
		h := &x.held[i]
		if h.target&^targetSet != target {
			continue
		}
		if h.stamp > last {
			return
		}
		x.foreign -= int(h.target&who&others) / others
		if h.target &^= who; h.target&targetSet == 0 {
			x.held = slices.Delete(x.held, i, i+1)
		}
		return
	}
}

// match sets held[index[target]] to the number of leading marks that others said a target holds since a time, of those
// targets that index has and that are 0 in held. It returns how many of marks at least many prompts go on from.
func (t *table) match(marks []Mark, index []int32, held []int, many uint16, since stamp) (shared int) {
	left, size := len(held), -1
	for i := len(marks) - 1; i >= 0 && (left > 0 || shared == 0); i-- {
		s := t.find(marks[i])
		if s == nil {
			continue
		}
		if shared == 0 && s.sharers >= many {
			shared = i + 1
		}
		if left == 0 {
			continue
		}
		if h := s.holder(); h != manySlot {
			if s.stamp >= since {
				left -= t.emit(h, s.stamp, index, held, i+1)
			}
			continue
		}
		x := &t.sets[s.stamp]
		if x.foreign == size && size >= largeSet { // who holds more holds this, so these are the same
			continue
		}
		size = x.foreign
		for _, h := range x.held {
			if h.stamp >= since {
				left -= t.emit(h.target, h.stamp, index, held, i+1)
			}
		}
	}
	return shared
}

// emit sets the part that one target holds, and returns 1, if it is the first time.
func (t *table) emit(h uint16, s stamp, index []int32, held []int, n int) int {
	target := h &^ targetSet
	if h&others == 0 || int(target) >= len(index) || s < t.horizonOf(target) {
		return 0
	}
	if i := index[target]; i >= 0 && held[i] == 0 {
		held[i] = n
		return 1
	}
	return 0
}

// memory returns the bytes of the table.
func (t *table) memory() (n int) {
	for i := range t.segs {
		n += 16 * len(t.segs[i].slots)
	}
	for i := range t.sets {
		n += 32 + 8*cap(t.sets[i].held)
	}
	return n + 4*len(t.free) + bits.UintSize/8
}
