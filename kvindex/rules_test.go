package kvindex

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
)

// rig applies events to targets, each in a message of its own.
type rig struct {
	t *testing.T
	x *Index
}

func newRig(t *testing.T, c Config) *rig { return &rig{t, newIndex(t, c)} }

func (g *rig) apply(id string, events ...Event) {
	g.t.Helper()
	seq := uint64(0)
	if last, ok := g.x.Last(id); ok {
		seq = last + 1
	}
	if err := g.x.Apply(id, seq, Batch{Events: events}); err != nil {
		g.t.Fatal(err)
	}
	check(g.t, g.x)
}

// holds compares what target a holds of a text of 4-token blocks, in blocks,
// with one token more than the text.
func (g *rig) holds(text string, want int, scope ...string) {
	g.t.Helper()
	g.holdsOf("a", text, want, scope...)
}

func (g *rig) holdsOf(id, text string, want int, scope ...string) {
	g.t.Helper()
	p := router.Prompt{Tokens: append(tokens(text), 9)}
	if len(scope) > 0 {
		p.Adapter = scope[0]
	}
	if len(scope) > 1 {
		p.Salt = scope[1]
	}
	got := g.x.Match(p, []string{id}, nil)[0]
	if got >= 0 {
		got /= 4
	}
	if got != want {
		g.t.Errorf("%s holds %d blocks of %s %q, want %d", id, got, text, scope, want)
	}
}

// tokens gives each letter of a text 4 tokens: a block.
func tokens(text string) []uint32 {
	var out []uint32
	for _, c := range text {
		out = append(out, uint32(c), 1, 2, uint32(c)*1000)
	}
	return out
}

// put stores the last n letters of a text; a block's hash is a number made of
// the text up to it.
func put(text string, n int) Event {
	e := Event{Kind: Stored, Group: -1, BlockSize: 4, Tokens: tokens(text[len(text)-n:])}
	for i := len(text) - n; i < len(text); i++ {
		e.Hashes = append(e.Hashes, hashed(text[:i+1]))
	}
	if n < len(text) {
		e.HasParent, e.Parent = true, hashed(text[:len(text)-n])
	}
	return e
}

func hashed(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

func drop(texts ...string) Event {
	e := Event{Kind: Removed, Group: -1}
	for _, t := range texts {
		e.Hashes = append(e.Hashes, hashed(t))
	}
	return e
}

func (e Event) with(f func(*Event)) Event {
	f(&e)
	return e
}

func TestPlain(t *testing.T) {
	g := newRig(t, Config{})
	g.holds("abc", -1)
	g.apply("a", put("abcd", 4))
	g.holds("abcd", 4)
	g.holds("abxd", 2)
	g.holds("", 0)
	g.holdsOf("b", "abcd", -1)
	g.apply("a", drop("ab"))
	g.holds("abcd", 1)
	g.apply("a", put("ab", 1))
	g.holds("abcd", 4)
	g.apply("a", Event{Kind: Cleared})
	g.holds("abcd", 0)
}

func TestUsableHit(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("abc", 3))
	for n, want := range map[int]int{0: 0, 1: 0, 4: 0, 5: 4, 8: 4, 9: 8, 12: 8, 13: 12} {
		p := router.Prompt{Tokens: append(tokens("abc"), 1, 2)[:n]}
		if got := g.x.Match(p, []string{"a"}, nil)[0]; got != want {
			t.Errorf("%d tokens: %d, want %d", n, got, want)
		}
	}
}

