package trie

import (
	"math/bits"
	"slices"
)

// A node's holders are slots: up to inline of them in the node itself, more in a
// bit set of 64 << class bits.
const (
	inline  = 8
	classes = 11 // 64 << 10 bits hold maxSlots
)

// sets keeps the bit sets, by class.
type sets struct {
	words [classes][]*[8192]uint64
	free  [classes][]uint32
	next  [classes]uint32
}

func (s *sets) at(class int, i uint32) []uint64 {
	per := uint32(8192 >> class)
	w := s.words[class][i/per]
	at := int(i%per) << class
	return w[at : at+1<<class]
}

func (s *sets) alloc(class int) uint32 {
	if k := len(s.free[class]); k > 0 {
		i := s.free[class][k-1]
		s.free[class] = s.free[class][:k-1]
		return i
	}
	i := s.next[class]
	if i%uint32(8192>>class) == 0 {
		s.words[class] = append(s.words[class], new([8192]uint64))
	}
	s.next[class]++
	return i
}

func (s *sets) release(class int, i uint32) {
	clear(s.at(class, i))
	s.free[class] = append(s.free[class], i)
}

// bits returns the bit set of a node with more holders than fit the node.
func (t *Trie) bits(nd *node) []uint64 {
	return t.sets.at(int(nd.held[0]), uint32(nd.held[1])|uint32(nd.held[2])<<16)
}

func (nd *node) setBits(class int, i uint32) {
	nd.wide = true
	nd.held = [inline]uint16{uint16(class), uint16(i), uint16(i >> 16)}
}

func (t *Trie) freeBits(nd *node) {
	t.sets.release(int(nd.held[0]), uint32(nd.held[1])|uint32(nd.held[2])<<16)
	nd.wide = false
	nd.held = [inline]uint16{}
}

func (t *Trie) holds(nd *node, s uint16) bool {
	if nd.wide {
		w := t.bits(nd)
		return int(s/64) < len(w) && w[s/64]>>(s%64)&1 != 0
	}
	return slices.Contains(nd.held[:nd.holders], s)
}

// hold adds s, which nd does not hold yet.
func (t *Trie) hold(nd *node, s uint16) {
	if !nd.wide && nd.holders < inline {
		nd.held[nd.holders] = s
		nd.holders++
		return
	}
	if need := classOf(s); !nd.wide || need > int(nd.held[0]) {
		t.scratch = t.holdersOf(nd, t.scratch[:0])
		for _, h := range t.scratch {
			need = max(need, classOf(h))
		}
		if nd.wide {
			t.freeBits(nd)
		}
		nd.setBits(need, t.sets.alloc(need))
		w := t.bits(nd)
		for _, h := range t.scratch {
			w[h/64] |= 1 << (h % 64)
		}
	}
	t.bits(nd)[s/64] |= 1 << (s % 64)
	nd.holders++
}

// unhold takes s away, which nd holds.
func (t *Trie) unhold(nd *node, s uint16) {
	if !nd.wide {
		i := slices.Index(nd.held[:nd.holders], s)
		nd.holders--
		nd.held[i] = nd.held[nd.holders]
		return
	}
	t.bits(nd)[s/64] &^= 1 << (s % 64)
	nd.holders--
	if nd.holders <= inline/2 { // well below, so that one target's coming and going does not convert each time
		t.scratch = t.holdersOf(nd, t.scratch[:0])
		t.freeBits(nd)
		copy(nd.held[:], t.scratch)
	}
}

// copyHolders gives dst, which has none, the holders of src.
func (t *Trie) copyHolders(dst, src *node) {
	dst.holders = src.holders
	if !src.wide {
		dst.held = src.held
		return
	}
	class := int(src.held[0])
	dst.setBits(class, t.sets.alloc(class))
	copy(t.bits(dst), t.bits(src))
}

func (t *Trie) holdersOf(nd *node, dst []uint16) []uint16 {
	if !nd.wide {
		return append(dst, nd.held[:nd.holders]...)
	}
	for i, w := range t.bits(nd) {
		for ; w != 0; w &= w - 1 {
			dst = append(dst, uint16(i*64+bits.TrailingZeros64(w)))
		}
	}
	return dst
}

// emit sets cached to depth for each holder of nd that index asks for.
func (t *Trie) emit(nd *node, index []int32, cached []int, depth int) {
	if !nd.wide {
		for _, s := range nd.held[:nd.holders] {
			if i := at(index, int(s)); uint(i) < uint(len(cached)) {
				cached[i] = depth
			}
		}
		return
	}
	for j, w := range t.bits(nd) {
		for ; w != 0; w &= w - 1 {
			if i := at(index, j*64+bits.TrailingZeros64(w)); uint(i) < uint(len(cached)) {
				cached[i] = depth
			}
		}
	}
}

func at(index []int32, s int) int {
	if uint(s) < uint(len(index)) {
		return int(index[s])
	}
	return -1
}

func classOf(s uint16) int { return bits.Len16(s / 64) }
