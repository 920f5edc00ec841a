package kvindex

import "sync/atomic"

// split cuts a node before its k-th block and returns the upper part. The node
// itself stays as it is for those that read it; both parts are new.
func (x *Index) split(n *node, k uint32) *node {
	keys := n.blocks()
	upper := &node{start: n.start, key: n.key, capacity: k}
	upper.keys.Store(&keys[0])
	upper.n.Store(k)
	lower := &node{start: n.start + k, key: keys[k], capacity: n.capacity - k, parent: upper}
	lower.keys.Store(&keys[k])
	lower.n.Store(uint32(len(keys)) - k)
	lower.kid.Store(n.kid.Load())
	lower.kids.Store(n.kids.Load())
	lower.each(func(c *node) { c.parent = lower })
	old := n.holders.Load()
	for i := range old.len() {
		x.splitHold(old.at(i).hold, upper, lower)
	}
	if lower.holders.Load() != nil { // else no target knows those blocks any more
		upper.kid.Store(lower)
		x.nodes++
	}
	n.parent.adopt(upper)
	return upper
}

// splitHold makes of a main hold of a node one of its upper part, and one of its
// lower part if it has anything there.
func (x *Index) splitHold(h *hold, upper, lower *node) {
	high := lower.mask()
	below := h.kids > 0
	for a := h; a != nil; a = a.alias {
		below = below || a.known&high != 0
	}
	if !below {
		for a := h; a != nil; a = a.alias {
			a.node = upper
		}
		upper.enter(h, h.resident())
		return
	}
	t := h.target
	u := &hold{target: t, node: upper, up: h.up, kids: 1, used: h.used}
	t.enlist(u)
	t.mains++
	h.up, h.intact, h.from = u, 0, nil
	if a := h.aux.Load(); a != nil {
		// The old node's readers read h's, which keeps all bits for them.
		u.aux.Store(a.of(upper.mask()))
	}
	h.raise(u, lower)
	end := u
	before := h
	for a := h.alias; a != nil; a = a.alias {
		v := &hold{target: t, node: upper, head: u}
		t.enlist(v)
		a.raise(v, lower)
		if v.known == 0 {
			t.dismiss(v)
		} else {
			end.alias = v
			end = v
		}
		if a.known == 0 {
			before.alias = a.alias
			t.dismiss(a)
		} else {
			before = a
		}
	}
	upper.enter(u, u.resident())
	lower.enter(h, h.resident())
}

// of returns a copy of a with these bits alone.
func (a *aux) of(mask uint64) *aux {
	b := &aux{layers: make([]atomic.Uint64, len(a.layers))}
	for i := range a.layers {
		b.layers[i].Store(a.layers[i].Load() & mask)
	}
	return b
}

// dismiss gives back the number of a hold that knows nothing, and its memory.
func (t *target) dismiss(a *hold) {
	t.spare.put(a.hashes)
	t.spare.put(a.sums)
	a.hashes, a.sums = nil, nil
	t.holds[a.number] = nil
	t.free = append(t.free, a.number)
}

// raise moves the part of h above the node lower to u, which is empty, and makes h
// a hold of lower.
func (h *hold) raise(u *hold, lower *node) {
	t := h.target
	k := int(lower.start - h.node.start)
	low := ^lower.mask()
	for m := h.known & low; m != 0; m &= m - 1 {
		bit := lowest(m)
		hash, _ := h.nameOf(bit)
		from, to := refOf(h, bit), refOf(u, bit)
		t.handles.move(hash, from, to)
		if h.multi>>bit&1 != 0 {
			t.copies[to] = t.copies[from]
			delete(t.copies, from)
		}
	}
	u.known, u.own, u.multi = h.known&low, h.own&low, h.multi&low
	h.known &^= low
	h.own &^= low
	h.multi &^= low
	u.hashes, h.hashes = cut(h.hashes, k)
	u.sums, h.sums = cut(h.sums, k)
	h.node = lower
}

// cut shares out a slice: neither part can grow into the other.
func cut(s []uint64, k int) (a, b []uint64) {
	if len(s) <= k {
		return s, nil
	}
	return s[:k:k], s[k:]
}