func TestTargetsAreApart(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("ab", 2))
	// The same hashes for other texts, of blocks of another size too.
	e := put("ab", 2)
	e.Tokens = tokens("xy")
	g.apply("b", e)
	e.Tokens, e.BlockSize = append(tokens("xy"), tokens("zw")...), 8
	g.apply("c", e)
	g.holds("ab", 2)
	g.holds("xy", 0)
	g.holdsOf("b", "ab", 0)
	g.holdsOf("b", "xyzw", 2)
	g.holdsOf("c", "xyzw", 4)
	g.apply("b", drop("ab"))
	g.apply("c", Event{Kind: Cleared})
	g.holds("ab", 2)
	g.holdsOf("b", "xy", 1)
	p := router.Prompt{Tokens: append(tokens("xyz"), 1)}
	got := g.x.Match(p, []string{"b", "a", "no", "c", "b"}, []int{7, 7, 7, 7, 7, 7})
	if diff := cmp.Diff([]int{4, 0, -1, 0, 4}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCopies(t *testing.T) {
	for _, set := range []bool{false, true} {
		g := newRig(t, Config{Set: set})
		g.apply("a", put("abcd", 4), put("ab", 1), put("ab", 1), put("abX", 1)) // a run is split
		for left := 2; left >= 0; left-- {
			g.apply("a", drop("ab"))
			want := 2
			if left == 0 || set {
				want = 1
			}
			g.holds("ab", want)
		}
		g.apply("a", drop("ab"), drop("never"), put("ab", 1)) // not below zero
		g.holds("ab", 2)
		g.apply("a", drop("ab"))
		g.holds("ab", 1)
	}
}

func TestCopiesThatAreTold(t *testing.T) {
	g := newRig(t, Config{Set: true})
	left := func(n uint64) Event { return drop("ab").with(func(e *Event) { e.Left = []uint64{n} }) }
	g.apply("a", put("ab", 2))
	g.apply("a", left(2))
	g.holds("ab", 2)
	g.apply("a", left(1))
	g.holds("ab", 2)
	g.apply("a", left(0))
	g.holds("ab", 1)
	// A block that had been there and is reported again is no new copy.
	g = newRig(t, Config{})
	again := put("ab", 2).with(func(e *Event) { e.Reused = true })
	g.apply("a", put("ab", 2), again, again, drop("ab"))
	g.holds("ab", 1)
}

func TestOrphans(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("abcd", 1), put("abc", 1), put("abX", 1))
	g.holds("abcd", 0)
	g.apply("a", drop("abX"))
	g.apply("a", put("ab", 2)) // where "c" and "X" belong is known now, and so where "d" does
	g.holds("abcd", 4)
	g.holds("abX", 2)
	s, _ := g.x.Target("a")
	if s.Orphaned != 3 || s.Adopted != 3 || s.Orphans != 0 {
		t.Errorf("%+v", s)
	}
	// One that follows itself.
	e := put("r", 1)
	e.HasParent, e.Parent = true, e.Hashes[0]
	g.apply("a", e, e, put("r", 1), e)
	g.apply("a", Event{Kind: Cleared}, put("abc", 1), Event{Kind: Cleared}, put("ab", 2))
	g.holds("abc", 2)
}

func TestOrphansAreBounded(t *testing.T) {
	g := newRig(t, Config{MaxOrphans: 3})
	g.apply("a", put("ab", 1), put("ac", 1), put("xyz", 1), put("ad", 1))
	g.apply("a", put("1234567", 5)) // too many at once
	g.apply("a", put("a", 1), put("xy", 2))
	g.holds("ab", 1)
	g.holds("ac", 2)
	g.holds("ad", 2)
	g.holds("xyz", 3)
	s, _ := g.x.Target("a")
	if s.OrphansDropped != 6 || s.Adopted != 3 {
		t.Errorf("%+v", s)
	}
}

func TestParentsThatSeemedGone(t *testing.T) {
	g := newRig(t, Config{})
	long := strings.Repeat("abcdefgh", 20) // several runs
	g.apply("a", put(long, len(long)))
	g.apply("a", drop(long[:3], long[:64], long[:65], long[:130], long))
	g.holds(long, 2)
	g.apply("a", put(long+"!", 1)) // follows the last, so all are there
	g.holds(long+"!", len(long)+1)
	s, _ := g.x.Target("a")
	if s.Healed != 5 {
		t.Errorf("%d healed, want 5", s.Healed)
	}
	g.apply("a", drop(long[:3]))
	g.holds(long, 2)
	g.apply("a", put(long[:3]+"?", 1)) // another branch
	g.holds(long[:3]+"?", 4)
	g.holds(long, len(long))
}

func TestScopes(t *testing.T) {
	g := newRig(t, Config{})
	in := func(adapter, salt string, hash uint64) Event {
		return put("ab", 2).with(func(e *Event) {
			e.Adapter, e.Salt, e.Hashes = adapter, salt, []uint64{hash, hash + 1}
		})
	}
	g.apply("a", in("xy", "z", 10), in("", "xyz", 20), in("lora", "", 30))
	for scope, want := range map[[2]string]int{
		{"xy", "z"}: 2, {"x", "yz"}: 0, {"xyz", ""}: 0, {"", "xyz"}: 2, {"lora", ""}: 2, {"", ""}: 0, {"", "lora"}: 0,
	} {
		g.holds("ab", want, scope[0], scope[1])
	}
	// What follows is of its parent's scope, whatever it says.
	child := Event{Kind: Stored, Group: -1, BlockSize: 4, Tokens: tokens("c"), Hashes: []uint64{12}, HasParent: true,
		Parent: 11}
	g.apply("a", child)
	g.holds("abc", 3, "xy", "z")
	g.holds("abc", 0)
}

func TestExtraKeys(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("ab", 2).with(func(e *Event) { e.Extra = []uint64{0, 7} }))
	g.holds("ab", 1)
	g.apply("a", put("ab", 1).with(func(e *Event) { e.Hashes = []uint64{5} }))
	g.holds("ab", 2)
	g.apply("a", drop("ab")) // the image's block, not the text's
	g.holds("ab", 2)
}

