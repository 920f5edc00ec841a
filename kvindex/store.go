package kvindex

import "math/bits"

// stored applies a Stored.
func (x *Index) stored(t *target, e *Event) {
	t.counts.Stored += len(e.Hashes)
	switch r, layer := x.role(t, e); r {
	case roleTree:
		x.place(t, e, true)
	case roleTier:
		// A copy with its tokens also has the block's place.
		if t.shape == 0 || e.shape() == t.shape {
			x.place(t, e, false)
		}
		x.layerStored(t, layer, e)
	case roleLayer:
		x.layerStored(t, layer, e)
	}
	x.trim(t)
}

// fits says whether an event's tokens are those of its blocks, no more and no
// less.
func (e *Event) fits() bool {
	n := len(e.Hashes)
	return n > 0 && e.BlockSize > 0 && len(e.Tokens) == n*int(e.BlockSize)+e.shape().pairs() &&
		len(e.After) == n*int(e.Ahead)
}

// place puts an event's blocks into the tree: as resident ones, or only so that
// their place is known.
func (x *Index) place(t *target, e *Event, resident bool) {
	if !e.fits() {
		// Tokens of blocks that are left out stand among those of the others, or
		// there are none at all: only blocks that are known already can be found.
		if resident {
			x.unplaced(t, e)
		}
		return
	}
	// Blocks that are followed by fewer tokens than the others' hashes cover are never matched.
	ahead := uint8(t.shape.ahead())
	short := e.Ahead < ahead && shapeOf(e.BlockSize, e.Pairs, ahead) == t.shape
	if !short && !x.reshape(t, e.shape(), len(e.Hashes)) {
		t.counts.Partial++
		return
	}
	x.fingerprint(e, short)
	s := store{t: t, keys: x.keys, hashes: e.Hashes, sums: e.Sums, resident: resident, again: e.Reused}
	if e.HasParent {
		ph, bit := t.locate(e.Parent, e.ParentSum)
		switch {
		case ph != nil:
			main := ph.main()
			if resident {
				x.heal(ph, bit)
			}
			x.extend(&s, main.node, main, main.node.depth(bit)+1)
			x.adopt(t)
			return
		case e.Parent != 0 || e.ParentSum != 0:
			if resident {
				x.orphan(t, e, x.keys)
			}
			return
		}
		// A hash of 0 that is not known: llm-d's simulator means "none" by it.
	}
	x.noteAdapter(e.Adapter)
	x.extend(&s, x.root(x.secrets.root(t.shape, e.Adapter, e.Salt)), nil, 0)
	x.adopt(t)
}

// fingerprint sets x.keys to those of an event's blocks.
func (x *Index) fingerprint(e *Event, short bool) {
	x.keys = x.keys[:0]
	size, ahead := int(e.BlockSize), int(e.Ahead)
	reach := size + e.shape().pairs()
	for i := range e.Hashes {
		var extra uint64
		if e.Extra != nil {
			extra = e.Extra[i]
		}
		if short {
			extra = max(1, extra*31^uint64(e.Ahead+1))
		}
		tokens := e.Tokens[i*size : i*size+reach]
		if ahead > 0 {
			x.ahead = append(append(x.ahead[:0], tokens...), e.After[i*ahead:(i+1)*ahead]...)
			tokens = x.ahead
		}
		x.keys = append(x.keys, x.secrets.block(tokens, extra))
	}
}

// reshape makes the blocks of t have a shape; false means that n blocks of this
// shape say nothing about a target with blocks of another one.
func (x *Index) reshape(t *target, sh shape, n int) bool {
	if t.shape == sh {
		t.odd = 0
		return true
	}
	if t.shape == 0 {
		x.setShape(t, sh)
		return true
	}
	// Engines with several cache groups announce the part of a block that is
	// filled (vLLM #45939). Such a part is shorter than a block; a run that is not,
	// or one after another with no whole block between, is an engine that was
	// started with another size.
	was, is := t.shape.size(), sh.size()
	if t.shape.extra() == sh.extra() && is < was && was%is == 0 && n*is < was && t.odd < 8 {
		t.odd++
		return false
	}
	t.counts.Reshaped++
	x.clear(t)
	x.setShape(t, sh)
	return true
}

