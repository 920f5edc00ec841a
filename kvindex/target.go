package kvindex

import "sync/atomic"

// target is the writer's part of one target. Readers see spec, applied and any.
type target struct {
	id    string
	spare *spare
	slot  uint32
	spec  atomic.Pointer[windows]

	last      uint64
	begun     bool          // last is one of this life
	known     bool          // an event was understood
	foreign   bool          // an event was not
	life      uint64        // grows when all that is known is forgotten
	applied   atomic.Uint64 // the last message with all its events applied
	any       atomic.Bool   // applied is one of this life
	missing   bool          // messages up to until have not all been applied
	until     uint64
	suspended bool

	again   int        // blocks at the end of a reused part that are computed again
	report  report     // that teaches it
	shape   shape      // of the blocks; 0 until one is known
	odd     int        // stores of smaller blocks since one of this shape
	primary int32      // the group with its blocks in the tree
	full    bool       // and that it is one of full attention is certain
	layers  []layer    // kept apart from the tree
	tier    tierLayers // the layers of the media but Device
	anyTier bool       // there is one
	blocks  int        // resident
	handles handles
	holds   []*hold // by number
	free    []uint32
	mains   int      // main holds
	clock   uint64   // counts the stores
	recent  holdList // main holds that have none below, the least recently stored to first
	hollow  []*hold  // main holds, some of which may know nothing any more
	holes   uint64   // grows with each block that is gone though one behind it may not be
	steps   uint64   // counts the holds that heal has visited
	faded   fading
	copies  map[ref]uint32     // beyond the first, of blocks that have several
	over    map[[2]uint64]over // names without a handle, with their sums
	orphans orphans
	counts  Counters
}

// A target's state as readers see it, in one word: its shape above these flags.
const (
	stateTrusted = 1 << 0
	stateSpecial = 1 << 1 // it has a spec
	stateAgain   = 2      // the first bit of the blocks that are computed again
	stateShape   = 8      // the first bit of the shape
)

// again is the number of blocks of a target in this state that are computed again.
func again(state uint64) int { return int(state>>stateAgain) & (1<<(stateShape-stateAgain) - 1) }

