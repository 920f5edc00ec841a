package trie

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/warmroute/router/internal/sharers"
)

// oracle is the trie as one would write it without caring for speed: a list of
// prompts, and every figure computed from it each time.
type oracle struct {
	maxNodes, maxBytes, maxMany int

	prompts []entry // the least recently inserted first
	evicted int
}

type entry struct {
	scope, text, id string
	count           int
}

func (o *oracle) index(scope, text, id string) int {
	return slices.IndexFunc(o.prompts, func(e entry) bool { return e.scope == scope && e.text == text && e.id == id })
}

func (o *oracle) insert(scope, text, id string) {
	if text == "" || len(text) > o.maxBytes {
		return
	}
	e := entry{scope, text, id, 1}
	if i := o.index(scope, text, id); i >= 0 {
		e.count += o.prompts[i].count
		o.prompts = slices.Delete(o.prompts, i, i+1)
	}
	o.prompts = append(o.prompts, e)
	o.bound(id)
}

// bound evicts as keepBounds does: the target that was written for, the others in
// the order of their IDs, then all.
func (o *oracle) bound(id string) {
	o.trim(id)
	for _, other := range o.ids() {
		o.trim(other)
	}
	for o.bytes() > o.maxBytes || o.nodes()+o.scopes() > o.maxMany || len(o.prompts) > o.maxMany {
		o.prompts = o.prompts[1:]
		o.evicted++
	}
}

func (o *oracle) trim(id string) {
	for o.nodesOf(id) > o.maxNodes {
		i := slices.IndexFunc(o.prompts, func(e entry) bool { return e.id == id })
		o.prompts = slices.Delete(o.prompts, i, i+1)
		o.evicted++
	}
}

func (o *oracle) remove(scope, text, id string) {
	if i := o.index(scope, text, id); i >= 0 {
		if o.prompts[i].count--; o.prompts[i].count == 0 {
			o.prompts = slices.Delete(o.prompts, i, i+1)
		}
	}
}

func (o *oracle) forget(id string) {
	o.prompts = slices.DeleteFunc(o.prompts, func(e entry) bool { return e.id == id })
}

func (o *oracle) match(scope, text, id string) int {
	best := 0
	for _, e := range o.prompts {
		if e.scope == scope && e.id == id {
			n := 0
			for n < len(text) && n < len(e.text) && text[n] == e.text[n] {
				n++
			}
			best = max(best, n)
		}
	}
	return best
}

// shared returns how many leading bytes of text at least n prompts have.
func (o *oracle) shared(scope, text string, n int) int {
	for k := len(text); k > 0; k-- {
		count := 0
		for _, e := range o.prompts {
			if e.scope == scope && strings.HasPrefix(e.text, text[:k]) {
				count++
			}
		}
		if count >= n {
			return k
		}
	}
	return 0
}

func (o *oracle) warmed(id string) int {
	n := 0
	for _, e := range o.prompts {
		if e.id == id {
			n++
		}
	}
	return n
}

