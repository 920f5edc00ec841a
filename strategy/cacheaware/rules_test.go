package cacheaware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
)

// busy is a target of known load.
func busy(id string, weight float64, inFlight int) router.Target {
	return router.Target{ID: id, Weight: weight, Load: router.Load{Known: true, InFlight: inFlight}}
}

// send records a text on a target, as if somebody else had chosen it.
func send(s *cacheaware.Strategy, id, text string) {
	s.Record(router.Decision{Prompt: router.Prompt{Model: "m", Text: text}, Target: router.Target{ID: id}},
		router.Outcome{Stage: router.Sent})
}

func pick(t testing.TB, s *cacheaware.Strategy, text string, targets ...router.Target) router.Decision {
	t.Helper()
	d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: text}, targets)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// seeded returns a source of random numbers for a test that runs in one goroutine.
func seeded(n uint64) func() uint64 { return rand.New(rand.NewPCG(n, 3)).Uint64 }

func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		threshold float64
		cached    int // of 100
		want      router.Reason
	}{
		{0, 49, router.ReasonCold}, {0, 50, router.ReasonWarm}, {0, 100, router.ReasonWarm},
		{1, 99, router.ReasonCold}, {1, 100, router.ReasonWarm},
		{0.3, 29, router.ReasonCold}, {0.3, 30, router.ReasonWarm},
		{1e-9, 0, router.ReasonCold}, {1e-9, 1, router.ReasonWarm},
	} {
		s := mustNew(t, cacheaware.Config{Threshold: c.threshold})
		send(s, "a", strings.Repeat("x", c.cached)+"only a has this")
		d := pick(t, s, strings.Repeat("x", c.cached)+strings.Repeat("y", 100-c.cached), busy("a", 0, 1), busy("b", 0, 0))
		want := map[router.Reason]router.Decision{
			router.ReasonWarm: {Target: busy("a", 0, 1), Cached: c.cached, Length: 100, Reason: router.ReasonWarm},
			router.ReasonCold: {Target: busy("b", 0, 0), Length: 100, Reason: router.ReasonCold},
		}[c.want]
		d.Prompt, d.Memo = router.Prompt{}, nil
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("threshold %v, %d of 100 cached: (-want +got)\n%s", c.threshold, c.cached, diff)
		}
	}
}

