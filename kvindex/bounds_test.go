package kvindex

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBound(t *testing.T) {
	g := newRig(t, Config{MaxBlocks: 6})
	g.apply("a", put("abc", 3))
	g.apply("a", put("xyz", 3))
	g.apply("a", put("abcd", 1)) // makes "abc" newer than "xyz"
	g.holds("abcd", 4)
	g.holds("xyz", 2)
	g.apply("a", put("xyz", 1), put("1", 1))
	g.holds("abcd", 2)
	g.holds("xyz", 3)
	g.holds("1", 1)
	g.apply("a", drop("abcd", "abc", "never"))
	g.holds("ab", 2)
	g.apply("a", put("ABCDEFGHIJ", 10)) // more than there may be: its beginning stays
	g.holds("ABCDEFGHIJ", 6)
	s := g.x.Stats()
	if s.Blocks != 6 || s.Evicted != 1+2+10 {
		t.Errorf("%+v", s)
	}
	g.apply("b", put("abc", 3))
	g.holds("ABCDEFGHIJ", 6)
}

func TestSequences(t *testing.T) {
	var told []string
	g := newRig(t, Config{Trace: Trace{
		Gap:     func(id string, last, seq uint64) { told = append(told, fmt.Sprintf("gap %s %d %d", id, last, seq)) },
		Restart: func(id string, last, seq uint64) { told = append(told, fmt.Sprintf("restart %s %d %d", id, last, seq)) },
	}})
	x := g.x
	apply := func(seq uint64, want error, events ...Event) {
		t.Helper()
		if err := x.Apply("a", seq, Batch{Events: events}); !errors.Is(err, want) {
			t.Fatalf("Apply %d: %v, want %v", seq, err, want)
		}
	}
	apply(7, nil, put("a", 1))
	apply(8, nil, put("ab", 1))
	apply(11, ErrGap, put("x", 1))
	g.holds("ab", -1)
	apply(10, ErrGap)
	apply(9, nil)
	g.holds("ab", -1)
	apply(10, nil)
	g.holds("ab", -1) // 11 is not applied yet
	apply(11, nil, put("abc", 1))
	g.holds("abc", 3)
	g.holds("x", 0)
	apply(13, ErrGap)
	apply(11, nil, put("y", 1)) // started over
	g.holds("abc", 0)
	g.holds("y", 1)
	apply(20, ErrGap)
	x.Reset("a")
	g.holds("y", -1)
	apply(40, nil)
	g.holds("y", 0)
	apply(0, nil, put("a", 1))
	apply(math.MaxUint64, ErrGap)
	x.Suspend("a", true)
	apply(0, nil, put("b", 1))
	g.holds("b", 1)
	x.Suspend("a", true)
	g.holds("b", -1)
	apply(1, nil, put("bc", 1))
	g.holds("bc", -1)
	x.Suspend("a", false)
	g.holds("bc", 2)
	x.Forget("a")
	x.Forget("a")
	x.Reset("a")
	x.Suspend("a", false) // of one that is not known: nothing
	if s := x.Stats(); s.Targets != 0 {
		t.Errorf("%+v", s)
	}
	x.Suspend("a", true) // before its first message
	g.holds("b", -1)
	apply(5, nil)
	g.holds("b", -1)
	apply(6, nil, put("b", 1))
	g.holds("b", -1)
	if x.Trusted("a") {
		t.Error("trusted before it is resumed")
	}
	x.Suspend("a", false)
	g.holds("b", 1)
	want := []string{
		"gap a 8 11", "gap a 8 10", "gap a 11 13", "restart a 11 11", "gap a 11 20", "restart a 40 0",
		"gap a 0 18446744073709551615", "restart a 0 0",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	s := x.Stats()
	if s.Gaps != 5 || s.Restarts != 3 || s.Resets != 1 || s.Targets != 1 || s.Trusted != 1 {
		t.Errorf("%+v", s)
	}
}

// What is forgotten leaves nothing behind.
func TestNothingStays(t *testing.T) {
	g := newRig(t, Config{})
	for i := range 50 {
		id := fmt.Sprint("t", i)
		g.apply(id, put("abcdef", 6), put("abX", 1), put("abcY", 1), put("q", 1).with(func(e *Event) { e.Salt = id }))
	}
	for i := range 50 {
		if i%2 == 0 {
			g.x.Forget(fmt.Sprint("t", i))
		} else {
			g.apply(fmt.Sprint("t", i), Event{Kind: Cleared})
		}
		check(t, g.x)
	}
	if s := g.x.Stats(); s.Nodes != 0 || s.Blocks != 0 || s.Targets != 25 || !g.x.roots.leaf() {
		t.Errorf("%+v", s)
	}
	if len(g.x.uses) > 1 || len(g.x.slots) != 50 {
		t.Errorf("%d shapes, %d slots", len(g.x.uses), len(g.x.slots))
	}
	g.apply("new", put("abcdef", 6)) // a slot is used again
	if len(g.x.slots) != 50 {
		t.Errorf("%d slots", len(g.x.slots))
	}
	g.holdsOf("new", "abcdef", 6)
	g.holdsOf("t0", "abcdef", -1)
}

// The table of handles against a map, and it does not stay large.
func TestHandles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	h := handles{keys: newSecrets().tags}
	truth := map[uint64]ref{}
	look := func(hash uint64) ref {
		for i := h.home(h.tag(hash)); h.cells[i] != 0; i = h.next(i) {
			if h.cells[i]>>32 == h.tag(hash) {
				return ref(h.cells[i])
			}
		}
		return 0
	}
	for i := range 60_000 {
		hash := uint64(r.IntN(3000))
		if i > 40_000 {
			hash %= 20
		}
		was, ok := truth[hash]
		switch {
		case !ok && i < 50_000:
			truth[hash] = ref(i + 1)
			h.add(hash, ref(i+1))
		case ok && r.IntN(2) == 0:
			h.move(hash, was, ref(i+1))
			truth[hash] = ref(i + 1)
		case ok:
			h.remove(hash, was)
			delete(truth, hash)
		}
		if i == 40_000 {
			for hash, r := range truth {
				h.remove(hash, r)
			}
			clear(truth)
			if len(h.cells) > 64 {
				t.Errorf("%d cells for nothing", len(h.cells))
			}
		}
		if h.n != len(truth) {
			t.Fatalf("%d of %d", h.n, len(truth))
		}
		if i%500 == 0 {
			for hash, want := range truth {
				if got := look(hash); got != want {
					t.Fatalf("hash %d: %d, want %d", hash, got, want)
				}
			}
		}
	}
}
