package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// warmTo returns a strategy and a prompt of 1,000 bytes of which "warm" was sent
// the first n.
func warmTo(tb testing.TB, cfg pipeline.Config, n int) (*pipeline.Strategy, router.Prompt) {
	s := mustNew(tb, cfg)
	text := strings.Repeat("0123456789", 100)
	if n > 0 {
		send(tb, s, router.Prompt{Model: "m", Text: text[:n] + "~"}, "warm")
	}
	return s, router.Prompt{Model: "m", Text: text}
}

// A load of 100 against 0 beats any cache.
func TestGreatLoadBeatsAnyCache(t *testing.T) {
	for _, n := range []int{1, 100, 500, 999, 1000} {
		for _, idle := range []int{0, 1, 5} {
			s, p := warmTo(t, pipeline.Config{}, n)
			if !always(t, s, p, "idle", busy("warm", 100+idle), busy("idle", idle)) {
				t.Errorf("%d of 1000 cached: load %d was not left for %d", n, 100+idle, idle)
			}
		}
	}
}

// It is the difference of the loads that counts, not the share of the greatest:
// a target that [1,0] leaves although it is warm, [100,0] does not.
func TestLoadsDoNotLookAlike(t *testing.T) {
	s, p := warmTo(t, pipeline.Config{}, 1000)
	if !always(t, s, p, "warm", busy("warm", 1), busy("idle", 0)) {
		t.Error("[1,0]: the warm one was left")
	}
	if !always(t, s, p, "idle", busy("warm", 100), busy("idle", 0)) {
		t.Error("[100,0]: the warm one was not left")
	}
	score := func(n int) float64 {
		ds := s.Details(t.Context(), router.Prompt{}, []router.Target{busy("x", n), busy("idle", 0)})
		return ds[1].Parts[1].Score
	}
	last := 1.0
	for n := 1; n < 1000; n++ {
		if x := score(n); !(x < last) || x != 4/(4+float64(n)) {
			t.Fatalf("load %d has score %v, after %v", n, x, last)
		} else {
			last = x
		}
	}
	// Equal steps at the bottom and far above it are the same.
	for _, base := range []int{0, 3, 1000} {
		if a, b := score(7), s.Details(t.Context(), router.Prompt{},
			[]router.Target{busy("x", base+7), busy("idle", base)})[1].Parts[1].Score; a != b {
			t.Errorf("7 beyond %d has score %v, beyond 0 %v", base, b, a)
		}
	}
}

// A hundredth of the prompt never wins against an idle target, however short the
// queue.
func TestSlightCacheNeverBeatsIdle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s, p := warmTo(t, pipeline.Config{}, 10)
	for range 500 {
		ts := []router.Target{busy("warm", 1+rng.IntN(50)), busy("idle", 0)}
		for i := range rng.IntN(6) {
			ts = append(ts, busy(fmt.Sprint(i), 1+rng.IntN(50)))
		}
		rng.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
		if d := pickFor(t, s, p, ts...); d.Target.ID != "idle" {
			t.Fatalf("took %s of %+v", d.Target.ID, ts)
		}
	}
}

// A full match is worth four requests: up to three are waited for, at four the
// scores are equal and the cache decides, five are not waited for.
func TestFullMatchIsWorthFour(t *testing.T) {
	s, p := warmTo(t, pipeline.Config{}, 1000)
	for n, want := range []string{"warm", "warm", "warm", "warm", "warm", "idle", "idle"} {
		if !always(t, s, p, want, busy("warm", n), busy("idle", 0)) {
			t.Errorf("a queue of %d: not %s", n, want)
		}
	}
}

// A queue that the engine reports counts as what this process sent.
func TestQueuedCounts(t *testing.T) {
	s, p := warmTo(t, pipeline.Config{}, 1000)
	warm := busy("warm", 2)
	warm.Load.Queued = 3
	if !always(t, s, p, "idle", warm, busy("idle", 0)) {
		t.Error("the engine's queue was not seen")
	}
}

// More load or less cache never makes a target's score better, and no score of
// another worse.
func TestMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s, p := warmTo(t, pipeline.Config{}, 700)
	scores := func(ts []router.Target) map[string]float64 {
		m := map[string]float64{}
		for _, c := range s.Explain(t.Context(), p, ts, nil) {
			m[c.Target.ID] = c.Score
		}
		return m
	}
	for range 300 {
		var ts []router.Target
		for _, id := range []string{"warm", "b", "c", "d"} {
			x := busy(id, rng.IntN(20))
			x.Weight = []float64{1, 2, 0.5}[rng.IntN(3)]
			ts = append(ts, x)
		}
		before := scores(ts)
		i := rng.IntN(len(ts))
		ts[i].Load.InFlight += 1 + rng.IntN(5)
		after := scores(ts)
		for id, x := range after {
			if id == ts[i].ID && x > before[id] || id != ts[i].ID && x < before[id] {
				t.Fatalf("%s: %v, then %v with more load on %s", id, before[id], x, ts[i].ID)
			}
		}
	}
}

