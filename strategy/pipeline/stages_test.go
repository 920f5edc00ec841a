package pipeline_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// drop is a filter that drops the targets with these IDs.
func drop(ids ...string) pipeline.Filter {
	return pipeline.FilterFunc(func(_ context.Context, o *pipeline.Offer, keep []bool) {
		for i := range keep {
			keep[i] = !slices.Contains(ids, o.Targets[i].ID)
		}
	})
}

// says is a scorer that gives each ID a score.
func says(scores map[string]float64) pipeline.Scorer {
	return pipeline.ScorerFunc(func(_ context.Context, o *pipeline.Offer, out []float64) {
		for i := range out {
			out[i] = scores[o.Targets[i].ID]
		}
	})
}

func TestFilters(t *testing.T) {
	down := busy("down", 0)
	down.State = router.Unhealthy
	ts := []router.Target{busy("a", 0), down, busy("b", 1), busy("c", 2)}
	for _, c := range []struct {
		filters []pipeline.Filter
		relax   bool
		want    string // "": none
	}{
		{nil, false, "a"},
		{[]pipeline.Filter{drop("a")}, false, "b"},
		{[]pipeline.Filter{drop("a"), drop("b")}, false, "c"},
		{[]pipeline.Filter{drop("a", "b", "c")}, false, ""},
		{[]pipeline.Filter{drop("a"), drop("b", "c")}, false, ""},
		{[]pipeline.Filter{drop("a", "b", "c")}, true, "a"},
		{[]pipeline.Filter{drop("a"), drop("b", "c")}, true, "b"},
		{[]pipeline.Filter{drop("a", "b", "c"), drop("a", "b")}, true, "c"},
		{[]pipeline.Filter{drop("nobody")}, false, "a"},
	} {
		var told []pipeline.NoneLeft
		s := mustNew(t, pipeline.Config{Filters: c.filters, RelaxFilters: c.relax, Trace: &pipeline.Trace{
			NoneLeft: func(_ context.Context, n pipeline.NoneLeft) { told = append(told, n) },
		}})
		was := slices.Clone(ts)
		d, err := s.Pick(t.Context(), router.Prompt{Text: "x"}, ts)
		if !slices.Equal(ts, was) {
			t.Error("the offered slice was written to")
		}
		if c.want == "" {
			var none *router.NoTargetError
			if !errors.As(err, &none) || *none != (router.NoTargetError{Offered: 4, Excluded: 3, NotReady: 1}) {
				t.Errorf("%d filters: %v", len(c.filters), err)
			}
			if len(told) != 1 || told[0].Filter != len(c.filters)-1 || told[0].Relaxed {
				t.Errorf("told %+v", told)
			}
			continue
		}
		if err != nil || d.Target.ID != c.want {
			t.Errorf("%d filters, relax %v: %s, %v, want %s", len(c.filters), c.relax, d.Target.ID, err, c.want)
		}
		for _, n := range told {
			if !n.Relaxed {
				t.Errorf("told %+v", n)
			}
		}
	}
}

// What was dropped is not compared with: its idleness makes nobody busy, its
// weight nobody light. Its cache still counts as what it holds.
func TestDroppedDoNotCount(t *testing.T) {
	big := busy("big", 0)
	big.Weight = 100
	ts := []router.Target{big, busy("a", 3), busy("b", 5)}
	p := inSession("s")
	for _, cfg := range []pipeline.Config{{}, {Filters: []pipeline.Filter{drop("big")}}} {
		s := mustNew(t, cfg)
		send(t, s, p, "a")
		for _, d := range s.Details(t.Context(), p, ts) {
			if d.Target.ID != "a" {
				continue
			}
			if filtered := cfg.Filters != nil; filtered != (d.Parts[0].Score == 1 && d.Parts[1].Score == 1 &&
				d.Reason == pipeline.ReasonSession) {
				t.Errorf("filtered %v: %+v", filtered, d)
			}
		}
	}
}

