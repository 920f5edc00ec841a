package kvindex

import "math"

// layer has the target's blocks that are not in the tree: those that are
// resident in one more group, or in another medium. The wire gives such a
// block no place, or none that is certain; it is found by its hash, which is the
// same as in the tree.
type layer struct {
	group  int32
	window int32 // in tokens, 0 for all that is before
	void   bool  // its blocks have another size: nothing can be said
	counts map[uint64]uint32
}

const (
	maxLayers = 16
	// tierGroup is the group of the layer of the first medium; those of the others follow.
	tierGroup = math.MinInt32 + 1
)

// tierLayers has the layer of each medium, -1 for none. Device has none: it is the tree.
type tierLayers [tiers]int

var noTiers = tierLayers{-1, -1, -1, -1}

// isTier says whether the layer is that of a medium.
func (l *layer) isTier() bool { return l.group < tierGroup+int32(tiers) }

// windows has a target's layers, for readers.
type windows struct {
	layers []window
	tier   tierLayers
}

type window struct {
	layer  int
	blocks int // that must be resident before the end of a prefix
}

// role is the use of an event's blocks.
type role uint8

const (
	roleNone  role = iota
	roleTree       // they stand in the tree
	roleTier       // a layer: another medium
	roleLayer      // a layer: another group that a prefix needs
)

// role returns the use of a Stored and learns the target's groups from it.
func (x *Index) role(t *target, e *Event) (role, int) {
	group := t.groupOf(e)
	switch {
	case e.Medium != Device && x.credits[e.Medium] == 0 && t.tier[e.Medium] < 0:
		t.counts.OtherMedia++
		return roleNone, 0
	case e.Medium != Device:
		if e.Spec == SpecOther || e.Spec == SpecSliding || t.primary != noGroup && group != t.primary {
			t.counts.OtherGroups++
			return roleNone, 0
		}
		if i := x.tierLayer(t, e.Medium); i >= 0 {
			return roleTier, i
		}
		return roleNone, 0
	case e.Spec == SpecOther:
		t.counts.OtherGroups++
		return roleNone, 0
	case e.Spec == SpecSliding:
		if group != t.primary {
			return x.groupLayer(t, group, e.Window)
		}
	}
	full := e.Spec == SpecFull
	switch {
	case group == t.primary:
		t.full = t.full || full
		return roleTree, 0
	case t.primary == noGroup:
		if !full && !e.fits() {
			t.counts.Unplaced += len(e.Hashes)
			return roleNone, 0
		}
	case full && t.full:
		return x.groupLayer(t, group, 0)
	case full, !t.full && group < t.primary && e.fits():
		// Another group decides: all that was learned from the first is void.
		t.counts.Reshaped++
		x.clear(t)
		x.setShape(t, 0)
	default:
		t.counts.OtherGroups++
		return roleNone, 0
	}
	t.primary, t.full = group, full
	return roleTree, 0
}

// groupOf is the event's group. An engine that names none has one.
func (t *target) groupOf(e *Event) int32 {
	if e.Group >= 0 {
		return e.Group
	}
	if t.primary != noGroup {
		return t.primary
	}
	return 0
}

func (t *target) layerOf(group int32) int {
	for i := range t.layers {
		if t.layers[i].group == group {
			return i
		}
	}
	return -1
}

func (x *Index) groupLayer(t *target, group, window int32) (role, int) {
	i := t.layerOf(group)
	if i < 0 {
		if i = x.addLayer(t, group, window); i < 0 {
			return roleNone, 0
		}
	}
	if t.layers[i].window != window {
		t.layers[i].window = window
		x.respec(t)
	}
	return roleLayer, i
}

// tierLayer returns the layer of a medium, and makes it if need be; -1 if there are too many.
func (x *Index) tierLayer(t *target, m Medium) int {
	if t.tier[m] < 0 {
		t.tier[m] = x.addLayer(t, tierGroup+int32(m), 0)
		t.anyTier = t.anyTier || t.tier[m] >= 0
		x.respec(t)
	}
	return t.tier[m]
}

func (x *Index) addLayer(t *target, group, window int32) int {
	if len(t.layers) == maxLayers {
		t.counts.OtherGroups++
		return -1
	}
	t.layers = append(t.layers, layer{group: group, window: window})
	x.respec(t)
	return len(t.layers) - 1
}

// respec publishes the windows for readers.
func (x *Index) respec(t *target) {
	var w []window
	for i, l := range t.layers {
		if l.isTier() || l.void {
			continue
		}
		blocks := math.MaxInt32
		if size := t.shape.size(); l.window > 0 && size > 0 {
			blocks = (int(l.window) - 1 + size - 1) / size
		}
		w = append(w, window{layer: i, blocks: blocks})
	}
	if w == nil && !t.anyTier {
		t.spec.Store(nil)
		return
	}
	t.spec.Store(&windows{layers: w, tier: t.tier})
}

