package trie

import (
	"slices"
	"strings"
)

// prompt is one recorded (text, target) pair. It stands in two lists, that of its
// target and that of all.
type prompt struct {
	seq   uint64 // of its last insert
	node  uint32 // the node at which its text ends
	size  uint32 // of its text
	count uint32 // inserts that were not taken back
	slot  uint16
	all   links
	own   links
}

type links struct{ prev, next uint32 }

type list struct{ oldest, newest uint32 }

func endKey(n uint32, s uint16) uint64 { return uint64(n)<<16 | uint64(s) }

// record adds a prompt of slot s that ends at n.
func (t *Trie) record(n uint32, s uint16, size int) {
	p, pr := t.prompts.alloc()
	pr.node, pr.slot, pr.size, pr.count = n, s, uint32(size), 1
	t.ends[endKey(n, s)] = p
	t.nodes.at(n).ends++
	for ; n != 0; n = t.nodes.at(n).parent {
		t.nodes.at(n).below++
	}
	t.slots[s].prompts++
	t.enlist(p)
}

// drop forgets a prompt and the text that only it has.
func (t *Trie) drop(p uint32) {
	pr := *t.prompts.at(p)
	t.unlist(p)
	delete(t.ends, endKey(pr.node, pr.slot))
	t.nodes.at(pr.node).ends--
	for n := pr.node; n != 0; n = t.nodes.at(n).parent {
		t.nodes.at(n).below--
	}
	t.slots[pr.slot].prompts--
	t.prompts.release(p)
	t.let(pr.node, pr.slot, int(pr.size))
}

func allLinks(pr *prompt) *links { return &pr.all }
func ownLinks(pr *prompt) *links { return &pr.own }

func (t *Trie) enlist(p uint32) {
	t.seq++
	t.prompts.at(p).seq = t.seq
	t.push(&t.all, p, allLinks)
	t.push(&t.slots[t.prompts.at(p).slot].list, p, ownLinks)
}

func (t *Trie) unlist(p uint32) {
	t.pull(&t.all, p, allLinks)
	t.pull(&t.slots[t.prompts.at(p).slot].list, p, ownLinks)
}

func (t *Trie) push(l *list, p uint32, of func(*prompt) *links) {
	*of(t.prompts.at(p)) = links{prev: l.newest}
	if l.newest != 0 {
		of(t.prompts.at(l.newest)).next = p
	} else {
		l.oldest = p
	}
	l.newest = p
}

func (t *Trie) pull(l *list, p uint32, of func(*prompt) *links) {
	k := *of(t.prompts.at(p))
	if k.prev != 0 {
		of(t.prompts.at(k.prev)).next = k.next
	} else {
		l.oldest = k.next
	}
	if k.next != 0 {
		of(t.prompts.at(k.next)).prev = k.prev
	} else {
		l.newest = k.prev
	}
}

// keepBounds evicts until every bound holds: first those of the target that was
// written for and of those that a split touched, then those of all together, for
// which the forgotten targets go first.
func (t *Trie) keepBounds(s uint16) {
	t.trim(s)
	if len(t.over) > 0 { // by ID, so that the same history ends the same whatever the slots
		slices.SortFunc(t.over, func(a, b uint16) int { return strings.Compare(t.slots[a].id, t.slots[b].id) })
		for _, o := range t.over {
			t.trim(o)
		}
		t.over = t.over[:0]
	}
	for t.bytes > t.cfg.MaxBytes || t.nodes.used > t.maxMany || t.prompts.used > t.maxMany {
		if !t.sweep(1) {
			t.evictOldest(&t.all)
		}
	}
}

func (t *Trie) trim(s uint16) {
	for t.slots[s].nodes > t.cfg.MaxNodes {
		t.evictOldest(&t.slots[s].list)
	}
	t.keepLimit(s)
}

func (t *Trie) evictOldest(l *list) {
	t.evict++
	t.drop(l.oldest)
}

// sweep drops up to n prompts of forgotten targets and reports whether there was
// one.
func (t *Trie) sweep(n int) bool {
	swept := false
	for len(t.dead) > 0 {
		s := t.dead[len(t.dead)-1]
		// The newest first: a prompt is dropped before the one that it extends, so
		// that nothing is joined only to be dropped.
		p := t.slots[s].list.newest
		if p == 0 {
			t.dead = t.dead[:len(t.dead)-1]
			t.vacant = append(t.vacant, s)
			continue
		}
		if n == 0 {
			break
		}
		t.drop(p)
		swept = true
		n--
	}
	return swept
}

// maintain does a share of the work that was put off, in proportion to a write of
// n bytes.
func (t *Trie) maintain(n int) {
	t.sweep(16)
	t.shorten()
	t.text.compact(&t.nodes, 4*n+32<<10)
}

// slotOf returns the slot of id, a new one if it has none; false if there are
// too many.
func (t *Trie) slotOf(id string) (uint16, bool) {
	if s, ok := t.ids[id]; ok {
		return s, true
	}
	if len(t.vacant) == 0 && len(t.slots) == maxSlots {
		for len(t.vacant) == 0 && t.sweep(1<<10) {
		}
		if len(t.vacant) == 0 {
			return 0, false
		}
	}
	var s uint16
	if k := len(t.vacant); k > 0 {
		s = t.vacant[k-1]
		t.vacant = t.vacant[:k-1]
	} else {
		s = uint16(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	t.ids[id] = s
	t.slots[s].id = id
	t.slots[s].limit, t.slots[s].lost = 0, 0
	t.gen++
	return s, true
}

// rootOf returns the root of scope, a new one if it has none.
func (t *Trie) rootOf(scope string) uint32 {
	if r := t.roots[scope]; r != 0 {
		return r
	}
	r, _ := t.nodes.alloc()
	t.roots[scope] = r
	t.scopes[r] = scope
	return r
}
