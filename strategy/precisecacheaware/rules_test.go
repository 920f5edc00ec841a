package precisecacheaware_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/trie"
)

// part is a prompt of which the given number of blocks are those of all, and as
// many as fill up 20 blocks and a token are its own.
func part(own, shared int) router.Prompt {
	return router.Prompt{Model: "m", Tokens: append(slices.Clone(tokens(1, 20*blockSize)[:shared*blockSize]),
		tokens(100+own, (20-shared)*blockSize+1)...)}
}

func TestRules(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("none", "none2", "gone")
	e.Store("all", part(0, 20))
	e.Store("half", part(1, 10))
	e.Store("half2", part(2, 10))
	e.Store("tenth", part(3, 3))
	e.Store("less", part(4, 1))
	e.Store("gone", part(0, 20))
	e.Distrust("gone")
	asked := part(0, 20)
	down := busy("all", 0)
	down.State = router.Draining
	heavy := busy("half", 4)
	heavy.Weight = 2
	queued := busy("half", 0)
	queued.Load.Queued = 3
	for _, c := range []struct {
		name   string
		ts     []router.Target
		want   []string // between which the draw decides
		cached int      // blocks
		reason router.Reason
	}{
		{"the most resident", []router.Target{busy("all", 0), busy("half", 0), busy("none", 0)}, []string{"all"}, 20,
			router.ReasonWarm},
		{"half is worth two requests: one is waited for", []router.Target{busy("half", 1), busy("none", 0)}, []string{"half"},
			10, router.ReasonWarm},
		{"three are not", []router.Target{busy("half", 3), busy("none", 0)}, []string{"none"}, 0, router.ReasonSpill},
		{"queued ones count", []router.Target{queued, busy("none", 0)}, []string{"none"}, 0, router.ReasonSpill},
		{"all is worth four: three are waited for", []router.Target{busy("all", 3), busy("none", 0)}, []string{"all"}, 20,
			router.ReasonWarm},
		{"four are not, as the last token is never cached", []router.Target{busy("all", 4), busy("none", 0)},
			[]string{"none"}, 0, router.ReasonSpill},
		{"half the least load, where that is more", []router.Target{busy("all", 59), busy("none", 40)}, []string{"all"}, 20,
			router.ReasonWarm},
		{"and not more", []router.Target{busy("all", 61), busy("none", 40)}, []string{"none"}, 0, router.ReasonSpill},
		{"the second best takes it", []router.Target{busy("all", 9), busy("half", 0), busy("none", 0)}, []string{"half"}, 10,
			router.ReasonSpill},
		{"four at a weight of two are two", []router.Target{heavy, busy("none", 1)}, []string{"half"}, 10, router.ReasonWarm},
		{"equal ones: the less loaded", []router.Target{busy("half", 1), busy("half2", 0)}, []string{"half2"}, 10,
			router.ReasonWarm},
		{"equal in all: a draw", []router.Target{busy("half", 1), busy("half2", 1), busy("none", 1)},
			[]string{"half", "half2"}, 10, router.ReasonWarm},
		{"more than a tenth counts", []router.Target{busy("tenth", 0), busy("less", 0), busy("none", 0)}, []string{"tenth"},
			3, router.ReasonWarm},
		{"less breaks ties", []router.Target{busy("less", 0), busy("none", 0)}, []string{"less"}, 1, router.ReasonCold},
		{"and nothing more", []router.Target{busy("less", 1), busy("none", 0)}, []string{"none"}, 0, router.ReasonCold},
		{"not one that is not ready", []router.Target{down, busy("none", 0), busy("none2", 0)}, []string{"none", "none2"}, 0,
			router.ReasonCold},
		{"unknown load counts at the mean", []router.Target{{ID: "all"}, busy("none", 0), busy("none2", 12)},
			[]string{"none"}, 0, router.ReasonSpill},
		{"unknown load, none known", []router.Target{{ID: "all"}, {ID: "none"}}, []string{"all"}, 20, router.ReasonWarm},
		{"a single one", []router.Target{busy("all", 3)}, []string{"all"}, 20, router.ReasonOnly},
		{"untrusted: not before one that holds more than the mean", []router.Target{busy("gone", 0), busy("all", 0),
			busy("none", 0)}, []string{"all"}, 20, router.ReasonWarm},
		{"untrusted: before one that holds less than the mean", []router.Target{busy("gone", 0), busy("all", 5),
			busy("none", 0)}, []string{"gone"}, 0, router.ReasonSpill},
		{"untrusted: load alone decides between it and the mean", []router.Target{busy("gone", 0), busy("all", 1)},
			[]string{"gone"}, 0, router.ReasonSpill},
		{"untrusted: nothing known, nothing lost", []router.Target{busy("gone", 0), busy("none", 0)},
			[]string{"gone", "none"}, 0, router.ReasonCold},
		{"untrusted: never heard of is the same", []router.Target{busy("never", 0), busy("none", 1)}, []string{"never"}, 0,
			router.ReasonCold},
	} {
		s := mustNew(t, precisecacheaware.Config{Index: e.Index, Rand: seeded(1), WorthRequests: 4, WorthShare: 0.5})
		got := map[string]bool{}
		for range 40 {
			d := pick(t, s, asked, c.ts...)
			got[d.Target.ID] = true
			if d.Cached != c.cached*blockSize || d.Length != 20*blockSize+1 || d.Unit != router.Tokens || d.Reason != c.reason {
				t.Errorf("%s: cached %d of %d %s, %q", c.name, d.Cached, d.Length, d.Unit, d.Reason)
				break
			}
		}
		want := map[string]bool{}
		for _, id := range c.want {
			want[id] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

// If there is text, the trie estimates a target that is not trusted, and it
// alone.
func TestTextSpeaksForTheUntrusted(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("none", "gone")
	e.Store("half", part(0, 10))
	e.Distrust("gone")
	p := part(0, 20)
	p.Text = strings.Repeat("a word ", 200)
	for _, c := range []struct {
		name, sent, to string
		ts             []router.Target
		want           string
		cached         int
	}{
		{"it was sent all of it", p.Text, "gone", []router.Target{busy("gone", 0), busy("half", 0), busy("none", 0)}, "gone",
			20 * blockSize},
		{"it was sent a quarter", p.Text[:350] + "!", "gone", []router.Target{busy("gone", 0), busy("half", 0),
			busy("none", 0)}, "half", 10 * blockSize},
		{"a quarter is more than nothing", p.Text[:350] + "!", "gone", []router.Target{busy("gone", 0), busy("none", 0)},
			"gone", (20*blockSize + 1) / 4},
		{"it was sent nothing", p.Text, "elsewhere", []router.Target{busy("gone", 0), busy("half", 1)}, "half",
			10 * blockSize},
		{"a trusted one is not asked", p.Text, "none", []router.Target{busy("gone", 1), busy("none", 1), busy("half", 0)},
			"half", 10 * blockSize},
	} {
		s := mustNew(t, precisecacheaware.Config{Index: e.Index})
		send(s, c.to, router.Prompt{Model: "m", Text: c.sent})
		if d := pick(t, s, p, c.ts...); d.Target.ID != c.want || d.Cached != c.cached || d.Unit != router.Tokens {
			t.Errorf("%s: %s, cached %d %s", c.name, d.Target.ID, d.Cached, d.Unit)
		}
	}
}

// A queue that is long enough outweighs any cache, at any level of load.
func TestAnyQueueIsLongEnough(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("none")
	e.Store("all", part(0, 20))
	for _, cfg := range []precisecacheaware.Config{{}, {PrefillWeight: -1}, {WorthRequests: 100, WorthShare: 3},
		{HeldShare: 1e-9}} {
		cfg.Index = e.Index
		s := mustNew(t, cfg)
		for _, least := range []int{0, 1, 10, 100, 10_000} {
			left := false
			for n := least; n < 5*least+200 && !left; n++ {
				left = pick(t, s, part(0, 20), busy("all", n), busy("none", least)).Target.ID == "none"
				if left && n == least {
					t.Errorf("%+v: left at once at %d", cfg, least)
				}
			}
			if !left {
				t.Errorf("%+v: never left at %d", cfg, least)
			}
		}
	}
}

// Tokens that wait for prefill count in addition to those that are not cached.
func TestPrefillWeighs(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("none")
	e.Store("all", part(0, 20))
	s := mustNew(t, precisecacheaware.Config{Index: e.Index})
	for _, c := range []struct {
		p      router.Prompt
		waits  int
		want   string
		reason router.Reason
	}{
		{part(0, 20), 600, "all", router.ReasonWarm}, // half of 600 is less than the 320 that are resident
		{part(0, 20), 680, "none", router.ReasonSpill},
		{router.Prompt{Tokens: tokens(99, 320)}, 1, "none", router.ReasonCold},
	} {
		waits := busy("all", 1)
		waits.Load.Prefill = c.waits
		if d := pick(t, s, c.p, waits, busy("none", 1)); d.Target.ID != c.want || d.Reason != c.reason {
			t.Errorf("%d wait: %s, %s; want %s, %s", c.waits, d.Target.ID, d.Reason, c.want, c.reason)
		}
	}
}

// Different prompts behind one short opening are dealt out over an idle fleet.
func TestIdleFleet(t *testing.T) {
	e := kvtest.New(t)
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Rand: seeded(2), PresumeFor: -1})
	var ts []router.Target
	for i := range 4 {
		ts = append(ts, busy(fmt.Sprint("engine-", i), 0))
		e.Begin(ts[i].ID)
	}
	got := map[string]int{}
	for i := range 20 {
		p := part(i, 1)
		d := pick(t, s, p, ts...)
		s.Record(d, router.Outcome{Stage: router.Sent})
		e.Store(d.Target.ID, p)
		got[d.Target.ID]++
	}
	if diff := cmp.Diff(map[string]int{"engine-0": 5, "engine-1": 5, "engine-2": 5, "engine-3": 5}, got); diff != "" {
		t.Error(diff)
	}
}

func TestExplain(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("none", "gone", "down")
	e.Store("all", part(0, 20))
	e.Store("half", part(1, 10))
	e.Distrust("gone")
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, WorthRequests: 4, WorthShare: 0.5})
	down := busy("down", 0)
	down.State = router.Unhealthy
	got := s.Explain(context.Background(), part(0, 20),
		[]router.Target{busy("none", 0), down, busy("half", 0), busy("all", 1), busy("gone", 0), busy("hot", 9)}, nil)
	type line struct {
		ID     string
		Cached int
		Score  string
		Reason router.Reason
	}
	var lines []line
	for _, c := range got {
		lines = append(lines, line{c.Target.ID, c.Cached, fmt.Sprintf("%.3f", c.Score), c.Reason})
	}
	want := []line{ // the mean of 20, 10 and 0 blocks is 10
		{"all", 320, "0.873", router.ReasonWarm},
		{"half", 160, "0.749", router.ReasonColder},
		{"gone", 0, "0.749", precisecacheaware.ReasonNeutral},
		{"none", 0, "0.500", router.ReasonColder},
		{"hot", 0, "0.182", router.ReasonBusier},
		{"down", 0, "0.500", router.ReasonUnhealthy},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	tr, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	type cfg = precisecacheaware.Config
	for _, c := range []struct {
		cfg   cfg
		field string // "": no error
	}{
		{cfg{}, ""},
		{cfg{Fallback: "text", WorthRequests: 0.1, WorthShare: 9, HeldShare: 1, PresumeFor: -1, BlockSize: 1}, ""},
		{cfg{PresumeFor: 60e9, MaxNodes: 1, MaxBytes: 1}, ""},
		{cfg{Trie: tr}, ""},
		{cfg{Fallback: "round_robin"}, "Fallback"},
		{cfg{WorthRequests: -1}, "WorthRequests"},
		{cfg{WorthRequests: math.Inf(1)}, "WorthRequests"},
		{cfg{PrefillWeight: math.NaN()}, "PrefillWeight"},
		{cfg{PrefillWeight: math.Inf(1)}, "PrefillWeight"},
		{cfg{WorthShare: math.NaN()}, "WorthShare"},
		{cfg{WorthShare: -1}, "WorthShare"},
		{cfg{HeldShare: 1.1}, "HeldShare"},
		{cfg{HeldShare: math.NaN()}, "HeldShare"},
		{cfg{PresumeFor: 61e9}, "PresumeFor"},
		{cfg{BlockSize: -1}, "BlockSize"},
		{cfg{MaxNodes: -1}, "MaxNodes"},
		{cfg{MaxBytes: -1}, "MaxBytes"},
		{cfg{Trie: tr, MaxNodes: 1}, "MaxNodes"},
	} {
		s, err := precisecacheaware.New(c.cfg)
		switch {
		case c.field == "" && (err != nil || s == nil):
			t.Errorf("%+v: %v", c.cfg, err)
		case c.field != "" && (err == nil || s != nil || !strings.Contains(err.Error(), c.field)):
			t.Errorf("%+v: error %v does not name %s", c.cfg, err, c.field)
		}
	}
	_, err = precisecacheaware.New(cfg{Fallback: "x", WorthRequests: -1, WorthShare: -1, HeldShare: -1, BlockSize: -1,
		MaxBytes: -1})
	for _, field := range []string{"Fallback", "WorthRequests", "WorthShare", "HeldShare", "BlockSize", "MaxBytes"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// A system prompt that many share does not send all chats to the target that computed it first, and a chat stays.
func TestSharedSystemPromptSpreads(t *testing.T) {
	e := kvtest.New(t)
	var ts []router.Target
	for i := range 4 {
		id := fmt.Sprint("vllm-", i)
		e.Begin(id)
		ts = append(ts, busy(id, 0))
	}
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Rand: seeded(1), PresumeFor: -1})
	counts := map[string]int{}
	stayed := 0
	for i := range 120 {
		p := router.Prompt{Model: "m", Tokens: append(slices.Clone(tokens(1, 60*blockSize)), tokens(1000+i, 4*blockSize)...)}
		first := pick(t, s, p, ts...)
		counts[first.Target.ID]++
		send(s, first.Target.ID, p)
		e.Store(first.Target.ID, p)
		p.Tokens = append(slices.Clone(p.Tokens), tokens(5000+i, 8*blockSize)...)
		second := pick(t, s, p, ts...)
		send(s, second.Target.ID, p)
		e.Store(second.Target.ID, p)
		p.Tokens = append(slices.Clone(p.Tokens), tokens(9000+i, 2*blockSize)...)
		if third := pick(t, s, p, ts...); third.Target.ID == second.Target.ID {
			stayed++
		}
	}
	if len(counts) != 4 || slices.Max([]int{counts["vllm-0"], counts["vllm-1"], counts["vllm-2"], counts["vllm-3"]}) > 60 {
		t.Errorf("first turns: %v", counts)
	}
	if stayed < 110 {
		t.Errorf("%d of 120 chats stayed", stayed)
	}
}