// root returns the root of this key.
func (x *Index) root(key uint64) *node {
	if r := x.roots.child(key); r != nil {
		return r
	}
	r := &node{key: key}
	x.roots.adopt(r)
	return r
}

// depth is that of the block at bit.
func (n *node) depth(bit uint32) uint32 { return n.start&^(span-1) | bit }

// store is a run of blocks on its way into the tree.
type store struct {
	t            *target
	keys         []uint64
	hashes, sums []uint64
	resident     bool
	again        bool   // they were announced before: no new copies
	live         []bool // for each block instead of resident, if not nil
}

// extend puts the run below the first d blocks of a path that ends in n, with h
// as t's main hold there; n may be a root, without h.
func (x *Index) extend(s *store, n *node, h *hold, d uint32) {
	x.touched ^= s.t.handles.warm(s.hashes)
	for i, key := range s.keys {
		more := min(uint32(len(s.keys)-i-1), span-1-d%span)
		if h != nil && d < n.end() && n.blocks()[d-n.start] != key {
			h.publish()
			n = x.split(n, d-n.start)
			h = n.hold(s.t.slot)
		}
		if h == nil || d == n.end() {
			if c := n.child(key); c != nil {
				h = x.enter(s.t, c, h)
				n = c
			} else if h != nil && d%span != 0 && n.leaf() {
				n.append(key, more)
			} else {
				c := &node{start: d, key: key}
				c.append(key, more)
				x.nodes++
				n.adopt(c)
				h = x.enter(s.t, c, h)
				n = c
			}
		}
		var sum uint64
		if s.sums != nil {
			sum = s.sums[i]
		}
		x.name(s, h, d%span, s.hashes[i], sum, more, s.resident && (s.live == nil || s.live[i]))
		d++
	}
	if h != nil {
		h.publish()
		s.t.touch(h)
		if h.empty() { // none of its blocks could be named
			s.t.hollow = append(s.t.hollow, h)
		}
	}
}

// enter leaves the hold up for the target's hold of a child, which is made if
// need be.
func (x *Index) enter(t *target, c *node, up *hold) *hold {
	if up != nil {
		up.publish()
	}
	if h := c.hold(t.slot); h != nil {
		return h
	}
	return x.newHold(t, c, up)
}

// maxChain bounds the handles that one position may have on one target, and the
// blocks that one hash may have with different sums. Names beyond are kept without.
const maxChain = 64

// name gives the block at bit of a main hold a hash, and counts a copy of it.
func (x *Index) name(s *store, h *hold, bit uint32, hash, sum uint64, more uint32, resident bool) {
	t, a := s.t, h
	if !h.is(bit, hash, sum) {
		f, at, others := t.search(hash, sum)
		if f == nil && len(t.over) > 0 && x.nameOver(s, h, bit, hash, sum, resident) {
			return
		}
		own := [2]uint64{hash, sum}
		switch {
		case others >= maxChain:
			// A handle that ends otherwise stands for it.
			hash, sum = fold(hash^t.handles.keys[0], sum^t.handles.keys[1]), 0
		case f == nil:
		case f.main() == h && at == bit:
			a = f
		default:
			// The engine calls another block so now. Its removal could not be
			// distinguished from this one's any more.
			t.counts.Moved++
			x.unname(f, at)
			f.main().publish()
			f = nil
		}
		if f == nil {
			if a = x.vacancy(h, bit); a == nil {
				x.addOver(h.overHost(bit), bit, hash, sum)
				x.nameOver(s, h, bit, hash, sum, resident)
				return
			}
			a.name(bit, hash, sum, more)
			t.handles.add(hash, refOf(a, bit))
			for i := range t.layers {
				x.mark(h, i, bit)
			}
			if len(t.orphans.by) > 0 && t.orphans.by[hash] != nil {
				x.waiting = append(x.waiting, hash)
			}
			if own[0] != hash {
				x.addOver(a, bit, own[0], own[1])
				x.nameOver(s, h, bit, own[0], own[1], resident)
				return
			}
		}
	}
	if !resident {
		if a.own>>bit&1 == 0 {
			t.hole(h, bit)
		}
		if !a.useful(bit) {
			t.faded.push(hash, sum)
		}
		return
	}
	if s.again && a.own>>bit&1 != 0 {
		return
	}
	x.addCopy(a, bit)
}

