package kvindex

import (
	"sync/atomic"
	"unsafe"
)

// span is the greatest number of blocks of a node, and the depth of no block of a
// node is in another multiple of it than its first one's: bit depth%span of a
// word stands for a block, whichever node it is in.
const span = 64

// node is a run of blocks that follow one another in some prompts, and who
// which targets hold which of them. One tree of nodes stands for all targets.
//
// Readers take no lock. Each field that they read is either never changed once it can be
// reached (fingerprints, arrays of holders but for their masks), or one word
// that is loaded and stored atomically. A node that is split is left as it was
// for those that are in it, and two new ones take its place; the garbage
// collector knows when nobody is in the old one.
type node struct {
	n       atomic.Uint32            // blocks; grows in a leaf
	start   uint32                   // depth of the first block
	keys    atomic.Pointer[uint64]   // their fingerprints; the array is replaced when it is full
	kid     atomic.Pointer[node]     // the only child, until there are several
	kids    atomic.Pointer[kidTable] // the children, once there were several
	holders atomic.Pointer[holders]

	// The rest is the writer's alone.
	parent   *node
	key      uint64 // the parent's name for it: its first fingerprint, or a root's key
	capacity uint32 // of the array of keys
}

// blocks returns the node's fingerprints as they are now.
func (n *node) blocks() []uint64 {
	k := n.n.Load() // before keys: an array that comes later has no fewer of them
	if k == 0 {
		return nil
	}
	return unsafe.Slice(n.keys.Load(), k)
}

func (n *node) end() uint32 { return n.start + n.n.Load() }

// mask has the bits of the node's blocks.
func (n *node) mask() uint64 { return bitsOf(n.start, n.n.Load()) }

// bitsOf has the bits of n blocks from depth start on, which do not reach beyond
// the span.
func bitsOf(start, n uint32) uint64 {
	if n == 0 {
		return 0
	}
	return ^uint64(0) >> (span - n) << (start % span)
}

// leaf says whether the node has no children.
func (n *node) leaf() bool {
	if t := n.kids.Load(); t != nil {
		return t.live == 0
	}
	return n.kid.Load() == nil
}

// child returns the child with this key of its first block, or of its root.
func (n *node) child(key uint64) *node {
	if t := n.kids.Load(); t != nil {
		return t.find(key)
	}
	if k := n.kid.Load(); k != nil && k.key == key {
		return k
	}
	return nil
}

// append adds a block to a leaf with a free place in its span.
func (n *node) append(key uint64, more uint32) {
	k := n.n.Load()
	if k == n.capacity {
		// Exactly as many as are asked for at first: most runs come in one event. One that
		// grows is likely to fill its span, and the old array is garbage.
		capacity := (1 + more + 3) &^ 3
		switch {
		case k >= 16:
			capacity = span
		case k > 0:
			capacity = max(2*k, k+capacity)
		}
		keys := make([]uint64, min(capacity, span-n.start%span))
		copy(keys, n.blocks())
		keys[k] = key
		n.keys.Store(&keys[0])
		n.capacity = uint32(len(keys))
	} else {
		unsafe.Slice(n.keys.Load(), n.capacity)[k] = key // no reader goes beyond n yet
	}
	n.n.Store(k + 1)
}

// adopt makes c the child of n named c.key, in the place of one of that name.
func (n *node) adopt(c *node) {
	c.parent = n
	t := n.kids.Load()
	if t == nil {
		old := n.kid.Load()
		if old == nil || old.key == c.key {
			n.kid.Store(c)
			return
		}
		t = newKidTable(4)
		t.put(old)
		t.put(c)
		n.kids.Store(t) // kid stays for readers that saw no table yet
		return
	}
	if !t.put(c) {
		t = t.grown()
		t.put(c)
		n.kids.Store(t)
	}
}

// drop takes the child of this key away.
func (n *node) drop(key uint64) {
	if t := n.kids.Load(); t != nil {
		t.remove(key)
		if t.live == 0 {
			n.kid.Store(nil)
			n.kids.Store(nil)
		}
		return
	}
	n.kid.Store(nil)
}

// each calls f for each child.
func (n *node) each(f func(*node)) {
	if t := n.kids.Load(); t != nil {
		for i := range t.cells {
			if k := t.cells[i].kid.Load(); k != nil && k != gone {
				f(k)
			}
		}
	} else if k := n.kid.Load(); k != nil {
		f(k)
	}
}