func TestOverloaded(t *testing.T) {
	queued := busy("a", 0, 1)
	queued.Load.Queued = 2
	gone := busy("c", 0.01, 0)
	gone.State = router.Draining
	unknown := router.Target{ID: "a"}
	cfg := cacheaware.Config{OverloadSlack: 5, OverloadFactor: 3}
	for _, c := range []struct {
		name    string
		cfg     cacheaware.Config
		warm    router.Target
		others  []router.Target
		spilled bool
	}{
		{"min + 2", cacheaware.Config{}, busy("a", 0, 2), []router.Target{busy("b", 0, 0)}, false},
		{"more than min + 2", cacheaware.Config{}, busy("a", 0, 3), []router.Target{busy("b", 0, 0)}, true},
		{"both at once: min + 2 and 1.5 min", cacheaware.Config{}, busy("a", 0, 6), []router.Target{busy("b", 0, 4)}, false},
		{"just more than both", cacheaware.Config{}, busy("a", 0, 7), []router.Target{busy("b", 0, 4)}, true},
		{"more than min + 2, less than 1.5 min", cacheaware.Config{}, busy("a", 0, 14), []router.Target{busy("b", 0, 10)},
			false},
		{"1.5 min", cacheaware.Config{}, busy("a", 0, 15), []router.Target{busy("b", 0, 10)}, false},
		{"more than 1.5 min", cacheaware.Config{}, busy("a", 0, 16), []router.Target{busy("b", 0, 10)}, true},
		{"more than 1.5 min, less than min + 2", cacheaware.Config{}, busy("a", 0, 4), []router.Target{busy("b", 0, 2)},
			false},
		{"what is queued counts", cacheaware.Config{}, queued, []router.Target{busy("b", 0, 0)}, true},
		{"min is the least of several", cacheaware.Config{}, busy("a", 0, 7),
			[]router.Target{busy("b", 0, 9), busy("c", 0, 4), busy("d", 0, 8)}, true},
		{"one that is not ready is no min, nor the least weight", cacheaware.Config{}, busy("a", 0, 7),
			[]router.Target{busy("b", 0, 5), gone}, false},
		{"alone", cacheaware.Config{}, busy("a", 0, 1000), nil, false},
		{"weight 2: 4 requests are a load of 2", cacheaware.Config{}, busy("a", 2, 4), []router.Target{busy("b", 1, 0)},
			false},
		{"weight 2: 5 are more", cacheaware.Config{}, busy("a", 2, 5), []router.Target{busy("b", 1, 0)}, true},
		{"weight 2: 30 are 1.5 times 10", cacheaware.Config{}, busy("a", 2, 30), []router.Target{busy("b", 1, 10)}, false},
		{"weight 2: 31 are more", cacheaware.Config{}, busy("a", 2, 31), []router.Target{busy("b", 1, 10)}, true},
		{"only the ratio of weights matters", cacheaware.Config{}, busy("a", 0.5, 5), []router.Target{busy("b", 0.25, 0)},
			true},
		{"min is by weight too", cacheaware.Config{}, busy("a", 1, 3), []router.Target{busy("b", 2, 2)}, false},
		{"an unknown load is never too much", cacheaware.Config{}, unknown,
			[]router.Target{busy("b", 0, 0), busy("c", 0, 1000)}, false},
		{"an unknown load is no min", cacheaware.Config{}, busy("a", 0, 12), []router.Target{busy("b", 0, 10), {ID: "c"}},
			false},
		{"all others unknown", cacheaware.Config{}, busy("a", 0, 1000), []router.Target{{ID: "b"}}, false},
		{"own slack", cfg, busy("a", 0, 5), []router.Target{busy("b", 0, 0)}, false},
		{"more than own slack", cfg, busy("a", 0, 6), []router.Target{busy("b", 0, 0)}, true},
		{"own factor", cfg, busy("a", 0, 9), []router.Target{busy("b", 0, 3)}, false},
		{"more than own factor", cfg, busy("a", 0, 10), []router.Target{busy("b", 0, 3)}, true},
	} {
		s := mustNew(t, c.cfg)
		send(s, "a", "the prompt")
		d := pick(t, s, "the prompt", append(c.others, c.warm)...)
		want := router.ReasonWarm
		if c.spilled {
			want = router.ReasonSpill
		}
		if d.Reason != want || (d.Target.ID == "a") == c.spilled {
			t.Errorf("%s: went to %s, %s", c.name, d.Target.ID, d.Reason)
		}
	}
}

// counts picks n times and counts where the picks went.
func counts(t testing.TB, s *cacheaware.Strategy, n int, text string, targets ...router.Target) map[string]int {
	t.Helper()
	out := map[string]int{}
	for range n {
		out[pick(t, s, text, targets...).Target.ID]++
	}
	return out
}

// fair fails where the chi-square statistic of counts over ids has a chance below
// 1 in 1,000; limit is that of len(ids)-1 degrees of freedom.
func fair(t *testing.T, what string, got map[string]int, limit float64, ids ...string) {
	t.Helper()
	n := 0
	for _, c := range got {
		n += c
	}
	want, x := float64(n)/float64(len(ids)), 0.0
	for _, id := range ids {
		x += (float64(got[id]) - want) * (float64(got[id]) - want) / want
		n -= got[id]
	}
	if x > limit || n != 0 {
		t.Errorf("%s: %v among %v, chi-square %.1f", what, got, ids, x)
	}
}

// 13.82 and 16.27 are exceeded once in 1,000 at 2 and 3 degrees of freedom.
const chi2of2, chi2of3 = 13.82, 16.27

