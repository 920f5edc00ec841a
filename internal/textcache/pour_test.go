package textcache

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/trie"
)

// TestPour: as many unseen requests as are poured make a choice among the targets of about the least cost, each about
// as often as it got of them, and never one that got none.
func TestPour(t *testing.T) {
	s, err := share.New(share.Config{Bus: share.NewMemory(), Secret: "the secret of a test"})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := New(tree)
	if c.Unseen() != 0 {
		t.Error("a cache alone reckons with requests of others")
	}
	c.Join(s)
	if c.Unseen() != 0 {
		t.Error("nothing was sent, and something is unseen")
	}
	ids := []string{"a", "b", "c"}
	count := func(q float64, glasses ...Glass) (n [4]int) {
		for i := range 1000 {
			targets := Targets{IDs: ids}
			c.LookWarmed(&targets)
			targets.recorded = i // as if so many had been sent
			targets.warmed = true
			n[1+c.Pour(&targets, append([]Glass(nil), glasses...), q)]++
		}
		return n
	}
	near := func(what string, got [4]int, want ...int) {
		t.Helper()
		for i := range got {
			if d := got[i] - want[i]; d < -20 || d > 20 {
				t.Errorf("%s: %v, want about %v (none, then each)", what, got, want)
				return
			}
		}
	}
	near("equal costs", count(1, Glass{0, 0, 1}, Glass{1, 0, 1}, Glass{2, 0, 1}), 0, 333, 333, 333)
	near("one is dear", count(1, Glass{0, 0, 1}, Glass{1, 5, 1}, Glass{2, 0, 1}), 0, 500, 0, 500)
	near("one costs a little more", count(1, Glass{0, 0, 1}, Glass{1, 0.5, 1}), 0, 750, 250, 0)
	near("one takes two at the price of one", count(1, Glass{0, 0, 1}, Glass{1, 0, 0.5}), 0, 333, 667, 0)
	near("only one is cheap", count(0.1, Glass{0, 0, 1}, Glass{1, 1, 1}), 1000, 0, 0, 0)
}

// TestUnseen: what others send at the moment of a choice counts, with a bound on its weight.
func TestUnseen(t *testing.T) {
	bus := share.NewMemory()
	var now atomic.Int64 // the bus's goroutines read it
	clock := func() time.Time { return time.Unix(1_700_000_000, now.Load()) }
	var nodes []peering.Node
	var shares []*share.Share
	var caches []*Cache
	for range 2 {
		s, err := share.New(share.Config{Bus: bus, Secret: "the secret of a test", Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		stop, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		tree, err := trie.New(trie.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c := New(tree)
		c.Join(s)
		nodes, shares, caches = append(nodes, peering.Of(s)), append(shares, s), append(caches, c)
	}
	a, b := nodes[0].Local("x"), nodes[1].Local("x")
	for i := range 400 { // both send at once, again and again
		a.Set(int64(i+1), 0, 0)
		b.Set(int64(i+1), 0, 0)
		now.Add(int64(6 * time.Millisecond))
		shares[0].Poll()
		shares[1].Poll()
	}
	within(t, func() bool { // the bus delivers by a goroutine
		a.Set(0, 0, 0)
		a.Set(500, 0, 0)
		b.Set(0, 0, 0)
		b.Set(500, 0, 0)
		now.Add(int64(6 * time.Millisecond))
		shares[0].Poll()
		shares[1].Poll()
		q := caches[0].Unseen()
		return q > mostUnseen && q < 2*mostUnseen+2
	})
	var alone router.Peers = (*share.Share)(nil)
	c := New(caches[0].trie)
	c.Join(alone)
	if c.Unseen() != 0 {
		t.Error("a cache without peers reckons with them")
	}
}

func within(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			t.Fatal("never: the others' requests are reckoned with")
		}
		time.Sleep(time.Millisecond)
	}
}
