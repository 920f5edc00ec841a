package trie

import (
	"unsafe"

	"github.com/warmroute/router/internal/prefix"
)

// node is a run of text below a parent. A root, one for each scope, has none.
// holders counts, held lists or names who holds it (holders.go); every holder has
// a prompt that ends here or further down.
type node struct {
	seg, off, size  uint32 // the run: size bytes at off of segment seg
	parent          uint32
	kid             uint32 // first child
	right, left     uint32 // siblings
	ends            uint32 // prompts that end here
	below           uint32 // prompts that end here or below
	segNext, segPre uint32 // nodes with a run in the same segment
	held            [inline]uint16
	holders         uint16
	first           byte // of the run
	wide            bool
}

func kidKey(parent uint32, first byte) uint64 { return uint64(parent)<<8 | uint64(first) }

// run returns the node's text. It is valid until the next write.
func (t *Trie) run(nd *node) string {
	return unsafe.String(&t.text.segs[nd.seg].buf[nd.off], int(nd.size))
}

// child returns the child of n with a run that begins with first, 0 for none.
// An only child, as most are, is found without the map.
func (t *Trie) child(n uint32, first byte) uint32 {
	kid := t.nodes.at(n).kid
	if kid == 0 {
		return 0
	}
	k := t.nodes.at(kid)
	if k.first == first {
		return kid
	}
	if k.right == 0 {
		return 0
	}
	return t.kids[kidKey(n, first)]
}

// find returns the node that ends exactly at the end of text, 0 for none.
func (t *Trie) find(root uint32, text string) uint32 {
	n := root
	for n != 0 && text != "" {
		if n = t.child(n, text[0]); n == 0 {
			break
		}
		run := t.run(t.nodes.at(n))
		if len(run) > len(text) || run != text[:len(run)] {
			return 0
		}
		text = text[len(run):]
	}
	return n
}

// put makes slot s a holder of all of text and returns the node at its end, how much of the text s had before, and the
// node at the end of that.
func (t *Trie) put(root uint32, text string, s uint16) (n uint32, had int, hadAt uint32) {
	n, depth, nodes := root, 0, 0
	for depth < len(text) {
		rest := text[depth:]
		c := t.child(n, rest[0])
		if c == 0 {
			rest = rest[:min(len(rest), window-depth%window)]
			c = t.grow(n, rest)
		} else if k := prefix.Common(t.run(t.nodes.at(c)), rest); k < int(t.nodes.at(c).size) {
			c = t.split(c, k)
		}
		nd := t.nodes.at(c)
		if !t.holds(nd, s) {
			t.hold(nd, s)
			t.slots[s].nodes++
			t.slots[s].bytes += int(nd.size)
		} else {
			had, hadAt = depth+int(nd.size), c
		}
		depth += int(nd.size)
		n = c
		nodes++
	}
	if nodes > maxPath {
		t.long.Store(n)
	}
	return n, had, hadAt
}

// grow adds a child with a copy of run to parent, held by nobody yet.
func (t *Trie) grow(parent uint32, run string) uint32 {
	c, nd := t.nodes.alloc()
	nd.seg, nd.off = t.text.alloc(len(run))
	nd.size, nd.first = uint32(len(run)), run[0]
	copy(t.text.bytes(nd), run)
	t.text.link(&t.nodes, c, nd)
	t.adopt(parent, c, nd)
	t.bytes += len(run)
	return c
}

// split cuts the run of c after k bytes and returns the new node above it. c
// stays the lower part, so that data kept by its index (children, prompts) does
// not change.
func (t *Trie) split(c uint32, k int) uint32 {
	nd := t.nodes.at(c)
	u, up := t.nodes.alloc()
	up.seg, up.off, up.size, up.first, up.below = nd.seg, nd.off, uint32(k), nd.first, nd.below
	t.text.link(&t.nodes, u, up)
	t.copyHolders(up, nd)
	t.scratch = t.holdersOf(up, t.scratch[:0])
	for _, s := range t.scratch {
		t.slots[s].nodes++
		if t.slots[s].nodes > t.cfg.MaxNodes {
			t.over = append(t.over, s)
		}
	}
	t.replace(nd, u, up)
	nd.off += uint32(k)
	nd.size -= uint32(k)
	nd.first = t.text.bytes(nd)[0]
	nd.left, nd.right = 0, 0
	t.adopt(u, c, nd)
	return u
}

