package kvindex

import "sync/atomic"

// target is what is known of one target. All but spec is the writer's alone.
type target struct {
	id    string
	spare *spare
	slot  uint32
	spec  atomic.Pointer[windows]

	last      uint64
	begun     bool // last is one of this life
	missing   bool // messages up to until have not all been applied
	until     uint64
	suspended bool

	shape   shape   // of the blocks; 0 until one is known
	odd     int     // stores of smaller blocks since one of this shape
	primary int32   // the group whose blocks stand in the tree
	full    bool    // and that it is one of full attention is certain
	layers  []layer // what else is kept beside the tree
	host    int     // the layer of the host's memory, -1 for none
	blocks  int     // resident
	handles handles
	holds   []*hold // by number
	free    []uint32
	recent  holdList       // main holds, the least recently stored to first
	ghosts  holdList       // main holds without anything live or below
	copies  map[ref]uint32 // beyond the first, of blocks that have several
	orphans orphans
	counts  Counters
}

// A target's state as readers see it, in one word: its shape above these flags.
const (
	stateTrusted = 1 << 0
	stateSpecial = 1 << 1 // it has a spec
	stateShape   = 8      // the first bit of the shape
)

// announce shows readers the target's state.
func (x *Index) announce(t *target) {
	s := uint64(t.shape) << stateShape
	if t.trusted() {
		s |= stateTrusted
	}
	if t.spec.Load() != nil {
		s |= stateSpecial
	}
	if w := &(*x.states.Load())[t.slot]; w.Load() != s {
		w.Store(s)
	}
}

// admit returns the target of this id, and makes it if need be.
func (x *Index) admit(id string) (*target, error) {
	old := *x.ids.Load()
	if t := old[id]; t != nil {
		return t, nil
	}
	t := &target{id: id, spare: &x.spare, primary: noGroup, host: -1}
	if n := len(x.vacant); n > 0 {
		t.slot = x.vacant[n-1]
		x.vacant = x.vacant[:n-1]
		x.slots[t.slot] = t
	} else {
		if len(x.slots) == maxTargets {
			return nil, ErrTooManyTargets
		}
		t.slot = uint32(len(x.slots))
		x.slots = append(x.slots, t)
		if was := *x.states.Load(); len(was) < len(x.slots) {
			is := make([]atomic.Uint64, max(16, 2*len(was)))
			for i := range was {
				is[i].Store(was[i].Load())
			}
			x.states.Store(&is)
		}
	}
	ids := make(map[string]*target, len(old)+1)
	for k, v := range old {
		ids[k] = v
	}
	ids[id] = t
	x.ids.Store(&ids)
	x.gen.Add(1)
	return t, nil
}

// setShape gives t's blocks a shape, 0 for none. t holds nothing then.
func (x *Index) setShape(t *target, sh shape) {
	if t.shape == sh {
		return
	}
	if x.uses[t.shape]--; x.uses[t.shape] <= 0 {
		delete(x.uses, t.shape)
	}
	t.shape = sh
	t.odd = 0
	for i := range t.layers {
		t.layers[i].void = false
	}
	x.respec(t)
	if sh != 0 {
		x.uses[sh]++
	}
	var all []shape
	for s := range x.uses {
		if s != 0 {
			all = append(all, s)
		}
	}
	x.shapes.Store(&all)
}

// newHold makes t a holder of n, below its hold of the parent node.
func (x *Index) newHold(t *target, n *node, up *hold) *hold {
	h := &hold{target: t, node: n, up: up}
	t.enlist(h)
	if up != nil {
		up.kids++
	}
	n.enter(h, 0)
	t.recent.push(h)
	return h
}

// enlist gives a hold its number.
func (t *target) enlist(h *hold) {
	if k := len(t.free); k > 0 {
		h.number = t.free[k-1]
		t.free = t.free[:k-1]
		t.holds[h.number] = h
		return
	}
	h.number = uint32(len(t.holds))
	t.holds = append(t.holds, h)
}

// find returns the block with this hash: the hold that has it, which may be one
// of a chain, and its bit; nil where there is none.
func (t *target) find(hash, sum uint64) (*hold, uint32) {
	cells := t.handles.cells
	if len(cells) == 0 {
		return nil, 0
	}
	tag := tagOf(hash)
	for i := t.handles.home(tag); cells[i] != 0; i = t.handles.next(i) {
		if cells[i]>>32 != tag {
			continue
		}
		number, bit := ref(cells[i]).split()
		if h := t.holds[number]; h.is(bit, hash, sum) {
			return h, bit
		}
	}
	return nil, 0
}