// Several hashes may stand for one text: extra_key in SGLang, salts of an old
// vLLM.
func TestSeveralHashesOfOneBlock(t *testing.T) {
	g := newRig(t, Config{})
	e := put("abc", 3)
	other := e.with(func(e *Event) { e.Hashes = []uint64{1, 2, 3} })
	third := e.with(func(e *Event) { e.Hashes = []uint64{4, 5, 6} })
	g.apply("a", e, other, third)
	g.apply("a", drop("a", "ab", "abc"))
	g.holds("abc", 3)
	g.apply("a", put("abX", 1), Event{Kind: Removed, Group: -1, Hashes: []uint64{2, 4, 6}}) // and a split
	g.holds("abc", 3)
	g.holds("abX", 3)
	g.apply("a", Event{Kind: Removed, Group: -1, Hashes: []uint64{3, 5}})
	g.holds("abc", 2) // healed by the blocks stored below it
	g.apply("a", drop("abX", "ab"))
	g.holds("abc", 1)
	for i := range uint64(3 * maxChain) { // more than are kept
		g.apply("a", e.with(func(e *Event) { e.Hashes = []uint64{100 + 3*i, 101 + 3*i, 102 + 3*i} }))
	}
	g.holds("abc", 3)
}

func TestHashOfAnotherBlock(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("abcd", 4))
	g.apply("a", put("xyz", 3).with(func(e *Event) { e.Hashes[1] = hashed("abc") }))
	g.holds("xyz", 3)
	g.holds("abcd", 2)
	g.apply("a", drop("abc"))
	g.holds("xyz", 1)
	s, _ := g.x.Target("a")
	if s.Moved != 1 {
		t.Errorf("%+v", s)
	}
	// Within the run that is being stored.
	g.apply("a", put("ppp", 3).with(func(e *Event) { e.Hashes = []uint64{1, 1, 1} }))
	g.holds("ppp", 0)
}

func TestBytesAndIntegers(t *testing.T) {
	g := newRig(t, Config{})
	sum := func(e Event, n uint64) Event {
		e.Sums = nil
		for i := range e.Hashes {
			e.Sums = append(e.Sums, n+uint64(i))
		}
		if e.HasParent {
			e.ParentSum = n - 1
		}
		return e
	}
	g.apply("a", sum(put("ab", 2), 50))
	g.apply("a", sum(drop("a", "ab"), 70)) // other bytes with the same end
	g.holds("ab", 2)
	g.apply("a", drop("ab")) // the integer
	g.holds("ab", 1)
	g.apply("a", put("abc", 2))
	g.holds("abc", 3)
	g.apply("a", sum(drop("ab", "abc"), 90)) // "ab" has bytes, though it was named by the integer later
	g.holds("abc", 2)
}

func TestBytesThatEndAlike(t *testing.T) {
	g := newRig(t, Config{})
	e := put("abcdef", 6)
	e.Sums = make([]uint64, 6)
	for i := range e.Hashes {
		e.Hashes[i], e.Sums[i] = 7, uint64(i+1)
	}
	g.apply("a", e)
	g.holds("abcdef", 6)
	g.apply("a", Event{Kind: Removed, Group: -1, Hashes: []uint64{7}, Sums: []uint64{4}})
	g.holds("abcdef", 3)
}

func TestParentZero(t *testing.T) {
	g := newRig(t, Config{})
	zero := put("ab", 2).with(func(e *Event) { e.HasParent = true }) // the simulator's way to say "none"
	g.apply("a", zero)
	g.holds("ab", 2)
	g.apply("a", put("c", 1).with(func(e *Event) { e.Hashes = []uint64{0} }))
	g.apply("a", put("d", 1).with(func(e *Event) { e.HasParent = true })) // a block's real name
	g.holds("cd", 2)
	g.holds("d", 0)
}

func TestPairs(t *testing.T) {
	g := newRig(t, Config{})
	text := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	g.apply("a", Event{Kind: Stored, Group: -1, BlockSize: 4, Pairs: true, Tokens: text, Hashes: []uint64{1, 2}})
	for _, c := range []struct {
		tokens []uint32
		want   int
	}{
		{[]uint32{1, 2, 3, 4, 5, 6}, 4},
		{[]uint32{1, 2, 3, 4, 5}, 0}, // its only pair that may be reused is the last one
		{[]uint32{1, 2, 3, 4, 6, 6}, 0},
		{[]uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 8},
		{[]uint32{1, 2, 3, 4, 5, 6, 7, 8, 10, 10}, 4},
	} {
		if got := g.x.Match(router.Prompt{Tokens: c.tokens}, []string{"a"}, nil)[0]; got != c.want {
			t.Errorf("%v: %d, want %d", c.tokens, got, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	for field, c := range map[string]Config{
		"MaxBlocks":  {MaxBlocks: -1},
		"MaxOrphans": {MaxOrphans: -1},
		"HostCredit": {HostCredit: math.NaN()},
	} {
		_, err := New(c)
		var bad *router.ConfigError
		if !errors.As(err, &bad) || bad.Field != field || !strings.HasPrefix(err.Error(), "kvindex: "+field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	_, err := New(Config{MaxBlocks: maxBlocks + 1, HostCredit: 1.5})
	if err == nil || !strings.Contains(err.Error(), "MaxBlocks") || !strings.Contains(err.Error(), "HostCredit") {
		t.Errorf("%v", err)
	}
}
