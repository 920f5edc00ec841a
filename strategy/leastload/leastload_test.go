package leastload_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/leastload"
)

func known(id string, weight float64, inFlight, queued int) router.Target {
	return router.Target{ID: id, Weight: weight, Load: router.Load{Known: true, InFlight: inFlight, Queued: queued}}
}

func TestPick(t *testing.T) {
	unready := known("x", 1, 0, 0)
	unready.State = router.Unhealthy
	for _, c := range []struct {
		name   string
		in     []router.Target
		want   string
		reason router.Reason
	}{
		{"least in flight", []router.Target{known("a", 1, 2, 0), known("b", 1, 1, 0), unready}, "b", router.ReasonLeastLoad},
		{"queued counts", []router.Target{known("a", 1, 2, 0), known("b", 1, 1, 5)}, "a", router.ReasonLeastLoad},
		{"weight 2 carries twice", []router.Target{known("a", 1, 2, 0), known("b", 2, 3, 0)}, "b", router.ReasonLeastLoad},
		{"only the ratio of weights matters", []router.Target{known("a", .1, 2, 0), known("b", .2, 3, 0)}, "b",
			router.ReasonLeastLoad},
		{"the unknown counts at the mean", []router.Target{known("a", 1, 4, 0), known("b", 1, 2, 0), {ID: "u"}}, "b",
			router.ReasonLeastLoad},
		{"prefill is not looked at", []router.Target{{ID: "a", Load: router.Load{Known: true, Prefill: 1e6}},
			known("b", 1, 1, 0)}, "a", router.ReasonLeastLoad},
		{"one is left", []router.Target{unready, known("b", 1, 9, 0)}, "b", router.ReasonOnly},
		{"huge and negative", []router.Target{known("a", math.NaN(), math.MaxInt, math.MaxInt), known("b", -1, -5, 3),
			known("c", 1, 2, 0)}, "c", router.ReasonLeastLoad},
	} {
		d, err := newStrategy(nil).Pick(context.Background(), router.Prompt{}, c.in)
		if err != nil || d.Target.ID != c.want || d.Reason != c.reason {
			t.Errorf("%s: %s %q %v, want %s %q", c.name, d.Target.ID, d.Reason, err, c.want, c.reason)
		}
	}
}

func TestNothingKnownIsRandomByWeight(t *testing.T) {
	ts := []router.Target{{ID: "a", Weight: 3}, {ID: "b", Weight: 1}}
	s := newStrategy(nil)
	counts := make(map[string]int)
	for range 4000 {
		d, err := s.Pick(context.Background(), router.Prompt{}, ts)
		if err != nil || d.Reason != router.ReasonRandom {
			t.Fatal(d.Reason, err)
		}
		counts[d.Target.ID]++
	}
	if n := counts["a"]; n < 2850 || n > 3150 { // 3000, and 5 standard deviations
		t.Errorf("%v, want about 3 to 1", counts)
	}
}

func TestNoTarget(t *testing.T) {
	_, err := newStrategy(nil).Pick(context.Background(), router.Prompt{},
		[]router.Target{{ID: "a", State: router.Cooling}})
	var e *router.NoTargetError
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&router.NoTargetError{Offered: 1, NotReady: 1}, e); diff != "" {
		t.Error(diff)
	}
}

func TestLength(t *testing.T) {
	ts := []router.Target{known("a", 1, 0, 0), known("b", 1, 0, 0)}
	for _, c := range []struct {
		p    router.Prompt
		n    int
		unit router.Unit
	}{
		{router.Prompt{}, 0, router.Bytes},
		{router.Prompt{Text: "four"}, 4, router.Bytes},
		{router.Prompt{Tokens: []uint32{1, 2}}, 2, router.Tokens},
		{router.Prompt{Text: "four", Tokens: []uint32{1, 2}}, 2, router.Tokens},
	} {
		d, err := newStrategy(nil).Pick(context.Background(), c.p, ts)
		if err != nil || d.Length != c.n || d.Unit != c.unit || d.Cached != 0 {
			t.Errorf("%+v: %d of %d %s, %v", c.p, d.Cached, d.Length, d.Unit, err)
		}
	}
}

func TestExplain(t *testing.T) {
	ts := []router.Target{known("d", 1, 5, 0), known("c", 1, 1, 0), known("b", 1, 0, 0), known("a", 1, 0, 0),
		{ID: "u", State: router.Draining}}
	type row struct {
		ID     string
		Score  float64
		Reason router.Reason
	}
	var got []row
	for _, c := range newStrategy(nil).(router.Explainer).Explain(context.Background(), router.Prompt{}, ts, nil) {
		got = append(got, row{c.Target.ID, c.Score, c.Reason})
	}
	want := []row{{"a", 1, "least_load"}, {"b", 1, "tied"}, {"c", 0.5, "busier"}, {"d", 1. / 6, "busier"},
		{"u", 0, "draining"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestName(t *testing.T) {
	if leastload.Name != string(router.ReasonLeastLoad) {
		t.Error(leastload.Name)
	}
}