// restart forgets all that is known of t but its counters.
func (x *Index) restart(t *target) {
	x.clear(t)
	t.layers, t.host = nil, -1
	t.primary, t.full = noGroup, false
	x.setShape(t, 0)
	x.respec(t)
	t.missing, t.suspended = false, false
}

// clear forgets all that t holds, not what is known of its groups.
func (x *Index) clear(t *target) {
	var empty []*node
	for _, h := range t.holds {
		if h == nil || h.list == nil { // an alias: its main hold goes for it
			continue
		}
		h.node.leave(h)
		if h.node.holders.Load() == nil {
			empty = append(empty, h.node)
		}
	}
	// Whatever is below a node without holders has none either.
	for _, n := range empty {
		x.unlink(n)
	}
	t.blocks = 0
	t.handles = handles{}
	t.holds, t.free = nil, nil
	t.recent, t.ghosts = holdList{}, holdList{}
	t.copies = nil
	t.orphans = orphans{}
	for i := range t.layers {
		t.layers[i].counts = nil
	}
}

// unlink takes a node that nobody holds out of the tree, with its root where
// that is empty then.
func (x *Index) unlink(n *node) {
	x.nodes--
	p := n.parent
	p.drop(n.key)
	if p.parent == &x.roots && p.leaf() {
		x.roots.drop(p.key)
	}
}

// settle puts a main hold into the list where it belongs after it lost a block or
// a kid.
func (x *Index) settle(h *hold) {
	if h.kids > 0 || h.list != &h.target.recent || h.live() {
		return
	}
	h.take()
	h.target.ghosts.push(h)
}

// trim keeps t within its bounds. It runs between events, when nothing points at
// a hold that may go.
func (x *Index) trim(t *target) {
	// An engine may name a block as resident after it seemed gone: some of the
	// holds in which nothing is of use any more are kept for that.
	for t.ghosts.n > 64+t.recent.n/8 {
		x.freeHold(t.ghosts.first)
	}
	for t.blocks > x.cfg.MaxBlocks || t.handles.n > 2*x.cfg.MaxBlocks+1024 {
		h := t.recent.first
		if h == nil || h.kids > 0 {
			// All that is below the oldest one are ghosts, as whatever is stored to
			// makes those above it newer than itself.
			if t.ghosts.first == nil {
				return
			}
			x.freeHold(t.ghosts.first)
			continue
		}
		t.counts.Evicted += x.shorten(h)
	}
}

// shorten takes the last resident block from a main hold without kids, and the
// hold with it where nothing of use remains. It returns the number of blocks.
func (x *Index) shorten(h *hold) int {
	m := h.resident()
	if m == 0 {
		x.freeHold(h)
		return 0
	}
	bit := deepest(m)
	for a := h; a != nil; a = a.alias {
		if a.known>>bit&1 != 0 {
			x.unname(a, bit)
		}
	}
	h.publish()
	if !h.live() {
		x.freeHold(h)
	}
	return 1
}

// unname takes a block's hash away, and with it whatever was known by it. The
// main hold is to be published, and settled, afterwards.
func (x *Index) unname(a *hold, bit uint32) {
	t := a.target
	hash, _ := a.nameOf(bit)
	r := refOf(a, bit)
	t.handles.remove(hash, r)
	if a.multi>>bit&1 != 0 {
		delete(t.copies, r)
	}
	if a.own>>bit&1 != 0 {
		t.blocks--
	}
	off := ^(uint64(1) << bit)
	a.known &= off
	a.own &= off
	a.multi &= off
	for i := range t.layers {
		a.main().mark(i, bit, false)
	}
}

// freeHold removes a main hold without kids, with its chain and all that is known
// by it.
func (x *Index) freeHold(h *hold) {
	t := h.target
	for a := h; a != nil; a = a.alias {
		for m := a.known; m != 0; m &= m - 1 {
			x.unname(a, lowest(m))
		}
		t.dismiss(a)
	}
	h.take()
	h.node.leave(h)
	if h.node.holders.Load() == nil {
		x.unlink(h.node)
	}
	if h.up != nil {
		h.up.kids--
		x.settle(h.up)
	}
}