// Filters and scorers see only candidates, with their cached parts.
func TestOffer(t *testing.T) {
	var seen []pipeline.Offer
	look := func(o *pipeline.Offer) {
		c := *o
		c.Targets, c.Cached = slices.Clone(o.Targets), slices.Clone(o.Cached)
		seen = append(seen, c)
	}
	down := busy("down", 0)
	down.State = router.Draining
	var loads []float64
	s := mustNew(t, pipeline.Config{
		Filters: []pipeline.Filter{
			pipeline.FilterFunc(func(_ context.Context, o *pipeline.Offer, _ []bool) { look(o) }), drop("x"),
		},
		Scorers: []pipeline.Weighted{{Scorer: pipeline.ScorerFunc(
			func(_ context.Context, o *pipeline.Offer, scores []float64) {
				look(o)
				for i := range scores {
					if scores[i] != 0 {
						t.Errorf("scores begin with %v", scores[i])
					}
					loads = append(loads, o.Load(i))
				}
				loads = append(loads, o.LeastLoad())
			})}},
	})
	for _, p := range []router.Prompt{{Model: "m", Text: "0123456789"}, {Model: "m", Tokens: []uint32{1, 2, 3, 4}}} {
		seen, loads = nil, nil
		send(t, s, p, "b")
		seen, loads = nil, nil
		heavy := busy("b", 4)
		heavy.Weight = 2
		pickFor(t, s, p, busy("x", 0), down, heavy, router.Target{ID: "c"}, busy("d", 3))
		n, u := p.Length()
		want := []pipeline.Offer{
			{Prompt: p, Targets: []router.Target{busy("x", 0), heavy, {ID: "c"}, busy("d", 3)}, Cached: []int{0, n, 0, 0},
				Length: n, Unit: u},
			{Prompt: p, Targets: []router.Target{heavy, {ID: "c"}, busy("d", 3)}, Cached: []int{n, 0, 0}, Length: n, Unit: u},
		}
		if diff := cmp.Diff(want, seen, cmpopts.IgnoreUnexported(pipeline.Offer{})); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]float64{2, 2.5, 3, 2}, loads); diff != "" {
			t.Error(diff)
		}
	}
}

// A scorer of the caller's own counts by its weight, and its bad scores are taken
// for the nearest good ones and reported once a call.
func TestBadScores(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		scores map[string]float64
		want   map[string]float64
		told   *pipeline.BadScores
	}{
		{map[string]float64{"a": 0, "b": 1, "c": 0.5}, map[string]float64{"a": 0, "b": 1, "c": 0.5}, nil},
		{map[string]float64{"a": math.NaN(), "b": 1}, map[string]float64{"a": 0, "b": 1, "c": 0},
			&pipeline.BadScores{Scorer: "mine", Target: "a", Score: math.NaN(), Count: 1}},
		{map[string]float64{"a": inf, "b": -inf, "c": 7}, map[string]float64{"a": 1, "b": 0, "c": 1},
			&pipeline.BadScores{Scorer: "mine", Target: "a", Score: inf, Count: 3}},
		{map[string]float64{"b": -0.001, "c": 1.001}, map[string]float64{"a": 0, "b": 0, "c": 1},
			&pipeline.BadScores{Scorer: "mine", Target: "b", Score: -0.001, Count: 2}},
	} {
		var told []pipeline.BadScores
		cfg := pipeline.Config{
			StaticWeight: -1, LoadWeight: -1, AffinityWeight: -1,
			Scorers: []pipeline.Weighted{{Name: "mine", Scorer: says(c.scores), Weight: 3}},
			Trace:   &pipeline.Trace{BadScores: func(_ context.Context, b pipeline.BadScores) { told = append(told, b) }},
		}
		s := mustNew(t, cfg)
		ts := []router.Target{busy("a", 1), busy("b", 0), busy("c", 5)}
		got := map[string]float64{}
		for _, x := range s.Explain(t.Context(), router.Prompt{}, ts, nil) {
			got[x.Target.ID] = x.Score
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.scores, diff)
		}
		if len(told) > 0 {
			t.Errorf("Explain told %+v", told)
		}
		pickFor(t, s, router.Prompt{}, ts...)
		var want []pipeline.BadScores
		if c.told != nil {
			want = append(want, *c.told)
		}
		if diff := cmp.Diff(want, told, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%v: %s", c.scores, diff)
		}
		cfg.Trace = nil // nobody listens
		pickFor(t, mustNew(t, cfg), router.Prompt{}, ts...)
	}
}