// traffic keeps open requests under way and returns what each target got.
func traffic(t *testing.T, s *pipeline.Strategy, ts []router.Target, requests, open int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	var flight []int
	for i := range requests {
		d := pickFor(t, s, router.Prompt{Model: "m", Text: fmt.Sprint(i, " has nothing in common")}, ts...)
		for k := range ts {
			if ts[k].ID == d.Target.ID {
				ts[k].Load.InFlight++
				flight = append(flight, k)
			}
		}
		counts[d.Target.ID]++
		if len(flight) > open {
			ts[flight[0]].Load.InFlight--
			flight = flight[1:]
		}
	}
	return counts
}

// A weight of 2 against 1 biases traffic, at light and at heavy load; equal
// weights do not.
func TestWeightBiasesTraffic(t *testing.T) {
	for _, open := range []int{3, 12, 60} {
		for _, w := range []float64{1, 2} {
			a, b := busy("a", 0), busy("b", 0)
			a.Weight, b.Weight = w, 1
			n := traffic(t, mustNew(t, pipeline.Config{Rand: seeded(5)}), []router.Target{a, b}, 3000, open)
			ratio := float64(n["a"]) / float64(n["b"])
			if w == 1 && (ratio < 0.9 || ratio > 1.1) || w == 2 && ratio < 1.8 {
				t.Errorf("weights %v to 1, %d under way: %v", w, open, n)
			}
		}
	}
}

// Each weight can be set, and turned off, by itself.
func TestWeights(t *testing.T) {
	heavy := busy("heavy", 3)
	heavy.Weight = 3 // a load of 1, in units of the lightest
	ts := []router.Target{heavy, busy("idle", 0), busy("warm", 2)}
	for _, c := range []struct {
		cfg  pipeline.Config
		want string
	}{
		{pipeline.Config{}, "warm"},                                     // 0.33+1.33+1 against 1+1.6 and 0.33+2
		{pipeline.Config{StaticWeight: 10}, "heavy"},                    //
		{pipeline.Config{LoadWeight: 10}, "idle"},                       //
		{pipeline.Config{AffinityWeight: -1}, "heavy"},                  // 1+1.6 against 0.33+2
		{pipeline.Config{AffinityWeight: -1, StaticWeight: -1}, "idle"}, //
		{pipeline.Config{LoadHalf: 0.5, StaticWeight: -1}, "idle"},      // 2*0.2+1 against 2
		{pipeline.Config{LoadHalf: 400, AffinityWeight: -1}, "heavy"},   //
		{pipeline.Config{LoadWeight: -1, StaticWeight: -1}, "warm"},     //
		{pipeline.Config{LoadWeight: 1e30, StaticWeight: 1e-30}, "idle"},
	} {
		s, p := warmTo(t, c.cfg, 1000)
		if !always(t, s, p, c.want, ts...) {
			t.Errorf("%+v: not %s: %+v", c.cfg, c.want, s.Details(t.Context(), p, ts))
		}
	}
}

// Without any scorer all candidates have equal chances.
func TestNothingScored(t *testing.T) {
	s, p := warmTo(t, pipeline.Config{StaticWeight: -1, LoadWeight: -1, AffinityWeight: -1, Rand: seeded(1)}, 1000)
	n := map[string]int{}
	for range 3000 {
		d := pickFor(t, s, p, busy("warm", 9), busy("b", 0), busy("c", 100))
		if d.Reason != router.ReasonRandom {
			t.Fatal(d.Reason)
		}
		n[d.Target.ID]++
	}
	for _, id := range []string{"warm", "b", "c"} {
		if n[id] < 850 || n[id] > 1150 {
			t.Errorf("unfair: %v", n)
		}
	}
}

func TestReasons(t *testing.T) {
	long := strings.Repeat("x", 1000)
	s := mustNew(t, pipeline.Config{})
	send(t, s, router.Prompt{Model: "m", Text: long}, "warm")
	for _, c := range []struct {
		text string
		ts   []router.Target
		want router.Reason
	}{
		{long, []router.Target{busy("warm", 0), busy("b", 0)}, router.ReasonWarm},
		{long, []router.Target{busy("warm", 9), busy("b", 0)}, router.ReasonSpill},
		{"other", []router.Target{busy("warm", 9), busy("b", 0)}, router.ReasonCold},
		{long[:90] + strings.Repeat("y", 910), []router.Target{busy("warm", 0), busy("b", 0)}, router.ReasonCold},
		{"", []router.Target{busy("warm", 0), busy("b", 0)}, router.ReasonEmpty},
		{long, []router.Target{busy("warm", 0), {ID: "b", State: router.Tripped}}, router.ReasonOnly},
	} {
		if d := pickFor(t, s, router.Prompt{Model: "m", Text: c.text}, c.ts...); d.Reason != c.want {
			t.Errorf("%.9q, %+v: %s, want %s", c.text, c.ts, d.Reason, c.want)
		}
	}
}