func (o *oracle) ids() []string {
	var ids []string
	for _, e := range o.prompts {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (o *oracle) scopes() int {
	m := map[string]bool{}
	for _, e := range o.prompts {
		m[e.scope] = true
	}
	return len(m)
}

// prefixes returns every prefix of every prompt, by scope, with the bytes that
// follow it.
func (o *oracle) prefixes() map[[2]string]map[byte]bool {
	m := map[[2]string]map[byte]bool{}
	for _, e := range o.prompts {
		for i := 0; i <= len(e.text); i++ {
			k := [2]string{e.scope, e.text[:i]}
			if m[k] == nil {
				m[k] = map[byte]bool{}
			}
			if i < len(e.text) {
				m[k][e.text[i]] = true
			}
		}
	}
	return m
}

func (o *oracle) bytes() int { return len(o.prefixes()) - o.scopes() }

// bounds returns the texts that end at the end of a node.
func (o *oracle) bounds() map[[2]string]bool {
	out := map[[2]string]bool{}
	for k, next := range o.prefixes() {
		if k[1] != "" && (len(next) > 1 || len(k[1])%window == 0) {
			out[k] = true
		}
	}
	for _, e := range o.prompts {
		out[[2]string{e.scope, e.text}] = true
	}
	return out
}

func (o *oracle) nodes() int { return len(o.bounds()) }

func (o *oracle) nodesOf(id string) int {
	n := 0
	for k := range o.bounds() {
		if slices.ContainsFunc(o.prompts, func(e entry) bool {
			return e.id == id && e.scope == k[0] && strings.HasPrefix(e.text, k[1])
		}) {
			n++
		}
	}
	return n
}

// verify holds every part of the trie against every other.
func (t *Trie) verify(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes, bytes, ends, several := 0, 0, 0, 0
	perSlot, bytesOf := make([]int, len(t.slots)), make([]int, len(t.slots))
	live := make([]uint32, len(t.text.segs))
	var walk func(n uint32, depth int) (below int)
	walk = func(n uint32, depth int) (below int) {
		nd := t.nodes.at(n)
		depth += int(nd.size)
		held := t.holdersOf(nd, nil)
		if nd.size > 0 {
			nodes++
			bytes += int(nd.size)
			live[nd.seg] += nd.size
			ends += int(nd.ends)
			if len(held) != int(nd.holders) || len(held) == 0 {
				tb.Fatalf("node %d: %d holders counted, %d held", n, nd.holders, len(held))
			}
			if t.run(nd)[0] != nd.first {
				tb.Fatalf("node %d: first byte is off", n)
			}
			only := nd.kid != 0 && t.nodes.at(nd.kid).right == 0
			if nd.ends == 0 && (nd.kid == 0 || only && depth%window != 0) {
				tb.Fatalf("node %d at depth %d has no reason to end there", n, depth)
			}
			if (depth-int(nd.size))/window != (depth-1)/window {
				tb.Fatalf("node %d crosses a window", n)
			}
			for _, s := range held {
				perSlot[s]++
				bytesOf[s] += int(nd.size)
				if t.ends[endKey(n, s)] == 0 && !t.kidHolds(nd, s) {
					tb.Fatalf("node %d is held by slot %d for nothing", n, s)
				}
			}
		}
		kids := 0
		for k := nd.kid; k != 0; k = t.nodes.at(k).right {
			kids++
			if t.nodes.at(k).parent != n {
				tb.Fatalf("node %d: wrong parent", k)
			}
			if got := t.child(n, t.nodes.at(k).first); got != k {
				tb.Fatalf("node %d: child is %d, not %d", n, got, k)
			}
			if nd.size > 0 {
				for _, s := range t.holdersOf(t.nodes.at(k), nil) {
					if !t.holds(nd, s) {
						tb.Fatalf("slot %d holds node %d and not its parent", s, k)
					}
				}
			}
			below += walk(k, depth)
		}
		if kids > 1 {
			several += kids
		}
		if below += int(nd.ends); int(nd.below) != below {
			tb.Fatalf("node %d: %d prompts below, counted %d", n, below, nd.below)
		}
		return below
	}
	for scope, r := range t.roots {
		if t.scopes[r] != scope || t.nodes.at(r).kid == 0 {
			tb.Fatalf("root of %q is off", scope)
		}
		walk(r, 0)
	}
	if nodes+len(t.roots) != t.nodes.used || bytes != t.bytes || ends != t.prompts.used || several != len(t.kids) ||
		ends != len(t.ends) {
		tb.Fatalf("found %d nodes, %d bytes, %d ends, %d in the map; counted %d, %d, %d, %d", nodes, bytes, ends, several,
			t.nodes.used-len(t.roots), t.bytes, t.prompts.used, len(t.kids))
	}
	for s, n := range perSlot {
		if t.slots[s].nodes != n || t.slots[s].bytes != bytesOf[s] {
			tb.Fatalf("slot %d: %d nodes and %d bytes, counted %d and %d", s, n, bytesOf[s], t.slots[s].nodes, t.slots[s].bytes)
		}
	}
	used := 0
	for i, s := range t.text.segs {
		if live[i] != s.live {
			tb.Fatalf("segment %d: %d alive, counted %d", i, live[i], s.live)
		}
		used += int(s.used)
		sum := uint32(0)
		for n := s.head; n != 0; n = t.nodes.at(n).segNext {
			sum += t.nodes.at(n).size
		}
		if sum != s.live {
			tb.Fatalf("segment %d: %d listed, %d alive", i, sum, s.live)
		}
	}
	if t.text.live != bytes || t.text.used != used {
		tb.Fatalf("texts: %d alive of %d, counted %d of %d", bytes, used, t.text.live, t.text.used)
	}
}

// compare holds t against o.
func (o *oracle) compare(tb testing.TB, t *Trie, texts []string) {
	tb.Helper()
	t.verify(tb)
	ids := append(o.ids(), "nobody", "a", "b", "a")
	for _, scope := range []string{"", "m"} {
		for _, text := range texts {
			got := t.Match(scope, text, ids, nil)
			for i, id := range ids {
				if want := o.match(scope, text, id); got[i] != want {
					tb.Fatalf("Match(%q, %q)[%s] = %d, want %d; prompts %v", scope, short(text), id, got[i], want, o.prompts)
				}
			}
		}
	}
	if len(t.dead) == 0 { // else what is not swept yet counts
		for i, text := range texts {
			n := 1 + i%3
			want := o.shared("m", text, n)
			for _, ids := range [][]string{ids, nil} {
				if _, got := t.MatchShared("m", text, ids, nil, sharers.Count{Prompts: uint32(n)}); got != want {
					tb.Fatalf("MatchShared(%q, %d) = %d, want %d; prompts %v", short(text), n, got, want, o.prompts)
				}
			}
		}
	}
	warmed := t.Warmed(ids, nil)
	for i, id := range ids {
		if want := o.warmed(id); warmed[i] != want {
			tb.Fatalf("Warmed[%s] = %d, want %d", id, warmed[i], want)
		}
		if s, ok := t.ids[id]; ok && t.slots[s].nodes != o.nodesOf(id) {
			tb.Fatalf("%s holds %d nodes, want %d", id, t.slots[s].nodes, o.nodesOf(id))
		}
	}
	want := Stats{Nodes: o.nodes(), Bytes: o.bytes(), Prompts: len(o.prompts), Evicted: o.evicted}
	if got := t.Stats(); got != want {
		tb.Fatalf("Stats = %+v, want %+v; prompts %v", got, want, o.prompts)
	}
}

func short(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%s... (%d)", s[:40], len(s))
	}
	return s
}

// play runs a program of random bytes against both.
func play(tb testing.TB, program []byte) {
	if len(program) < 3 {
		return
	}
	o := &oracle{maxNodes: 3 + int(program[0]%30), maxBytes: 4 + int(program[1]), maxMany: 6 + int(program[2]%40)}
	t, err := New(Config{MaxNodes: o.maxNodes, MaxBytes: o.maxBytes})
	if err != nil {
		tb.Fatal(err)
	}
	t.maxMany = o.maxMany
	targets := 3
	if program[0]&64 != 0 { // more than a node holds by itself
		targets = 200
		o.maxBytes, o.maxMany = o.maxBytes*8, o.maxMany*8
		t.cfg.MaxBytes, t.maxMany = o.maxBytes, o.maxMany
	}
	if program[0]&128 != 0 { // texts move about
		t.text = texts{first: 16, most: 64, slack: 8}
	}
	if program[2]%3 != 0 { // one bound at a time, mostly, or two never bite
		t.cfg.MaxNodes, o.maxNodes = 1000, 1000
	}
	var texts []string
	for program = program[3:]; len(program) >= 4; {
		op, n, who := program[0], int(program[1]%12), program[2]
		program = program[3:]
		n = min(n, len(program))
		raw := program[:n]
		program = program[n:]
		b := make([]byte, 0, n*3)
		for _, c := range raw { // few letters, some of them many times over: shared prefixes and long runs
			b = append(b, strings.Repeat(string("ab\x00\xff"[c%4]), 1+int(c>>2%8))...)
		}
		if targets > 3 {
			b = b[:min(len(b), 3)]
		}
		text := string(b)
		if k := int(who >> 2); n < 5 && k < len(texts) { // one that was there, or its beginning
			text = texts[k]
			text = text[:len(text)-min(n, len(text))]
		}
		id := string(rune('a' + int(who)%targets))
		scope := []string{"", "m"}[op>>5%2]
		if len(o.prompts) > 0 && (op%8 == 4 || op%8 == 5) { // again, or back
			e := o.prompts[int(who)%len(o.prompts)]
			scope, text, id = e.scope, e.text, e.id
		}
		switch op % 8 {
		case 0, 1, 2, 3, 4:
			t.Insert(scope, text, id)
			o.insert(scope, text, id)
		case 5, 6:
			t.Remove(scope, text, id)
			o.remove(scope, text, id)
		case 7:
			t.Forget(id)
			o.forget(id)
		}
		if dead := t.text.used - t.text.live; op%8 < 5 && text != "" && len(text) <= o.maxBytes && dead > t.text.live/4+
			t.text.slack+t.text.most {
			tb.Fatalf("%d bytes lie dead beside %d", dead, t.text.live)
		}
		texts = append(texts, text)
		if len(texts) > 24 {
			texts = texts[1:]
		}
		if targets == 3 || len(program)%8 == 0 {
			o.compare(tb, t, texts[max(0, len(texts)-1200/(targets+47)):])
		}
	}
}

func FuzzTrie(f *testing.F) {
	f.Add([]byte("\x10\xff\x01\x00\x05abcde\x04\x06abcdef\x20\x03abc\x07\x00"))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 1500 {
			program = program[:1500]
		}
		play(t, program)
	})
}

func TestHeaderSize(t *testing.T) {
	if got := unsafe.Sizeof(node{}); got > 64 {
		t.Errorf("a node takes %d bytes; it should fit a cache line", got)
	}
	if got := unsafe.Sizeof(prompt{}); got > 40 {
		t.Errorf("a prompt takes %d bytes, more than 40", got)
	}
}