// The caller's scorers are in addition to the built-in ones.
func TestOwnScorerCounts(t *testing.T) {
	for weight, want := range map[float64]string{-1: "idle", 0.01: "idle", 0: "mine", 100: "mine"} {
		s := mustNew(t, pipeline.Config{Scorers: []pipeline.Weighted{{Scorer: says(map[string]float64{"mine": 1}),
			Weight: weight}}})
		if !always(t, s, router.Prompt{}, want, busy("idle", 0), busy("mine", 2)) {
			t.Errorf("weight %v: not %s", weight, want)
		}
	}
}

// A panic of a scorer reaches the caller, and the strategy goes on.
func TestScorerPanics(t *testing.T) {
	boom := true
	s := mustNew(t, pipeline.Config{
		Filters: []pipeline.Filter{drop("c")},
		Scorers: []pipeline.Weighted{{Scorer: pipeline.ScorerFunc(func(context.Context, *pipeline.Offer, []float64) {
			if boom {
				panic("boom")
			}
		})}},
	})
	send := func() (d router.Decision, err any) {
		defer func() { err = recover() }()
		return pickFor(t, s, inSession("s"), busy("a", 0), busy("b", 1), busy("c", 0)), nil
	}
	for range 3 {
		if _, err := send(); err != "boom" {
			t.Fatal("the panic did not reach the caller")
		}
	}
	boom = false
	d, err := send()
	if err != nil || d.Target.ID != "a" || s.Stats().Prompts != 0 {
		t.Errorf("%s, %v, %+v", d.Target.ID, err, s.Stats())
	}
	record(s, d, router.Sent)
	if got := at(t, s, inSession("s")); got != "a" {
		t.Errorf("at %q", got)
	}
}

func TestSelector(t *testing.T) {
	var asked int
	worst := pipeline.SelectorFunc(func(_ context.Context, o *pipeline.Offer, scores []float64, _ uint64) int {
		asked++
		at := 0
		for i := range scores {
			if len(scores) != len(o.Targets) || !(scores[i] >= 0 && scores[i] <= 1) {
				t.Fatalf("scores %v", scores)
			}
			if scores[i] < scores[at] {
				at = i
			}
		}
		return at
	})
	ts := []router.Target{busy("a", 0), busy("b", 9), busy("c", 5), {ID: "down", State: router.Tripped}}
	s := mustNew(t, pipeline.Config{Selector: worst})
	if !always(t, s, router.Prompt{Text: "x"}, "b", ts...) || asked != 30 {
		t.Errorf("the selector was asked %d times", asked)
	}
	send(t, s, inSession("s"), "a")
	asked = 0
	if !always(t, s, inSession("s"), "a", ts...) || asked != 0 {
		t.Errorf("a session was left to the selector %d times", asked)
	}
	for _, i := range []int{-1, 3, math.MaxInt, math.MinInt} {
		s := mustNew(t, pipeline.Config{Selector: pipeline.SelectorFunc(
			func(context.Context, *pipeline.Offer, []float64, uint64) int { return i })})
		if !always(t, s, router.Prompt{Text: "x"}, "a", ts...) {
			t.Errorf("index %d was not left to the greatest score", i)
		}
	}
}

// An append to a slice that a stage was lent does not reach the caller's slice.
func TestStagesCannotReachBehindTheEnd(t *testing.T) {
	s := mustNew(t, pipeline.Config{Scorers: []pipeline.Weighted{{Scorer: pipeline.ScorerFunc(
		func(_ context.Context, o *pipeline.Offer, _ []float64) { _ = append(o.Targets, busy("behind", 0)) })}}})
	all := []router.Target{busy("a", 0), busy("b", 0), busy("theirs", 0)}
	pickFor(t, s, router.Prompt{}, all[:2]...)
	if _, err := s.Pick(t.Context(), router.Prompt{}, all[:2]); err != nil || all[2].ID != "theirs" {
		t.Errorf("%v, %s", err, all[2].ID)
	}
}