// merge joins u, at which nothing ends and nothing branches, with its only
// child, which stays.
func (t *Trie) merge(u uint32, up *node) {
	c := up.kid
	nd := t.nodes.at(c)
	t.scratch = t.holdersOf(up, t.scratch[:0])
	for _, s := range t.scratch {
		t.slots[s].nodes--
	}
	t.text.unlink(&t.nodes, up)
	t.text.unlink(&t.nodes, nd)
	if up.seg == nd.seg && up.off+up.size == nd.off {
		nd.off = up.off
	} else {
		seg, off := t.text.alloc(int(up.size + nd.size))
		dst := t.text.segs[seg].buf[off:]
		copy(dst, t.text.bytes(up))
		copy(dst[up.size:], t.text.bytes(nd))
		t.text.release(up.seg, up.size)
		t.text.release(nd.seg, nd.size)
		nd.seg, nd.off = seg, off
	}
	nd.size += up.size
	nd.first = up.first
	t.text.link(&t.nodes, c, nd)
	t.replace(up, c, nd)
	t.discard(u, up)
}

// adopt makes c a child of parent. Children are in the map if there are
// several.
func (t *Trie) adopt(parent, c uint32, nd *node) {
	p := t.nodes.at(parent)
	nd.parent = parent
	if k := p.kid; k != 0 {
		kid := t.nodes.at(k)
		if kid.right == 0 {
			t.kids[kidKey(parent, kid.first)] = k
		}
		t.kids[kidKey(parent, nd.first)] = c
		kid.left, nd.right = c, k
	}
	p.kid = c
}

// orphan takes nd from among its siblings.
func (t *Trie) orphan(nd *node) {
	p := t.nodes.at(nd.parent)
	if nd.left == 0 && nd.right == 0 {
		p.kid = 0
		return
	}
	delete(t.kids, kidKey(nd.parent, nd.first))
	if nd.left != 0 {
		t.nodes.at(nd.left).right = nd.right
	} else {
		p.kid = nd.right
	}
	if nd.right != 0 {
		t.nodes.at(nd.right).left = nd.left
	}
	if only := t.nodes.at(p.kid); only.right == 0 {
		delete(t.kids, kidKey(nd.parent, only.first))
	}
}

// replace puts u, with a run that begins with the same byte, in the place of old
// among its siblings.
func (t *Trie) replace(old *node, u uint32, up *node) {
	up.parent, up.left, up.right = old.parent, old.left, old.right
	if up.left != 0 {
		t.nodes.at(up.left).right = u
	} else {
		t.nodes.at(up.parent).kid = u
	}
	if up.right != 0 {
		t.nodes.at(up.right).left = u
	}
	if up.left != 0 || up.right != 0 {
		t.kids[kidKey(up.parent, up.first)] = u
	}
}

// discard releases a node that has no run and no place any more.
func (t *Trie) discard(n uint32, nd *node) {
	if nd.wide {
		t.freeBits(nd)
	}
	t.nodes.release(n)
}

// let removes slot s, with one prompt less that ends at n, from n and all above
// it that it no longer holds, and restores the shape. depth is that of the end
// of n.
func (t *Trie) let(n uint32, s uint16, depth int) {
	for {
		nd := t.nodes.at(n)
		if nd.size == 0 { // the root
			if nd.kid == 0 {
				delete(t.roots, t.scopes[n])
				delete(t.scopes, n)
				t.nodes.release(n)
			}
			return
		}
		stays := t.ends[endKey(n, s)] != 0 || t.kidHolds(nd, s)
		if !stays {
			t.unhold(nd, s)
			t.slots[s].nodes--
			t.slots[s].bytes -= int(nd.size)
		}
		parent, above := nd.parent, depth-int(nd.size)
		switch {
		case nd.holders == 0:
			t.orphan(nd)
			t.text.unlink(&t.nodes, nd)
			t.text.release(nd.seg, nd.size)
			t.bytes -= int(nd.size)
			t.discard(n, nd)
		case nd.ends == 0 && t.nodes.at(nd.kid).right == 0 && depth%window != 0:
			t.merge(n, nd)
		}
		if stays {
			return
		}
		n, depth = parent, above
	}
}

func (t *Trie) kidHolds(nd *node, s uint16) bool {
	for k := nd.kid; k != 0; {
		kid := t.nodes.at(k)
		if t.holds(kid, s) {
			return true
		}
		k = kid.right
	}
	return false
}
