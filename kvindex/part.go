package kvindex

// This file has the events that concern one medium, group or scope alone.

// moved applies a Moved: copies of blocks went from one medium to another.
func (x *Index) moved(t *target, e *Event) {
	if e.From == e.Medium {
		return
	}
	in, out := *e, *e
	in.Kind, out.Kind, out.Medium = Stored, Removed, e.From
	if group := t.groupOf(e); e.Medium != Device && (t.primary == noGroup || group == t.primary) {
		// Whatever the medium's credit, the block keeps its place: it may come back.
		if i := x.tierLayer(t, e.Medium); i >= 0 {
			t.counts.Stored += len(e.Hashes)
			x.layerStored(t, i, &in)
		}
	} else {
		x.stored(t, &in)
	}
	x.removed(t, &out)
}

// clearPart applies a Cleared of one medium, group or scope.
func (x *Index) clearPart(t *target, e *Event) {
	scope := e.Adapter != "" || e.Salt != ""
	group := t.groupOf(e)
	switch {
	case e.Medium != Device:
		if i := t.tier[e.Medium]; i >= 0 && (e.Group < 0 || t.primary == noGroup || e.Group == t.primary) {
			x.clearLayer(t, i, x.within(t, e, scope), !scope)
		}
	case e.Group >= 0 && group != t.primary && t.primary != noGroup:
		if i := t.layerOf(group); i >= 0 {
			x.clearLayer(t, i, x.within(t, e, scope), !scope)
		}
	default:
		x.clearTree(t, x.within(t, e, scope))
		for i := range t.layers {
			if e.Group < 0 && !t.layers[i].isTier() { // the device's other groups
				x.clearLayer(t, i, x.within(t, e, scope), !scope)
			}
		}
		if !scope {
			t.orphans = orphans{}
		}
	}
	x.trim(t)
}

// within returns which holds are in the event's scope.
func (x *Index) within(t *target, e *Event, scope bool) func(*hold) bool {
	if !scope {
		return func(*hold) bool { return true }
	}
	key := x.secrets.root(t.shape, e.Adapter, e.Salt)
	known := map[*node]bool{} // the nodes that were looked at
	return func(h *hold) bool {
		n := h.node
		in, ok := known[n]
		for ; !ok; in, ok = known[n] {
			if n.parent == &x.roots {
				in = n.key == key
				break
			}
			n = n.parent
		}
		for m := h.node; m != n; m = m.parent {
			known[m] = in
		}
		known[n] = in
		return in
	}
}

// each calls f for each main hold of t in its scope.
func (t *target) each(in func(*hold) bool, f func(*hold)) {
	for _, h := range t.holds {
		if h != nil && h.head == nil && in(h) {
			f(h)
		}
	}
}

// clearTree ends the residency of the blocks on the device.
func (x *Index) clearTree(t *target, in func(*hold) bool) {
	t.each(in, func(h *hold) {
		for a := h; a != nil; a = a.alias {
			for m := a.own; m != 0; m &= m - 1 {
				bit := lowest(m)
				if a.multi>>bit&1 != 0 {
					delete(t.copies, refOf(a, bit))
				}
				t.blocks--
			}
			a.own, a.multi = 0, 0
		}
		h.publish()
		x.forgetUseless(h)
	})
	t.holes++
}

// clearLayer ends the residency of the blocks of a layer.
func (x *Index) clearLayer(t *target, i int, in func(*hold) bool, all bool) {
	counts := t.layers[i].counts
	t.each(in, func(h *hold) {
		for a := h; a != nil; a = a.alias {
			for m := a.known; m != 0; m &= m - 1 {
				hash, _ := a.nameOf(lowest(m))
				delete(counts, hash)
			}
		}
		for m := h.layer(i); m != 0; m &= m - 1 {
			h.mark(i, lowest(m), false)
		}
		x.forgetUseless(h)
	})
	if all {
		t.layers[i].counts = nil // those without a place too
	}
}

// forgetUseless takes away the names of blocks of a main hold that are in no medium.
func (x *Index) forgetUseless(h *hold) {
	for a := h; a != nil; a = a.alias {
		for m := a.known; m != 0; m &= m - 1 {
			if bit := lowest(m); !a.useful(bit) {
				x.unname(a, bit)
			}
		}
	}
}