// kidTable is a hash table with open addressing. A cell's key never changes once
// the cell is taken, so readers need no lock; a table that is full is replaced.
type kidTable struct {
	cells []kidCell
	live  int // children
	taken int // cells, with those of removed children
}

type kidCell struct {
	key uint64
	kid atomic.Pointer[node] // nil: free; gone: there was one
}

// gone marks the place of a child that was taken away. It is never changed.
var gone = new(node)

func newKidTable(size int) *kidTable { return &kidTable{cells: make([]kidCell, size)} }

func (t *kidTable) find(key uint64) *node {
	mask := uint64(len(t.cells) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		k := t.cells[i].kid.Load()
		if k == nil {
			return nil
		}
		if t.cells[i].key == key {
			if k == gone {
				return nil
			}
			return k
		}
	}
}

// put adds or replaces a child; false means that it is full. A cell in
// four stays free, so that find ends.
func (t *kidTable) put(c *node) bool {
	mask := uint64(len(t.cells) - 1)
	for i := c.key & mask; ; i = (i + 1) & mask {
		cell := &t.cells[i]
		k := cell.kid.Load()
		switch {
		case k == nil:
			if (t.taken+1)*4 > len(t.cells)*3 {
				return false
			}
			cell.key = c.key
			t.taken++
			t.live++
		case cell.key != c.key:
			continue
		case k == gone:
			t.live++
		}
		cell.kid.Store(c)
		return true
	}
}

func (t *kidTable) remove(key uint64) {
	mask := uint64(len(t.cells) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		k := t.cells[i].kid.Load()
		if k == nil {
			return
		}
		if t.cells[i].key == key {
			if k != gone {
				t.live--
				t.cells[i].kid.Store(gone)
			}
			return
		}
	}
}

// grown returns a greater table with the same children.
func (t *kidTable) grown() *kidTable {
	size := 4
	for size*3 < (t.live+1)*4*3/2 {
		size *= 2
	}
	g := newKidTable(size)
	for i := range t.cells {
		if k := t.cells[i].kid.Load(); k != nil && k != gone {
			g.put(k)
		}
	}
	return g
}

// holders are the targets that hold blocks of a node. Most nodes have one.
type holders struct {
	n    atomic.Uint32 // grows; readers do not go beyond it
	one  holder
	more []holder
}

// holder is one target's part in a node.
type holder struct {
	mask atomic.Uint64 // its resident blocks; bits outside the node mean nothing
	hold *hold
	slot uint32
}

func (h *holders) at(i uint32) *holder {
	if i == 0 {
		return &h.one
	}
	return &h.more[i-1]
}

func (h *holders) len() uint32 {
	if h == nil {
		return 0
	}
	return h.n.Load()
}

// hold returns the hold of a slot, nil for none.
func (n *node) hold(slot uint32) *hold {
	hs := n.holders.Load()
	for i := range hs.len() {
		if h := hs.at(i); h.slot == slot {
			return h.hold
		}
	}
	return nil
}

// enter adds a holder.
func (n *node) enter(h *hold, mask uint64) {
	old := n.holders.Load()
	k := old.len()
	if k == 0 {
		hs := new(holders)
		hs.one.hold, hs.one.slot = h, h.target.slot
		hs.one.mask.Store(mask)
		hs.n.Store(1)
		h.place = 0
		n.holders.Store(hs)
		return
	}
	hs := old
	if int(k) > len(old.more) {
		hs = new(holders)
		hs.more = make([]holder, max(1, 2*len(old.more)))
		hs.copy(old, k, k)
	}
	e := hs.at(k)
	e.hold, e.slot = h, h.target.slot
	e.mask.Store(mask)
	h.place = k
	hs.n.Store(k + 1)
	if hs != old {
		n.holders.Store(hs)
	}
}

// leave takes a holder away. Readers of the old array see it go with its mask.
func (n *node) leave(h *hold) {
	old := n.holders.Load()
	k := old.len()
	old.at(h.place).mask.Store(0)
	if k == 1 {
		n.holders.Store(nil)
		return
	}
	hs := new(holders)
	if k > 2 {
		hs.more = make([]holder, k-2)
	}
	hs.copy(old, k, h.place)
	n.holders.Store(hs)
}

// copy takes over the first k holders of from but for the one at without.
func (h *holders) copy(from *holders, k, without uint32) {
	to := uint32(0)
	for i := range k {
		if i == without {
			continue
		}
		a, b := from.at(i), h.at(to)
		b.hold, b.slot = a.hold, a.slot
		b.mask.Store(a.mask.Load())
		b.hold.place = to
		to++
	}
	h.n.Store(to)
}
