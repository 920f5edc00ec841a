package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// hold is the part of a node's blocks that one target holds, with the engine's
// hashes of them. Bits stand for blocks as in [node].
//
// A position may have several hashes on one target (SGLang's extra_key, salts of
// vLLM before 0.17 are not on the wire). Those beyond the first are in the holds
// of a chain, which only the first one, the main one, begins.
type hold struct {
	target *target
	node   *node
	up     *hold // the same target's main hold of the parent node, nil below a root
	head   *hold // the main hold of the chain that this one is in, nil for a main one
	alias  *hold // the next of the chain
	next   *hold // neighbours in the list of main holds that have none below
	prev   *hold
	list   *holdList // nil: none
	from   *hold     // the end of intact: nil above the uppermost

	used   uint64 // the target's clock when it was stored to last
	placed uint64 // used of the place in the list
	intact uint64 // target.holes+1 when heal found that all above, up to from, lack nothing

	own    uint64 // resident
	known  uint64 // has a hash, though it may be resident no more
	multi  uint64 // has several copies; target.copies counts them
	hashes []uint64
	sums   []uint64 // of hashes that are bytes; nil if none is
	number uint32
	place  uint32 // in the node's array of holders
	kids   int32  // main holds that have this one as up
	aux    atomic.Pointer[aux]
}

// aux has the target's blocks that are resident in other groups, and those in the
// host's memory.
type aux struct{ layers []atomic.Uint64 }

func (h *hold) at(bit uint32) uint32 { return bit - h.node.start%span }

// is says whether the block at bit has this hash. Bytes and integers are compared
// by their last 8 bytes.
func (h *hold) is(bit uint32, hash, sum uint64) bool {
	i := h.at(bit)
	if h.known>>bit&1 == 0 || h.hashes[i] != hash {
		return false
	}
	return sum == 0 || int(i) >= len(h.sums) || h.sums[i] == 0 || h.sums[i] == sum
}

// name gives the block at bit its hash. more is how many will follow.
func (h *hold) name(bit uint32, hash, sum uint64, more uint32) {
	i := h.at(bit)
	if int(i) >= len(h.hashes) {
		h.hashes = h.target.spare.extended(h.hashes, i, more)
	}
	h.hashes[i] = hash
	if sum != 0 || h.sums != nil {
		if int(i) >= len(h.sums) {
			h.sums = h.target.spare.extended(h.sums, i, more)
		}
		h.sums[i] = sum
	}
	h.known |= 1 << bit
}

// spare keeps the arrays that holds have outgrown for others: left to the garbage
// collector they would cost half as much memory again, in pages that are kept by
// longer-lived arrays. Only the writer uses them.
type spare [span/4 + 1][][]uint64 // by a fourth of their size

const maxSpare = 256

// extended returns s with place i in it, and capacity for more to come.
func (p *spare) extended(s []uint64, i, more uint32) []uint64 {
	if int(i) < cap(s) {
		return s[:i+1]
	}
	size := min(max(i+1+more, i+i/4)+3, span) &^ 3
	var t []uint64
	if free := p[size/4]; len(free) > 0 {
		t = free[len(free)-1]
		p[size/4] = free[:len(free)-1]
	} else {
		t = make([]uint64, size)
	}
	t = t[:i+1]
	clear(t[copy(t, s):])
	p.put(s)
	return t
}

// put takes an array that nobody uses any more.
func (p *spare) put(s []uint64) {
	if c := cap(s); c > 0 && c%4 == 0 && len(p[c/4]) < maxSpare {
		p[c/4] = append(p[c/4], s[:0])
	}
}

func (h *hold) nameOf(bit uint32) (hash, sum uint64) {
	i := h.at(bit)
	if int(i) < len(h.sums) {
		sum = h.sums[i]
	}
	return h.hashes[i], sum
}

// resident has the bits that are resident by any hash.
func (h *hold) resident() uint64 {
	m := h.own
	for a := h.alias; a != nil; a = a.alias {
		m |= a.own
	}
	return m
}

// main returns the first hold of h's chain.
func (h *hold) main() *hold {
	if h.head != nil {
		return h.head
	}
	return h
}

// publish shows readers the resident blocks; h is a main hold.
func (h *hold) publish() {
	h.node.holders.Load().at(h.place).mask.Store(h.resident())
}

// layer returns the bits of one layer.
func (h *hold) layer(i int) uint64 {
	if a := h.aux.Load(); a != nil && i < len(a.layers) {
		return a.layers[i].Load()
	}
	return 0
}

// mark sets or clears a bit of a layer.
func (h *hold) mark(i int, bit uint32, on bool) {
	a := h.aux.Load()
	if a == nil || i >= len(a.layers) {
		if !on {
			return
		}
		b := &aux{layers: make([]atomic.Uint64, len(h.target.layers))}
		if a != nil {
			for j := range a.layers {
				b.layers[j].Store(a.layers[j].Load())
			}
		}
		h.aux.Store(b)
		a = b
	}
	m := a.layers[i].Load() &^ (1 << bit)
	if on {
		m |= 1 << bit
	}
	a.layers[i].Store(m)
}

// useful says whether the block at bit is resident in any medium.
func (h *hold) useful(bit uint32) bool {
	return h.own>>bit&1 != 0 || h.target.anyTier && h.tiered(bit)
}

// tiered says whether the block at bit is resident in a medium that is not the device.
func (h *hold) tiered(bit uint32) bool {
	m := h.main()
	for _, i := range h.target.tier {
		if i >= 0 && m.layer(i)>>bit&1 != 0 {
			return true
		}
	}
	return false
}

// empty says whether a main hold knows nothing and has none below.
func (h *hold) empty() bool {
	for a := h; a != nil; a = a.alias {
		if a.known != 0 {
			return false
		}
	}
	return h.kids == 0
}

// deepest returns the highest bit of a word that is not 0.
func deepest(m uint64) uint32 { return uint32(63 - bits.LeadingZeros64(m)) }

// lowest returns the lowest bit of a word that is not 0.
func lowest(m uint64) uint32 { return uint32(bits.TrailingZeros64(m)) }

// holdList is a list of holds, the oldest first.
type holdList struct {
	first, last *hold
	n           int
}

func (l *holdList) push(h *hold) {
	l.insert(h, l.last)
	h.placed = h.used
}

// insert puts h behind after, or first if that is nil.
func (l *holdList) insert(h, after *hold) {
	h.list, h.prev = l, after
	if after == nil {
		h.next, l.first = l.first, h
	} else {
		h.next, after.next = after.next, h
	}
	if h.next == nil {
		l.last = h
	} else {
		h.next.prev = h
	}
	l.n++
}

// take takes h out of the list that it is in.
func (h *hold) take() {
	l := h.list
	if l == nil {
		return
	}
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next, h.list = nil, nil, nil
	l.n--
}