// announce shows readers the target's state.
func (x *Index) announce(t *target) {
	s := uint64(t.shape)<<stateShape | uint64(t.again)<<stateAgain
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
	t := &target{
		id: id, again: max(0, x.cfg.Recompute), spare: &x.spare, primary: noGroup, tier: noTiers,
		handles: handles{keys: x.secrets.tags},
	}
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

// setShape gives t's blocks a shape, 0 for none. t has no blocks then.
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
	h := &hold{target: t, node: n, up: up, used: t.clock}
	t.enlist(h)
	t.mains++
	if up != nil {
		if up.kids++; up.kids == 1 {
			up.take()
		}
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
// of a chain, and its bit; nil if there is none.
func (t *target) find(hash, sum uint64) (*hold, uint32) {
	h, bit, _ := t.search(hash, sum)
	return h, bit
}

// search is find, and returns how many blocks have the hash with other sums, if
// there is no such block.
func (t *target) search(hash, sum uint64) (h *hold, bit uint32, others int) {
	cells := t.handles.cells
	if len(cells) == 0 {
		return nil, 0, 0
	}
	tag := t.handles.tag(hash)
	for i := t.handles.home(tag); cells[i] != 0; i = t.handles.next(i) {
		t.handles.steps++
		if cells[i]>>32 != tag {
			continue
		}
		number, bit := ref(cells[i]).split()
		if h := t.holds[number]; h.is(bit, hash, sum) {
			return h, bit, 0
		}
		others++ // or a tag that is equal by chance
	}
	return nil, 0, others
}

// restart forgets all that is known of t but its counters.
func (x *Index) restart(t *target) {
	t.life++
	x.clear(t)
	t.layers, t.tier, t.anyTier = nil, noTiers, false
	t.primary, t.full = noGroup, false
	x.setShape(t, 0)
	x.respec(t)
	t.missing, t.suspended = false, false
}

// clear forgets t's blocks, not its groups.
func (x *Index) clear(t *target) {
	var empty []*node
	for _, h := range t.holds {
		if h == nil || h.head != nil { // the main hold of an alias goes for it
			continue
		}
		h.node.leave(h)
		if h.node.holders.Load() == nil {
			empty = append(empty, h.node)
		}
	}
	// Nodes below a node without holders have none either.
	for _, n := range empty {
		x.unlink(n)
	}
	t.blocks = 0
	t.handles = handles{keys: t.handles.keys, steps: t.handles.steps}
	t.holds, t.free = nil, nil
	t.mains, t.recent, t.hollow, t.faded = 0, holdList{}, nil, fading{}
	t.copies, t.over = nil, nil
	t.orphans = orphans{}
	for i := range t.layers {
		t.layers[i].counts = nil
	}
}

// unlink takes a node without holders out of the tree, with its root if that is
// empty then.
func (x *Index) unlink(n *node) {
	x.nodes--
	p := n.parent
	p.drop(n.key)
	if p.parent == &x.roots && p.leaf() {
		x.roots.drop(p.key)
	}
}

// trim keeps t within its bounds. It runs between events, when nothing points at
// a hold that may go.
func (x *Index) trim(t *target) {
	for t.faded.len() > maxFaded {
		hash, sum := t.faded.pop()
		if a, bit := t.find(hash, sum); a != nil && !a.useful(bit) {
			x.unname(a, bit)
		}
	}
	x.sweep(t)
	for t.blocks > x.cfg.MaxBlocks || t.mains > x.cfg.MaxBlocks+maxFaded {
		h := t.recent.first
		if h.used > h.placed { // it was stored to while it had others below it
			h.take()
			t.recent.push(h)
			continue
		}
		x.shorten(h)
		x.sweep(t)
	}
}

// sweep frees the holds that know nothing any more, and have none below.
func (x *Index) sweep(t *target) {
	for len(t.hollow) > 0 {
		h := t.hollow[len(t.hollow)-1]
		t.hollow = t.hollow[:len(t.hollow)-1]
		if t.holds[h.number] == h && h.empty() { // not freed already
			x.freeHold(h)
		}
	}
}

// shorten takes the last resident block from a main hold, or, if none is, all that
// is known by it.
func (x *Index) shorten(h *hold) {
	out := ^uint64(0)
	if m := h.resident(); m != 0 {
		out = 1 << deepest(m)
	}
	for a := h; a != nil; a = a.alias {
		for m := a.known & out; m != 0; m &= m - 1 {
			h.target.counts.Evicted += int(a.own >> lowest(m) & 1)
			x.unname(a, lowest(m))
		}
	}
	h.publish()
}

// unname takes a block's hash away, and with it all that was known by it. The
// main hold is to be published afterwards.
func (x *Index) unname(a *hold, bit uint32) {
	t := a.target
	hash, _ := a.nameOf(bit)
	r := refOf(a, bit)
	t.handles.remove(hash, r)
	if a.multi>>bit&1 != 0 {
		delete(t.copies, r)
	}
	gone := a.own>>bit&1 != 0
	if gone {
		t.blocks--
	}
	off := ^(uint64(1) << bit)
	a.known &= off
	a.own &= off
	a.multi &= off
	h := a.main()
	if gone {
		t.hole(h, bit)
	}
	for i := range t.layers {
		x.mark(h, i, bit)
	}
	if h.empty() {
		t.hollow = append(t.hollow, h)
	}
}

// freeHold removes a main hold that knows nothing and has none below.
func (x *Index) freeHold(h *hold) {
	t := h.target
	for a := h; a != nil; a = a.alias {
		t.dismiss(a)
	}
	t.mains--
	up := h.up
	if up != nil {
		if up.kids--; up.kids == 0 {
			// Its place is that of the hold below it; if it was stored to after that,
			// trim finds out.
			t.recent.insert(up, h)
			up.placed = h.placed
		}
		if up.empty() {
			t.hollow = append(t.hollow, up)
		}
	}
	h.take()
	h.node.leave(h)
	if h.node.holders.Load() == nil {
		x.unlink(h.node)
	}
}

// fading are hashes of blocks that are of no use any more, the oldest first.
// Their places are kept for a while: an engine may name one as a parent after
// all, and so say that it is resident.
type fading struct {
	hashes [][2]uint64 // with their sums
	first  int
}

// maxFaded bounds the removed blocks with a place that is kept.
const maxFaded = 1024

func (f *fading) len() int { return len(f.hashes) - f.first }

func (f *fading) push(hash, sum uint64) {
	if f.first > maxFaded {
		f.hashes = f.hashes[:copy(f.hashes, f.hashes[f.first:])]
		f.first = 0
	}
	f.hashes = append(f.hashes, [2]uint64{hash, sum})
}

func (f *fading) pop() (hash, sum uint64) {
	f.first++
	h := f.hashes[f.first-1]
	return h[0], h[1]
}
