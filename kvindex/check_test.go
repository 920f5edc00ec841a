package kvindex

import (
	"math/bits"
	"testing"
)

// check tests the invariants of an index's parts at any time between calls.
func check(t testing.TB, x *Index) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := checker{t: t, x: x, seen: map[*node]bool{}}
	x.roots.each(func(root *node) {
		if root.n.Load() != 0 || root.leaf() || root.parent != &x.roots {
			t.Errorf("root %x: %d blocks, leaf %v", root.key, root.n.Load(), root.leaf())
		}
		root.each(func(n *node) { c.node(root, n) })
	})
	if len(c.seen) != x.nodes {
		t.Errorf("%d nodes can be reached, %d are counted", len(c.seen), x.nodes)
	}
	for _, tg := range x.slots {
		if tg != nil {
			c.target(tg)
		}
	}
}

type checker struct {
	t    testing.TB
	x    *Index
	seen map[*node]bool
}

func (c *checker) node(parent, n *node) {
	t := c.t
	c.seen[n] = true
	keys := n.blocks()
	if n.parent != parent || len(keys) == 0 || keys[0] != n.key || n.start != parent.end() ||
		n.start/span != (n.end()-1)/span || int(n.capacity) < len(keys) || parent.child(n.key) != n {
		t.Errorf("node at %d of %d blocks below %d..%d is not in order", n.start, len(keys), parent.start, parent.end())
	}
	hs := n.holders.Load()
	if hs.len() == 0 {
		t.Errorf("node at %d: nobody holds it", n.start)
	}
	slots := map[uint32]bool{}
	for i := range hs.len() {
		e := hs.at(i)
		h := e.hold
		if slots[e.slot] {
			t.Errorf("slot %d holds a node twice", e.slot)
		}
		slots[e.slot] = true
		if h.node != n || h.place != i || h.target.slot != e.slot || e.mask.Load() != h.resident() || h.head != nil {
			t.Errorf("node at %d: holder %d is not in order", n.start, i)
		}
		if e.mask.Load()&^n.mask() != 0 {
			t.Errorf("node at %d: bits outside it", n.start)
		}
		if c.x.slots[e.slot] != h.target {
			t.Errorf("slot %d is another target's", e.slot)
		}
	}
	n.each(func(kid *node) { c.node(n, kid) })
}

func (c *checker) target(tg *target) {
	t := c.t
	blocks, known, copies := 0, 0, 0
	kids := map[*hold]int32{}
	lists, leaves := 0, 0
	for h := tg.recent.first; h != nil; h = h.next {
		lists++
		if h.list != &tg.recent || h.next == nil && tg.recent.last != h || h.next != nil && h.next.prev != h {
			t.Error("the list of recent holds is broken")
		}
	}
	if tg.recent.n != lists {
		t.Errorf("%d holds are counted, %d are in the list", tg.recent.n, lists)
	}
	faded := map[uint64]bool{}
	for _, f := range tg.faded.hashes[tg.faded.first:] {
		faded[f[0]] = true
	}
	mains, free := 0, 0
	for i, h := range tg.holds {
		if h == nil {
			free++
			continue
		}
		if int(h.number) != i || h.target != tg || !c.seen[h.node] {
			t.Errorf("hold %d is not in order", i)
		}
		if h.head == nil {
			mains++
			if h.node.parent.parent == &c.x.roots != (h.up == nil) && h.node.start == 0 && h.up != nil ||
				h.up == nil && h.node.start != 0 || h.up != nil && h.up.node != h.node.parent {
				t.Errorf("hold %d: what is above it is not its parent's", i)
			}
			if h.empty() {
				t.Errorf("hold %d is of no use", i)
			}
			if h.up != nil {
				kids[h.up]++
			}
			if (h.kids == 0) != (h.list != nil) || max(h.placed, h.used) > tg.clock {
				t.Errorf("hold %d: %d kids, in a list %v, placed %d, used %d", i, h.kids, h.list != nil, h.placed, h.used)
			}
			if h.kids == 0 {
				leaves++
			}
			for up := h.up; h.intact == tg.holes+1 && up != h.from; up = up.up {
				known := uint64(0)
				for a := up; a != nil; a = a.alias {
					known |= a.known
				}
				if known&^up.resident() != 0 {
					t.Errorf("hold %d: the one above, %d, lacks %x", i, up.number, known&^up.resident())
				}
			}
		} else if h.head.node != h.node {
			t.Errorf("alias %d is of another node", i)
		}
		if (h.known|h.own|h.multi)&^h.node.mask() != 0 || h.own&^h.known != 0 || h.multi&^h.own != 0 {
			t.Errorf("hold %d: known %x own %x multi %x of %x", i, h.known, h.own, h.multi, h.node.mask())
		}
		blocks += bits.OnesCount64(h.own)
		copies += bits.OnesCount64(h.multi)
		for m := h.known; m != 0; m &= m - 1 {
			known++
			bit := lowest(m)
			hash, sum := h.nameOf(bit)
			if !h.useful(bit) && !faded[hash] {
				t.Errorf("hold %d: hash %x is of no use, and stays", i, hash)
			}
			f, at := tg.find(hash, sum)
			if f == nil {
				t.Errorf("hold %d: hash %x is not found", i, hash)
			} else if fh, fs := f.nameOf(at); (f != h || at != bit) && (fh != hash || fs != 0 && sum != 0) {
				// An integer and bytes with the same end may be next to each other.
				t.Errorf("hold %d: hash %x sum %x is found elsewhere, %x sum %x", i, hash, sum, fh, fs)
			}
			if h.multi>>bit&1 != 0 && tg.copies[refOf(h, bit)] == 0 {
				t.Errorf("hold %d: several copies, but not counted", i)
			}
		}
	}
	for h, n := range kids {
		if h.kids != n {
			t.Errorf("hold %d: %d kids are counted of %d", h.number, h.kids, n)
		}
	}
	for _, h := range tg.holds {
		if h != nil && h.head == nil && kids[h] != h.kids {
			t.Errorf("hold %d: %d kids are counted of %d", h.number, h.kids, kids[h])
		}
	}
	if mains != tg.mains || leaves != lists || free != len(tg.free) || blocks != tg.blocks || known != tg.handles.n ||
		copies != len(tg.copies) {
		t.Errorf("%s: %d of %d mains, %d of %d leaves, %d of %d free, %d of %d blocks, %d of %d handles, %d of %d copies",
			tg.id,
			mains, tg.mains, leaves, lists, free, len(tg.free), blocks, tg.blocks, known, tg.handles.n, copies, len(tg.copies))
	}
	if tg.blocks > c.x.cfg.MaxBlocks || tg.faded.len() > maxFaded || len(tg.hollow) > 0 ||
		tg.orphans.blocks > c.x.cfg.MaxOrphans {
		t.Errorf("%s: %d blocks, %d handles, %d orphans are too many", tg.id, tg.blocks, tg.handles.n, tg.orphans.blocks)
	}
	orphaned := 0
	for _, o := range tg.orphans.queue {
		if !o.adopted {
			orphaned += len(o.keys)
		}
	}
	if orphaned != tg.orphans.blocks {
		t.Errorf("%s: %d of %d orphans", tg.id, orphaned, tg.orphans.blocks)
	}
}
