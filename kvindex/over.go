package kvindex

// This file keeps names that have no handle of their own: those of a position that has
// maxChain others already, and hashes of bytes of which maxChain end alike. Such a name
// stands for another one of the same position, and each copy of the block by it counts as
// a copy by that one: nothing that hangs below the block is lost, and the block is
// resident until its last copy goes.

// over is a name without a handle.
type over struct {
	via, viaSum uint64 // the name that it stands for
	key         uint64 // the fingerprint of the block, and its depth: the position must still be the same
	depth       uint32
	n           uint32 // copies by this name
}

// overflow returns the position that a name without a handle stands for.
func (t *target) overflow(hash, sum uint64) (a *hold, bit uint32, ok bool) {
	o, ok := t.over[[2]uint64{hash, sum}]
	if !ok {
		return nil, 0, false
	}
	a, bit = t.find(o.via, o.viaSum)
	if a == nil || a.node.depth(bit) != o.depth || a.node.blocks()[o.depth-a.node.start] != o.key {
		delete(t.over, [2]uint64{hash, sum})
		return nil, 0, false
	}
	return a, bit, true
}

// locate is find, and finds names without a handle too.
func (t *target) locate(hash, sum uint64) (*hold, uint32) {
	a, bit := t.find(hash, sum)
	if a == nil && len(t.over) > 0 {
		a, bit, _ = t.overflow(hash, sum)
	}
	return a, bit
}

// addOver makes a name stand for that of a at bit.
func (x *Index) addOver(a *hold, bit uint32, hash, sum uint64) {
	t := a.target
	if len(t.over) >= x.cfg.MaxBlocks { // any other one goes
		t.counts.Moved++
		for k := range t.over {
			if b, at, ok := t.overflow(k[0], k[1]); ok {
				x.dropOver(b, at, k[0], k[1], 0)
				b.main().publish()
			}
			break
		}
	}
	if t.over == nil {
		t.over = make(map[[2]uint64]over)
	}
	via, viaSum := a.nameOf(bit)
	depth := a.node.depth(bit)
	t.over[[2]uint64{hash, sum}] = over{
		via: via, viaSum: viaSum, key: a.node.blocks()[depth-a.node.start], depth: depth,
	}
	if len(t.orphans.by) > 0 && t.orphans.by[hash] != nil {
		x.waiting = append(x.waiting, hash)
	}
}

// nameOver counts a copy of the block at bit of a main hold by a name without a handle. It
// returns false if the name is none of this block.
func (x *Index) nameOver(s *store, h *hold, bit uint32, hash, sum uint64, resident bool) bool {
	t := s.t
	a, at, ok := t.overflow(hash, sum)
	if !ok {
		return false
	}
	if a.main() != h || at != bit {
		// The engine calls another block so now.
		t.counts.Moved++
		x.dropOver(a, at, hash, sum, 0)
		return false
	}
	if resident && !s.again && x.addCopy(a, bit) {
		k := [2]uint64{hash, sum}
		o := t.over[k]
		o.n++
		t.over[k] = o
	}
	return true
}

// addCopy counts one more copy of a block, or its first. It returns false if copies are not
// counted.
func (x *Index) addCopy(a *hold, bit uint32) bool {
	t, b := a.target, uint64(1)<<bit
	if a.own&b == 0 {
		a.own |= b
		t.blocks++
		return true
	}
	t.counts.Duplicates++
	if x.cfg.Set {
		return false
	}
	if t.copies == nil {
		t.copies = make(map[ref]uint32)
	}
	t.copies[refOf(a, bit)]++
	a.multi |= b
	return true
}

// dropOver leaves a block that many copies by a name without a handle; with none the name is
// forgotten.
func (x *Index) dropOver(a *hold, bit uint32, hash, sum uint64, left uint32) {
	t, k := a.target, [2]uint64{hash, sum}
	o := t.over[k]
	if o.n > left && a.own>>bit&1 != 0 {
		total := 1 + t.copies[refOf(a, bit)]
		via, viaSum := a.nameOf(bit)
		x.leave(a, bit, total-min(total, o.n-left), via, viaSum)
	}
	o.n = left
	if left == 0 {
		delete(t.over, k)
	} else {
		t.over[k] = o
	}
}

// overHost finds a name of the block at bit of a main hold that another can stand for.
func (h *hold) overHost(bit uint32) *hold {
	var any *hold
	for a := h; a != nil; a = a.alias {
		switch {
		case a.known>>bit&1 == 0:
		case a.own>>bit&1 != 0:
			return a
		default:
			any = a
		}
	}
	return any
}