// vacancy returns a hold of h's chain in which the position has no hash, or one
// that is of no use any more; nil if there are too many.
func (x *Index) vacancy(h *hold, bit uint32) *hold {
	last := h
	n := 0
	for a := h; a != nil; a = a.alias {
		if a.known>>bit&1 == 0 {
			return a
		}
		if !a.useful(bit) {
			x.unname(a, bit)
			return a
		}
		last = a
		n++
	}
	if n >= maxChain {
		return nil
	}
	a := &hold{target: h.target, node: h.node, head: h}
	h.target.enlist(a)
	last.alias = a
	return a
}

// touch makes h the hold that was stored to last. One that has others below it is
// in no list: it cannot go before they do.
func (t *target) touch(h *hold) {
	t.clock++
	h.used = t.clock
	switch {
	case h.list == nil:
	case h.next == nil:
		h.placed = h.used
	default:
		h.take()
		t.recent.push(h)
	}
}

// healSteps bounds the holds that one event looks at on its way to the root. A
// path that is longer is healed by the events that follow on it.
const healSteps = 128

// heal makes the blocks resident that must be if a block was named as a parent:
// an engine that stores a block holds all before it.
func (x *Index) heal(a *hold, bit uint32) {
	h := a.main()
	t := h.target
	if b := uint64(1) << bit; a.own&b == 0 {
		a.own |= b
		t.blocks++
		t.counts.Healed++
		h.publish()
	}
	h.fill(h.node.mask() & (^uint64(0) >> (span - 1 - bit)))
	next := h.unchecked()
	for n := 0; next != nil && n < healSteps; n++ {
		next.fill(next.node.mask())
		next = next.unchecked()
		t.steps++
	}
	h.intact, h.from = t.holes+1, next
}

// unchecked returns the first hold above h that may lack blocks, as far as heal
// has looked.
func (h *hold) unchecked() *hold {
	if h.intact == h.target.holes+1 {
		return h.from
	}
	return h.up
}

// fill makes the blocks of need that a main hold knows resident.
func (h *hold) fill(need uint64) {
	missing := need &^ h.node.holders.Load().at(h.place).mask.Load()
	if missing == 0 {
		return
	}
	t := h.target
	for a := h; a != nil; a = a.alias {
		m := missing & a.known &^ a.own
		a.own |= m
		missing &^= m
		t.blocks += bits.OnesCount64(m)
		t.counts.Healed += bits.OnesCount64(m)
	}
	h.publish()
}

// hole notes that a block of a main hold is resident no more, or is known without
// being resident.
func (t *target) hole(h *hold, bit uint32) {
	if h.kids > 0 || h.resident()>>bit>>1 != 0 {
		t.holes++
	}
}

// unplaced counts copies of those of an event's blocks that have a known place.
func (x *Index) unplaced(t *target, e *Event) {
	s := store{t: t, again: e.Reused}
	for i, hash := range e.Hashes {
		var sum uint64
		if e.Sums != nil {
			sum = e.Sums[i]
		}
		a, bit := t.locate(hash, sum)
		if a == nil {
			t.counts.Unplaced++
			continue
		}
		h := a.main()
		x.name(&s, h, bit, hash, sum, 0, true)
		h.publish()
		t.touch(h)
	}
}