func TestExplain(t *testing.T) {
	down, weak := busy("down", 0), busy("weak", 0)
	down.State = router.Cooling
	weak.Weight = 0.5
	s := mustNew(t, pipeline.Config{Filters: []pipeline.Filter{drop("out")}})
	p := router.Prompt{Model: "m", Session: "s", Text: strings.Repeat("x", 100)}
	send(t, s, p, "home")
	send(t, s, router.Prompt{Model: "m", Text: p.Text}, "warm")
	ts := []router.Target{down, busy("out", 0), busy("idle", 0), busy("two", 0), busy("warm", 1), busy("home", 20),
		busy("slow", 2), weak}
	type row struct {
		ID     string
		Reason router.Reason
	}
	table := func(ts []router.Target) (rows []row) {
		for _, c := range s.Explain(t.Context(), p, ts, nil) {
			rows = append(rows, row{c.Target.ID, c.Reason})
		}
		return rows
	}
	if diff := cmp.Diff([]row{
		{"warm", "warm"},       // 1 + 2x0.889 + 1: its load is 0.5, in units of the lightest
		{"idle", "colder"},     // 1 + 2
		{"two", "colder"},      // 1 + 2
		{"slow", "colder"},     // 1 + 2x0.8
		{"home", "overloaded"}, // 1 + 2x0.286 + 1
		{"weak", "colder"},     // 0.5 + 2
		{"out", "filtered"},
		{"down", "cooling"},
	}, table(ts)); diff != "" {
		t.Error(diff)
	}
	ts[5].Load.InFlight = 1
	for i, r := range table(ts) {
		if (i == 0) != (r.Reason == pipeline.ReasonSession) || i == 0 && r.ID != "home" || i > 0 && i < 6 &&
			r.Reason != pipeline.ReasonNotSession {
			t.Errorf("number %d is %+v", i+1, r)
		}
	}
	got := s.Details(t.Context(), router.Prompt{Model: "m", Text: p.Text},
		[]router.Target{busy("warm", 4), busy("idle", 0)})
	want := []pipeline.Detail{
		{Candidate: router.Candidate{Target: busy("warm", 4), Cached: 100, Length: 100, Score: 0.75,
			Reason: router.ReasonWarm},
			Parts: []pipeline.Part{{"static", 1, 1}, {"load", 2, 0.5}, {"affinity", 1, 1}}},
		{Candidate: router.Candidate{Target: busy("idle", 0), Length: 100, Score: 0.75, Reason: router.ReasonColder},
			Parts: []pipeline.Part{{"static", 1, 1}, {"load", 2, 1}, {"affinity", 1, 0}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Why a target is passed over: what took it the farthest from the one to take.
func TestPassedOver(t *testing.T) {
	light := busy("light", 0)
	light.Weight = 0.5
	s := mustNew(t, pipeline.Config{Scorers: []pipeline.Weighted{{Scorer: says(map[string]float64{"light": 1, "tied": 1,
		"first": 1, "busy": 1})}}})
	got := map[string]router.Reason{}
	for _, c := range s.Explain(t.Context(), router.Prompt{Text: "x"}, []router.Target{
		busy("first", 0), busy("tied", 0), busy("busy", 2), light, busy("unloved", 0),
	}, nil) {
		got[c.Target.ID] = c.Reason
	}
	if diff := cmp.Diff(map[string]router.Reason{
		"first": router.ReasonCold, "tied": router.ReasonTied, "busy": router.ReasonBusier,
		"light": pipeline.ReasonLowerScore, "unloved": pipeline.ReasonLowerScore,
	}, got); diff != "" {
		t.Error(diff)
	}
}