func TestEquals(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: seeded(1)})
	for _, id := range []string{"a", "b", "c", "d"} {
		send(s, id, "the prompt")
	}
	send(s, "e", "the pro")
	send(s, "a", "another one") // the number of prompts does not matter here
	idle := busy("e", 0, 0)
	for _, c := range []struct {
		name string
		ts   []router.Target
		of   []string
	}{
		{"the least loaded of the best", []router.Target{busy("a", 0, 2), busy("b", 0, 1), busy("c", 0, 2), idle},
			[]string{"b"}},
		{"a random one of those", []router.Target{busy("a", 0, 1), busy("b", 0, 1), busy("c", 0, 1), busy("d", 0, 2), idle},
			[]string{"a", "b", "c"}},
		{"by weight", []router.Target{busy("a", 1, 1), busy("b", 2, 1), busy("c", 2, 2), idle}, []string{"b"}},
		{"none of them known", []router.Target{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "e"}}, []string{"a", "b", "c"}},
		{"not the one that is too busy", []router.Target{busy("a", 0, 3), busy("b", 0, 2), idle}, []string{"b"}},
		{"not one that is not ready", []router.Target{{ID: "a", State: router.Cooling}, busy("b", 0, 2), idle},
			[]string{"b"}},
		{"an unknown one counts at the mean", []router.Target{{ID: "a"}, busy("b", 0, 2), busy("c", 0, 1), idle},
			[]string{"a", "c"}},
	} {
		fair(t, c.name, counts(t, s, 3000, "the prompt", c.ts...), chi2of2, c.of...)
	}
}

func TestOtherwise(t *testing.T) {
	long := strings.Repeat("x", 100)
	s := mustNew(t, cacheaware.Config{Rand: seeded(2)})
	send(s, "a", long[:10]+"a")                // a tenth
	send(s, "b", long[:9]+"b")                 // less
	send(s, "c", "nothing of it")              //
	send(s, "d", long[:49]+"d")                // nearly a half
	send(s, "d", "two prompts")                //
	send(s, "e", "nothing of it, and another") //
	send(s, "e", "two prompts")                //
	for _, c := range []struct {
		name string
		ts   []router.Target
		of   []string
	}{
		{"the least loaded, whatever the others hold", []router.Target{busy("a", 0, 2), busy("c", 0, 1), busy("d", 0, 2)},
			[]string{"c"}},
		{"by weight", []router.Target{busy("a", 1, 2), busy("c", 4, 4)}, []string{"c"}},
		{"what is queued counts", []router.Target{{ID: "d", Load: router.Load{Known: true, Queued: 2}}, busy("c", 0, 1)},
			[]string{"c"}},
		{"of equals, the one that holds most", []router.Target{busy("a", 0, 1), busy("c", 0, 1), busy("d", 0, 1)},
			[]string{"d"}},
		{"a tenth is enough", []router.Target{busy("a", 0, 0), busy("b", 0, 0), busy("c", 0, 0)}, []string{"a"}},
		{"less is not: a random one", []router.Target{busy("b", 0, 0), busy("c", 0, 0), busy("f", 0, 5)}, []string{"b", "c"}},
		{"less is not: the least warmed", []router.Target{busy("b", 0, 0), busy("f", 0, 0), busy("c", 0, 0)}, []string{"f"}},
		{"the least warmed", []router.Target{busy("c", 0, 0), busy("e", 0, 0)}, []string{"c"}},
		{"no load known: the least warmed, whatever it holds", []router.Target{{ID: "d"}, {ID: "b"}, {ID: "c"}, {ID: "e"}},
			[]string{"b", "c"}},
		{"no load known: of those, the one that holds most", []router.Target{{ID: "d"}, {ID: "e"}}, []string{"d"}},
		{"no load known: nor is a weight asked for", []router.Target{{ID: "c", Weight: 1}, {ID: "b", Weight: 9}},
			[]string{"b", "c"}},
		{"one that is not ready is not asked", []router.Target{{ID: "d", State: router.Tripped}, busy("e", 0, 0)},
			[]string{"e"}},
		{"an unknown one counts at the mean", []router.Target{busy("b", 0, 3), {ID: "c"}, busy("e", 0, 1)}, []string{"e"}},
		{"and may be equal to it", []router.Target{busy("b", 0, 1), {ID: "c"}}, []string{"b", "c"}},
		{"all equal: a random one", []router.Target{busy("f", 0, 0), busy("g", 0, 0), busy("h", 0, 0), busy("i", 0, 0)},
			[]string{"f", "g", "h", "i"}},
	} {
		fair(t, c.name, counts(t, s, 3000, long, c.ts...), chi2of3, c.of...)
	}
}

