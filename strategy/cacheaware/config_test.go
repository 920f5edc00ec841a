package cacheaware_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/trie"
)

func TestConfig(t *testing.T) {
	tr, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := math.NaN(), math.Inf(1)
	type cfg = cacheaware.Config
	for _, c := range []struct {
		cfg   cfg
		field string // "": no error
	}{
		{cfg{}, ""},
		{cfg{Threshold: 1, HeldShare: 1, OverloadSlack: 0.1, OverloadFactor: 1}, ""},
		{cfg{Threshold: 1e-9, HeldShare: 1e-9, OverloadSlack: inf, OverloadFactor: inf}, ""},
		{cfg{MaxNodes: 1, MaxBytes: 1}, ""},
		{cfg{Trie: tr}, ""},
		{cfg{Threshold: -0.1}, "Threshold"},
		{cfg{Threshold: 1.01}, "Threshold"},
		{cfg{Threshold: nan}, "Threshold"},
		{cfg{HeldShare: -0.1}, "HeldShare"},
		{cfg{HeldShare: inf}, "HeldShare"},
		{cfg{HeldShare: nan}, "HeldShare"},
		{cfg{OverloadSlack: -1}, "OverloadSlack"},
		{cfg{OverloadSlack: nan}, "OverloadSlack"},
		{cfg{OverloadFactor: 0.99}, "OverloadFactor"},
		{cfg{OverloadFactor: -2}, "OverloadFactor"},
		{cfg{OverloadFactor: nan}, "OverloadFactor"},
		{cfg{MaxNodes: -1}, "MaxNodes"},
		{cfg{MaxBytes: -1}, "MaxBytes"},
		{cfg{Trie: tr, MaxNodes: 1}, "MaxNodes"},
		{cfg{Trie: tr, MaxBytes: 1}, "MaxBytes"},
	} {
		s, err := cacheaware.New(c.cfg)
		switch {
		case c.field == "" && (err != nil || s == nil):
			t.Errorf("%+v: %v", c.cfg, err)
		case c.field != "" && (err == nil || s != nil || !strings.Contains(err.Error(), c.field)):
			t.Errorf("%+v: error %v does not name %s", c.cfg, err, c.field)
		}
	}
}

// All errors are reported together.
func TestConfigTellsAll(t *testing.T) {
	_, err := cacheaware.New(cacheaware.Config{Threshold: 2, HeldShare: 2, OverloadSlack: -1, OverloadFactor: -1,
		MaxBytes: -1})
	for _, field := range []string{"Threshold", "HeldShare", "OverloadSlack", "OverloadFactor", "MaxBytes"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// The strategy never leaves a warm target if it is configured so.
func TestNeverOverloaded(t *testing.T) {
	for _, c := range []cacheaware.Config{{OverloadSlack: math.Inf(1)}, {OverloadFactor: math.Inf(1)}} {
		s := mustNew(t, c)
		send(s, "a", "the prompt")
		if d := pick(t, s, "the prompt", busy("a", 0, 1e9), busy("b", 0, 0), busy("c", 0, 1)); d.Target.ID != "a" {
			t.Errorf("%+v: went to %s", c, d.Target.ID)
		}
	}
}

// Two strategies over one trie see what either recorded, whatever their rules.
func TestSharedTrie(t *testing.T) {
	tr, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := mustNew(t, cacheaware.Config{Trie: tr}), mustNew(t, cacheaware.Config{Trie: tr, Threshold: 1})
	ts := []router.Target{busy("x", 0, 0), busy("y", 0, 2)}
	send(a, "y", "the prompt")
	da, db := pick(t, a, "the prompt, longer", ts...), pick(t, b, "the prompt, longer", ts...)
	if da.Target.ID != "y" || db.Target.ID != "x" {
		t.Fatalf("went to %s and %s", da.Target.ID, db.Target.ID)
	}
	both := []router.Decision{da, db}
	for i, s := range []*cacheaware.Strategy{a, b} {
		s.Record(both[i], router.Outcome{Stage: router.Sent})
	}
	if a.Stats() != b.Stats() || a.Stats().Prompts != 3 {
		t.Errorf("%+v and %+v, want three prompts", a.Stats(), b.Stats())
	}
	b.Record(db, router.Outcome{Stage: router.Failed}) // what a recorded stays
	if d := pick(t, b, "the prompt, longer", busy("x", 0, 0), busy("y", 0, 0)); d.Target.ID != "y" ||
		d.Cached != d.Length {
		t.Errorf("went to %s with %d of %d cached", d.Target.ID, d.Cached, d.Length)
	}
	a.Forget("y")
	if d := pick(t, b, "the prompt, longer", ts[1]); d.Cached != 0 {
		t.Errorf("%d cached after Forget", d.Cached)
	}
}

// What is remembered stays within the bounds, the most recent stays, and what a
// request takes back or adds after its prompt went does no harm.
func TestBounds(t *testing.T) {
	const maxBytes = 4 << 10
	s := mustNew(t, cacheaware.Config{MaxBytes: maxBytes, MaxNodes: 20, Rand: seeded(8)})
	var ts []router.Target
	for i := range 4 {
		ts = append(ts, busy(fmt.Sprint(i), 0, 0))
	}
	var open []router.Decision
	for i := range 5000 {
		text := fmt.Sprintf("conversation %d: ", i%97) + strings.Repeat(fmt.Sprint(i), i%50)
		d := pick(t, s, text, ts...)
		s.Record(d, router.Outcome{Stage: router.Sent})
		again := pick(t, s, text, d.Target)
		if again.Cached != len(text) {
			t.Fatalf("step %d: %d of %d cached of what was just sent", i, again.Cached, len(text))
		}
		open = append(open, d)
		if len(open) > 30 { // long after the prompt itself may have gone
			o := router.Outcome{Stage: router.Finished + router.Stage(i%3)}
			if i%2 == 0 {
				o.Reply = strings.Repeat("reply", i%20)
			}
			s.Record(open[0], o)
			open = open[1:]
		}
		if st := s.Stats(); st.Bytes > maxBytes || st.Nodes > 4*20 || st.Prompts > 4*20 {
			t.Fatalf("step %d: %+v", i, st)
		}
	}
	if s.Stats().Evicted == 0 {
		t.Error("nothing was evicted")
	}
}

// A repeated prompt of the same target takes no more memory, and keeps it fresh.
func TestRepeatsTakeNoRoom(t *testing.T) {
	s := mustNew(t, cacheaware.Config{})
	send(s, "a", "the prompt")
	before := s.Stats()
	for range 10_000 {
		send(s, "a", "the prompt")
	}
	if s.Stats() != before {
		t.Errorf("%+v, then %+v", before, s.Stats())
	}
}

func TestNoTarget(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: func() uint64 { t.Error("drew a number"); return 0 }})
	send(s, "a", "the prompt")
	_, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: "the prompt"},
		[]router.Target{{ID: "a", State: router.Cooling}})
	if got, want := fmt.Sprint(err), "router: no target: 1 offered, 0 excluded, 1 not ready"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