func (x *Index) layerStored(t *target, i int, e *Event) {
	l := &t.layers[i]
	if size := t.shape.size(); size != 0 && e.BlockSize != 0 && int(e.BlockSize) != size {
		t.counts.OtherGroups++
		if !l.isTier() && !l.void {
			l.void = true
			x.respec(t)
		}
		return
	}
	if l.counts == nil {
		l.counts = make(map[uint64]uint32)
	}
	for j, hash := range e.Hashes {
		n := l.counts[hash]
		if n == 0 && len(l.counts) > 2*x.cfg.MaxBlocks {
			continue // less than the truth is the safe side
		}
		if n == 0 || !x.cfg.Set && !e.Reused {
			l.counts[hash] = n + 1
		}
		if a, bit := t.find(hash, e.sum(j)); a != nil {
			x.mark(a.main(), i, bit)
		}
	}
}

// mark sets a layer's bit of a main hold by the hashes that its position has.
func (x *Index) mark(h *hold, i int, bit uint32) {
	counts := h.target.layers[i].counts
	on := false
	for a := h; a != nil && len(counts) > 0; a = a.alias {
		if a.known>>bit&1 != 0 {
			hash, _ := a.nameOf(bit)
			on = on || counts[hash] > 0
		}
	}
	was := h.layer(i)>>bit&1 != 0
	if on == was {
		return
	}
	h.mark(i, bit, on)
	if !h.target.layers[i].isTier() || on {
		return
	}
	for a := h; a != nil; a = a.alias {
		if a.known>>bit&1 != 0 && !a.useful(bit) {
			h.target.faded.push(a.nameOf(bit))
		}
	}
}

func (e *Event) sum(i int) uint64 {
	if e.Sums == nil {
		return 0
	}
	return e.Sums[i]
}

// removed applies a Removed.
func (x *Index) removed(t *target, e *Event) {
	t.counts.Removed += len(e.Hashes)
	group := t.groupOf(e)
	i := -1
	switch {
	case e.Medium == Device && (group == t.primary || t.primary == noGroup && len(t.layers) == 0):
		for j, hash := range e.Hashes {
			x.removeBlock(t, e, j, hash)
		}
		x.trim(t)
		return
	case e.Medium == Device:
		i = t.layerOf(group)
	case e.Group < 0 || t.primary == noGroup || e.Group == t.primary:
		i = t.tier[e.Medium]
	}
	if i < 0 {
		if e.Medium != Device {
			t.counts.OtherMedia++
		} else {
			t.counts.OtherGroups++
		}
		return
	}
	l := &t.layers[i]
	for j, hash := range e.Hashes {
		n := l.counts[hash]
		if n == 0 {
			t.counts.UnknownRemoved++
			continue
		}
		if e.Left != nil {
			n = uint32(e.Left[j])
		} else if n--; x.cfg.Set {
			n = 0
		}
		if n > 0 {
			l.counts[hash] = n
			continue
		}
		delete(l.counts, hash)
		if a, bit := t.find(hash, e.sum(j)); a != nil {
			x.mark(a.main(), i, bit)
		}
	}
	x.trim(t)
}

// removeBlock takes away one copy of a block of the tree.
func (x *Index) removeBlock(t *target, e *Event, j int, hash uint64) {
	a, bit := t.find(hash, e.sum(j))
	if a == nil {
		if over, at, ok := t.overflow(hash, e.sum(j)); ok {
			var left uint32
			if n := t.over[[2]uint64{hash, e.sum(j)}].n; e.Left != nil {
				left = min(uint32(e.Left[j]), n)
			} else if n > 0 && !x.cfg.Set {
				left = n - 1
			}
			x.dropOver(over, at, hash, e.sum(j), left)
			return
		}
		if !t.orphans.remove(hash) {
			t.counts.UnknownRemoved++
		}
		return
	}
	if a.own>>bit&1 == 0 {
		t.counts.UnknownRemoved++
		return
	}
	var left uint32
	switch {
	case e.Left != nil:
		left = uint32(e.Left[j])
	case a.multi>>bit&1 != 0:
		left = t.copies[refOf(a, bit)]
	}
	x.leave(a, bit, left, hash, e.sum(j))
}

// leave leaves that many copies of a resident block with this name.
func (x *Index) leave(a *hold, bit, left uint32, hash, sum uint64) {
	t, b, r := a.target, uint64(1)<<bit, refOf(a, bit)
	switch {
	case left > 1:
		if t.copies == nil {
			t.copies = make(map[ref]uint32)
		}
		t.copies[r] = left - 1
		a.multi |= b
		return
	case a.multi&b != 0:
		delete(t.copies, r)
		a.multi &^= b
	}
	if left > 0 {
		return
	}
	a.own &^= b
	t.blocks--
	h := a.main()
	h.publish()
	t.hole(h, bit)
	if !a.useful(bit) {
		t.faded.push(hash, sum)
	}
}