// A spilled prompt goes where rule 3 sends it, not to the second best.
func TestSpillGoesToTheLeastLoaded(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: seeded(3)})
	send(s, "a", "the prompt")
	send(s, "b", "the promp")
	send(s, "c", "the")
	d := pick(t, s, "the prompt", busy("a", 0, 5), busy("b", 0, 2), busy("c", 0, 1), busy("d", 0, 1))
	if d.Target.ID != "c" || d.Reason != router.ReasonSpill || d.Cached != 3 {
		t.Errorf("went to %s, %s, cached %d; want c, which holds most of the least loaded", d.Target.ID, d.Reason, d.Cached)
	}
}

// What was spilled is recorded too: the next one sees it at once.
func TestSpilledIsRecorded(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: seeded(4)})
	send(s, "a", "the prompt")
	ts := []router.Target{busy("a", 0, 3), busy("b", 0, 0)}
	d := pick(t, s, "the prompt", ts...)
	s.Record(d, router.Outcome{Stage: router.Sent})
	ts[0].Load.InFlight = 2
	got := counts(t, s, 50, "the prompt", ts...)
	if diff := cmp.Diff(map[string]int{"b": 50}, got); diff != "" {
		t.Errorf("of two that hold it, the least loaded: %s", diff)
	}
}

func TestEmptyPrompt(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: seeded(5)})
	for range 3 {
		send(s, "a", "")
	}
	d := pick(t, s, "", busy("a", 0, 1), busy("b", 0, 0))
	if d.Target.ID != "b" || d.Reason != router.ReasonEmpty || d.Cached != 0 || d.Length != 0 {
		t.Errorf("%s, %s, cached %d of %d", d.Target.ID, d.Reason, d.Cached, d.Length)
	}
	fair(t, "an empty prompt warms nobody", counts(t, s, 1000, "", busy("a", 0, 0), busy("b", 0, 0)), chi2of2, "a", "b")
	for _, c := range s.Explain(context.Background(), router.Prompt{}, []router.Target{{ID: "a"}}, nil) {
		if c.Score != 0 {
			t.Errorf("score %v", c.Score)
		}
	}
}

// If no load is known, prompts that have nothing in common are spread evenly by
// the prompts that each target was sent.
func TestNoLoadKnownDealsEvenly(t *testing.T) {
	s := mustNew(t, cacheaware.Config{Rand: seeded(6)})
	got := map[string]int{}
	for i := range 40 {
		d := pick(t, s, fmt.Sprintf("%d is the number", i), router.Target{ID: "a"}, router.Target{ID: "b"},
			router.Target{ID: "c"}, router.Target{ID: "d"})
		s.Record(d, router.Outcome{Stage: router.Sent})
		got[d.Target.ID]++
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 10, "c": 10, "d": 10}, got); diff != "" {
		t.Error(diff)
	}
}

// 20 system prompts of 8 KiB meet an idle fleet of 8 one at a time. Different
// ones are spread, also if they open with the same words. If they share a fifth,
// they are the same conversation as far as the rules can see, and follow the
// first: an operator who prefers a cold start raises HeldShare.
func TestIdleFleet(t *testing.T) {
	const size = 8 << 10
	for _, c := range []struct {
		name   string
		shared int
		cfg    cacheaware.Config
		most   int // of one target
	}{
		{"nothing in common", 0, cacheaware.Config{}, 3},
		{"an opening of 40 bytes in common", 40, cacheaware.Config{}, 3},
		{"nearly a tenth in common", size/10 - 10, cacheaware.Config{}, 3},
		{"a fifth in common", size / 5, cacheaware.Config{}, 20},
		{"a fifth in common, which is not enough", size / 5, cacheaware.Config{HeldShare: 0.3}, 3},
	} {
		c.cfg.Rand = seeded(7)
		s := mustNew(t, c.cfg)
		var ts []router.Target
		for i := range 8 {
			ts = append(ts, busy(fmt.Sprint("engine-", i), 0, 0))
		}
		got := map[string]int{}
		for i := range 20 {
			own := strings.Repeat(fmt.Sprintf("%d, and so on. ", i), size)
			text := strings.Repeat("s", c.shared) + own[:size-c.shared]
			d := pick(t, s, text, ts...)
			s.Record(d, router.Outcome{Stage: router.Sent})
			s.Record(d, router.Outcome{Stage: router.Finished})
			got[d.Target.ID]++
		}
		most := 0
		for _, n := range got {
			most = max(most, n)
		}
		if most != c.most {
			t.Errorf("%s: %v, want at most %d at one", c.name, got, c.most)
		}
	}
}
