package kvindex

import "slices"

// orphans are the blocks of one target with an unknown place, because the block
// before them is unknown. They count for nothing until it is.
type orphans struct {
	by     map[uint64][]*orphan // by the hash of the block before
	queue  []*orphan            // the oldest first
	live   map[uint64]uint32    // resident copies, by hash
	blocks int
}

// orphan is one event's blocks.
type orphan struct {
	parent, parentSum  uint64
	keys, hashes, sums []uint64
	adopted            bool
}

// orphan keeps an event's blocks until the one before them is known.
func (x *Index) orphan(t *target, e *Event, keys []uint64) {
	t.counts.Orphaned += len(keys)
	if len(keys) > x.cfg.MaxOrphans {
		t.counts.OrphansDropped += len(keys)
		return
	}
	o := &t.orphans
	if o.by == nil {
		o.by = make(map[uint64][]*orphan)
		o.live = make(map[uint64]uint32)
	}
	n := &orphan{
		parent: e.Parent, parentSum: e.ParentSum,
		keys: slices.Clone(keys), hashes: slices.Clone(e.Hashes), sums: slices.Clone(e.Sums),
	}
	o.by[n.parent] = append(o.by[n.parent], n)
	o.queue = append(o.queue, n)
	o.blocks += len(n.keys)
	for _, h := range n.hashes {
		o.live[h]++
	}
	for o.blocks > x.cfg.MaxOrphans {
		first := o.queue[0]
		o.queue = o.queue[1:]
		if first.adopted {
			continue
		}
		t.counts.OrphansDropped += len(first.keys)
		o.blocks -= len(first.keys)
		for _, h := range first.hashes {
			o.remove(h)
		}
		if rest := o.by[first.parent][1:]; len(rest) > 0 { // it is the first there too
			o.by[first.parent] = rest
		} else {
			delete(o.by, first.parent)
		}
	}
}

// remove takes away one copy of an orphan.
func (o *orphans) remove(hash uint64) bool {
	n := o.live[hash]
	if n == 0 {
		return false
	}
	if n == 1 {
		delete(o.live, hash)
	} else {
		o.live[hash] = n - 1
	}
	return true
}

// adopt puts the orphans into the tree that wait for blocks which have just got
// their place, and then those that wait for these.
func (x *Index) adopt(t *target) {
	for len(x.waiting) > 0 {
		hash := x.waiting[len(x.waiting)-1]
		x.waiting = x.waiting[:len(x.waiting)-1]
		waiting := t.orphans.by[hash]
		delete(t.orphans.by, hash)
		for _, o := range waiting {
			o.adopted = true
			t.orphans.blocks -= len(o.keys)
			live := make([]bool, len(o.hashes))
			for i, h := range o.hashes {
				live[i] = t.orphans.remove(h)
			}
			ph, bit := t.locate(o.parent, o.parentSum)
			if ph == nil {
				t.counts.OrphansDropped += len(o.keys)
				continue
			}
			t.counts.Adopted += len(o.keys)
			main := ph.main()
			s := store{t: t, keys: o.keys, hashes: o.hashes, sums: o.sums, resident: true, live: live}
			x.extend(&s, main.node, main, main.node.depth(bit)+1)
		}
	}
	// Adopted ones stay in the queue until they are its first; an empty set has none.
	if len(t.orphans.by) == 0 && t.orphans.queue != nil {
		t.orphans = orphans{}
	} else if len(t.orphans.queue) > 64 && len(t.orphans.queue) > 4*t.orphans.blocks {
		t.orphans.queue = slices.DeleteFunc(t.orphans.queue, func(o *orphan) bool { return o.adopted })
	}
}
