package router_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/roundrobin"
)

func explain(t testing.TB, r *router.Router) []router.Candidate {
	t.Helper()
	cs, err := r.Explain(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func roundRobin(t testing.TB) router.Strategy {
	t.Helper()
	s, err := roundrobin.New(roundrobin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every candidate with its cached part, its load, its score, and the reason.
func TestExplain(t *testing.T) {
	v := newView(t, loadview.Config{}, "a", "b", "c", "d")
	r := router.New(cacheAware(t), v, router.Options{})
	l, err := r.Assign(t.Context(), prompt, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Done(router.Outcome{})
	half := router.Prompt{Model: prompt.Model, Text: prompt.Text[:9]}
	if l, err = r.Assign(t.Context(), half, "c"); err != nil {
		t.Fatal(err)
	}
	l.Done(router.Outcome{})
	if err := v.SetDraining("d", true); err != nil {
		t.Fatal(err)
	}
	const n = 20 // len(prompt.Text)
	known := func(id string, inFlight, prefill int, s router.State) router.Target {
		return router.Target{ID: id, State: s, Load: router.Load{Known: true, InFlight: inFlight, Prefill: prefill}}
	}
	want := []router.Candidate{
		{Target: known("b", 1, 5, router.Ready), Cached: n, Length: n, Score: 1, Reason: router.ReasonWarm},
		{Target: known("c", 0, 0, router.Ready), Cached: 9, Length: n, Score: 0.45, Reason: router.ReasonColder},
		{Target: known("a", 0, 0, router.Ready), Length: n, Reason: router.ReasonColder},
		{Target: known("d", 0, 0, router.Draining), Length: n, Reason: router.ReasonDraining},
	}
	if diff := cmp.Diff(want, explain(t, r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A strategy that is no Explainer has no scores. Who may be picked comes first.
func TestExplainWithoutExplainer(t *testing.T) {
	ts := []router.Target{{ID: "a", State: router.Tripped}, {ID: "b"}, {ID: "c", State: 99},
		{ID: "d", Weight: 2, Ref: "d.internal"}}
	r := router.New(first, newPool(ts...), router.Options{})
	nan, n := math.NaN(), len(prompt.Text)
	want := []router.Candidate{
		{Target: ts[1], Length: n, Score: nan},
		{Target: ts[3], Length: n, Score: nan},
		{Target: ts[0], Length: n, Score: nan, Reason: router.ReasonTripped},
		{Target: ts[2], Length: n, Score: nan, Reason: router.ReasonNotReady},
	}
	if diff := cmp.Diff(want, explain(t, r), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cs, err := r.Explain(t.Context(), router.Prompt{Tokens: make([]uint32, 7)})
	if err != nil || cs[0].Length != 7 || cs[0].Unit != router.Tokens {
		t.Errorf("%+v, %v", cs, err)
	}
}

// If nothing can be picked, Explain gives the reason of each target; under
// FailOpen it shows what would be offered, and what still would not.
func TestExplainNoneReady(t *testing.T) {
	ts := []router.Target{{ID: "a", State: router.Cooling}, {ID: "b", State: router.Draining},
		{ID: "c", State: router.Unhealthy}}
	type row struct {
		ID     string
		State  router.State
		Reason router.Reason
	}
	for _, s := range []router.Strategy{roundRobin(t), leastLoad(t), cacheAware(t)} {
		for open, want := range map[bool][]row{
			false: {{"a", router.Cooling, router.ReasonCooling}, {"b", router.Draining, router.ReasonDraining},
				{"c", router.Unhealthy, router.ReasonUnhealthy}},
			true: {{"a", router.Ready, ""}, {"c", router.Ready, ""}, {"b", router.Draining, router.ReasonDraining}},
		} {
			var got []row
			for _, c := range explain(t, router.New(s, newPool(ts...), router.Options{FailOpen: open})) {
				w := row{c.Target.ID, c.Target.State, c.Reason}
				if w.State == router.Ready {
					if w.Reason == "" {
						t.Errorf("%T gives no reason for %s", s, w.ID)
					}
					w.Reason = "" // each strategy's own
				}
				got = append(got, w)
			}
			if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b row) bool { return a.ID < b.ID })); diff != "" {
				t.Errorf("%T, open %v (-want +got):\n%s", s, open, diff)
			}
		}
	}
	cs := explain(t, router.New(leastLoad(t), newPool(), router.Options{FailOpen: true}))
	if len(cs) != 0 {
		t.Errorf("no targets: %+v", cs)
	}
}

// broken is a Fleet that offers nothing at all.
type broken struct{}

func (broken) Choose(
	context.Context, func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return router.Decision{}, nil, errRefused
}

func TestExplainBrokenFleet(t *testing.T) {
	r := router.New(first, broken{}, router.Options{})
	if cs, err := r.Explain(t.Context(), prompt); cs != nil || err != errRefused {
		t.Errorf("(%v, %v)", cs, err)
	}
	if l, err := r.Route(t.Context(), prompt); l != nil || err != errRefused {
		t.Errorf("(%v, %v)", l, err)
	}
}

// Looking changes nothing: no count, nobody's turn, and not the one request that
// a half-open breaker lets through. Two fleets with the same history, only one
// of them looked at, go on alike.
func TestExplainChangesNothing(t *testing.T) {
	strategies := map[string]func(testing.TB) router.Strategy{"round_robin": roundRobin, "cache_aware": cacheAware}
	for name, s := range strategies {
		t.Run(name, func(t *testing.T) {
			run := func(look bool) (log []string) {
				now := time.Unix(0, 0)
				v := newView(t, loadview.Config{
					CoolAfter: -1, Breaker: true, BreakerFailures: 2, BreakerOpen: time.Second,
					Now: func() time.Time { return now },
				}, "a", "b", "c")
				for id, n := range map[string]int{"a": 1, "b": 2, "c": 3} { // no draws
					if err := v.SetQueued(id, n); err != nil {
						t.Fatal(err)
					}
				}
				told := 0
				r := router.New(s(t), v, router.Options{Trace: router.Trace{
					Routed:   func(context.Context, router.RouteInfo) { told++ },
					NoTarget: func(context.Context, router.Prompt, error) { told++ },
				}})
				glance := func() {
					if look {
						before, seen := v.Snapshot(), told
						a := explain(t, r)
						if diff := cmp.Diff(a, explain(t, r), cmpopts.EquateNaNs()); diff != "" {
							t.Errorf("a second look (-first +second):\n%s", diff)
						}
						if diff := cmp.Diff(before, v.Snapshot()); diff != "" {
							t.Errorf("looked at (-before +after):\n%s", diff)
						}
						if told != seen {
							t.Error("a hook was told of a look")
						}
					}
				}
				for i := range 12 {
					glance()
					l := route(t, r, t.Context())
					glance()
					log = append(log, l.Decision().Target.ID+" "+string(l.Decision().Reason))
					o := router.Outcome{Status: 200}
					if l.Decision().Target.ID == "a" && i < 6 {
						o.Status = 500
					}
					l.Done(o)
				}
				// The breaker of one is open now, or was opened here.
				for range 2 {
					l, err := r.Assign(t.Context(), prompt, "a")
					if err != nil {
						t.Fatal(err)
					}
					l.Done(router.Outcome{Status: 500})
				}
				if s := stateOf(t, v, "a"); s != router.Tripped {
					t.Fatalf("the breaker's target is %v", s)
				}
				glance()
				now = now.Add(2 * time.Second)
				glance()
				l := route(t, r, t.Context(), "b", "c") // half-open: this one goes through
				glance()
				if _, err := r.Route(t.Context(), prompt, "b", "c"); !errors.Is(err, router.ErrNoTarget) {
					t.Errorf("a second one gave %v", err)
				}
				l.Done(router.Outcome{Status: 200})
				return append(log, stateOf(t, v, "a").String())
			}
			if diff := cmp.Diff(run(false), run(true)); diff != "" {
				t.Errorf("(-not looked at +looked at):\n%s", diff)
			}
		})
	}
}

// Assign takes any state, counts, and teaches the strategy.
func TestAssign(t *testing.T) {
	for _, s := range []router.State{router.Ready, router.Unhealthy, router.Cooling, router.Tripped, router.Draining, 99} {
		f := newPool(router.Target{ID: "a"}, router.Target{ID: "b", State: s, Weight: 3, Ref: "b.internal",
			Load: router.Load{Known: true, InFlight: 50}})
		w := &witness{Strategy: cacheAware(t), t: t}
		r := router.New(w, f, router.Options{})
		for i, cached := range []int{0, len(prompt.Text)} {
			l, err := r.Assign(t.Context(), prompt, "b")
			if err != nil {
				t.Fatal(err)
			}
			d := l.Decision()
			d.Memo = nil
			want := router.Decision{Prompt: prompt, Target: f.targets[1], Cached: cached, Length: len(prompt.Text),
				Reason: router.ReasonAssigned}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Errorf("time %d (-want +got):\n%s", i+1, diff)
			}
			if f.counts["b"] != 1 {
				t.Errorf("counts %v", f.counts)
			}
			l.Done(router.Outcome{Status: 200})
		}
		w.check()
		if f.counts["b"] != 0 {
			t.Errorf("counts %v", f.counts)
		}
		f.targets[1].State, f.targets[1].Load = router.Ready, router.Load{}
		l := route(t, r, t.Context())
		if d := l.Decision(); d.Target.ID != "b" || d.Reason != router.ReasonWarm {
			t.Errorf("learned nothing of %v: %s, %s", s, d.Target.ID, d.Reason)
		}
	}
}

func TestAssignUnknown(t *testing.T) {
	v := newView(t, loadview.Config{}, "a", "b")
	w := &witness{Strategy: first, t: t}
	for _, open := range []bool{false, true} {
		l, err := router.New(w, v, router.Options{FailOpen: open}).Assign(t.Context(), prompt, "zebra")
		want := &router.NoTargetError{Offered: 2, Excluded: 2}
		if diff := cmp.Diff(want, err); diff != "" || l != nil {
			t.Errorf("%v (-want +got):\n%s", l, diff)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if l, err := router.New(w, v, router.Options{}).Assign(ctx, prompt, "a"); l != nil || err != errGone {
		t.Errorf("(%v, %v)", l, err)
	}
	if len(w.stories) != 0 {
		t.Errorf("%d decisions", len(w.stories))
	}
	wantIdle(t, v)
}

// A strategy that does not go along with the assigned target hears of it by a
// decision made by hand.
func TestAssignAgainstStrategy(t *testing.T) {
	for name, s := range map[string]pickFunc{
		"fails": func(context.Context, router.Prompt, []router.Target) (router.Decision, error) {
			return router.Decision{Memo: "no"}, errRefused
		},
		"picks another": func(context.Context, router.Prompt, []router.Target) (router.Decision, error) {
			return router.Decision{Target: router.Target{ID: "a"}, Memo: "no", Cached: 5}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t, loadview.Config{}, "a", "b")
			l, err := router.New(s, v, router.Options{}).Assign(t.Context(), prompt, "b")
			if err != nil {
				t.Fatal(err)
			}
			want := router.Decision{
				Prompt: prompt, Target: router.Target{ID: "b", Load: router.Load{Known: true}},
				Length: len(prompt.Text), Reason: router.ReasonAssigned,
			}
			if diff := cmp.Diff(want, l.Decision()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			wantCounts(t, v, 0, 1)
			l.Done(router.Outcome{})
			wantIdle(t, v)
		})
	}
}

// Forget reaches a strategy that can, and does no harm to one that cannot.
func TestForget(t *testing.T) {
	v := newView(t, loadview.Config{}, "a", "b")
	r := router.New(cacheAware(t), v, router.Options{})
	l := route(t, r, t.Context())
	id := l.Decision().Target.ID
	r.Forget("unknown")
	if c := explain(t, r)[0]; c.Target.ID != id || c.Cached == 0 {
		t.Errorf("%+v", c)
	}
	r.Forget(id)
	for _, c := range explain(t, r) {
		if c.Cached != 0 {
			t.Errorf("%+v", c)
		}
	}
	l.Done(router.Outcome{})
	router.New(first, v, router.Options{}).Forget("a")
}
