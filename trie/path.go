package trie

// maxPath is how many nodes a text may pass. Each costs a Match about as much as comparing a
// kilobyte, and texts that each are a byte longer than the one before would make one of every byte.
// A conversation of a thousand turns stays below it.
const maxPath = 1024

// shortened is how many prompts one write drops at most because a path is too long.
const shortened = 64

// shorten drops prompts along a path that a Match or an Insert found too long, so that its nodes
// can be joined: those that end on it above its end, and at its branches those of the other
// branches. A target that holds the end of the path keeps all of it.
func (t *Trie) shorten() {
	last := t.long.Load()
	if last == 0 {
		return
	}
	// It may have been released since, and used again: then it is another path.
	count := 0
	for n := last; n != 0 && t.nodes.at(n).size != 0 && count <= maxPath; n = t.nodes.at(n).parent {
		count++
	}
	if count <= maxPath {
		t.long.Store(0)
		return
	}
	below := last
	for range shortened {
		n := t.nodes.at(below).parent
		nd := t.nodes.at(n)
		if nd.size == 0 { // the root
			return
		}
		parent := nd.parent
		p := t.endAt(n, nd)
		for k := nd.kid; k != 0 && p == 0; k = t.nodes.at(k).right {
			if k != below {
				p = t.endBelow(k)
			}
		}
		if p != 0 {
			t.evict++
			t.drop(p)
		}
		if t.nodes.at(below).parent == n { // there is more to drop, or it ends at a window
			below = n
		} else if parent == 0 {
			return
		}
	}
}

// endAt returns a prompt that ends at n, 0 for none.
func (t *Trie) endAt(n uint32, nd *node) uint32 {
	if nd.ends == 0 {
		return 0
	}
	t.slotsOf = t.holdersOf(nd, t.slotsOf[:0])
	for _, s := range t.slotsOf {
		if p := t.ends[endKey(n, s)]; p != 0 {
			return p
		}
	}
	return 0
}

// endBelow returns a prompt that ends at n or below it; each leaf has one.
func (t *Trie) endBelow(n uint32) uint32 {
	for n != 0 {
		nd := t.nodes.at(n)
		if p := t.endAt(n, nd); p != 0 {
			return p
		}
		n = nd.kid
	}
	return 0
}
