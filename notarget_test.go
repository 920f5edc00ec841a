package router_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// The targets offered to the strategy, and the error if there are none.
func TestOffered(t *testing.T) {
	in := func(id string, s router.State) router.Target { return router.Target{ID: id, State: s} }
	mixed := []router.Target{in("a", router.Ready), in("b", router.Cooling), in("c", router.Draining),
		in("d", router.Ready)}
	down := []router.Target{in("a", router.Unhealthy), in("b", router.Cooling), in("c", router.Draining),
		in("d", router.Tripped)}
	tests := map[string]struct {
		targets  []router.Target
		exclude  []string
		failOpen bool
		offered  []router.Target
		want     *router.NoTargetError
	}{
		"all":                      {mixed, nil, false, mixed, nil},
		"all, failing open":        {mixed, nil, true, mixed, nil},
		"without the excluded":     {mixed, []string{"a", "c", "unknown"}, true, []router.Target{mixed[1], mixed[3]}, nil},
		"no targets":               {nil, nil, false, nil, &router.NoTargetError{}},
		"no targets, failing open": {nil, []string{"a"}, true, nil, &router.NoTargetError{}},
		"none Ready":               {down, nil, false, nil, &router.NoTargetError{Offered: 4, NotReady: 4}},
		"the Ready ones excluded": {mixed, []string{"a", "d"}, false, nil,
			&router.NoTargetError{Offered: 4, Excluded: 2, NotReady: 2}},
		"all excluded": {mixed, []string{"a", "b", "c", "d"}, true, nil,
			&router.NoTargetError{Offered: 4, Excluded: 4}},
		"failing open":               {down, nil, true, ready("a", "b", "d"), nil},
		"failing open, excluded too": {mixed, []string{"a", "d"}, true, ready("b"), nil},
		"only Draining":              {down[2:3], nil, true, nil, &router.NoTargetError{Offered: 1, NotReady: 1}},
		"only Draining not excluded": {mixed, []string{"a", "b", "d"}, true, nil,
			&router.NoTargetError{Offered: 4, Excluded: 3, NotReady: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var offered []router.Target
			s := pickFunc(func(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
				offered = append(offered, ts...)
				return first(ctx, p, ts)
			})
			var told error
			f := newPool(tt.targets...)
			r := router.New(s, f, router.Options{FailOpen: tt.failOpen, Trace: router.Trace{
				NoTarget: func(_ context.Context, p router.Prompt, err error) {
					if diff := cmp.Diff(prompt, p); diff != "" {
						t.Errorf("told of another prompt:\n%s", diff)
					}
					told = err
				},
			}})
			l, err := r.Route(t.Context(), prompt, tt.exclude...)
			if diff := cmp.Diff(tt.offered, offered); diff != "" {
				t.Errorf("offered (-want +got):\n%s", diff)
			}
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				l.Done(router.Outcome{})
				return
			}
			got, ok := err.(*router.NoTargetError)
			if !ok || l != nil || !errors.Is(err, router.ErrNoTarget) {
				t.Fatalf("(%v, %v)", l, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if told != err {
				t.Errorf("told of %v", told)
			}
		})
	}
}

// A strategy that fails: its own errors are returned unchanged, and if it says
// that there is no target, the numbers are those of the whole fleet.
func TestStrategyFails(t *testing.T) {
	wrapped := fmt.Errorf("filter: %w", router.ErrNoTarget)
	tests := map[string]struct{ err, want error }{
		"of its own":    {errRefused, errRefused},
		"wrapped":       {wrapped, wrapped},
		"the bare word": {router.ErrNoTarget, &router.NoTargetError{Offered: 4, Excluded: 1, NotReady: 1}},
		"with its numbers": {&router.NoTargetError{Offered: 3, NotReady: 3, RetryAfter: time.Hour},
			&router.NoTargetError{Offered: 4, Excluded: 1, NotReady: 1, RetryAfter: time.Hour}},
		"nil of its type": {(*router.NoTargetError)(nil), &router.NoTargetError{Offered: 4, Excluded: 1, NotReady: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := newView(t, loadview.Config{}, "a", "b", "c", "d")
			if err := v.SetUnhealthy("c", true); err != nil {
				t.Fatal(err)
			}
			w := &witness{Strategy: pickFunc(func(context.Context, router.Prompt, []router.Target) (router.Decision, error) {
				return router.Decision{Target: router.Target{ID: "b"}}, tt.err
			}), t: t}
			_, err := router.New(w, v, router.Options{}).Route(t.Context(), prompt, "a")
			if want, ok := tt.want.(*router.NoTargetError); ok {
				if diff := cmp.Diff(want, err); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			} else if err != tt.want {
				t.Errorf("error %v", err)
			}
			wantIdle(t, v)
		})
	}
}

// A strategy must choose among the offered targets.
func TestStrategyPicksWrong(t *testing.T) {
	for name, id := range map[string]string{"excluded": "a", "not Ready": "b", "unknown": "zebra", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []bool{false, true} {
				v := newView(t, loadview.Config{}, "a", "b", "c")
				if err := v.SetUnhealthy("b", true); err != nil {
					t.Fatal(err)
				}
				w := &witness{Strategy: pickFunc(func(context.Context, router.Prompt, []router.Target) (router.Decision, error) {
					return router.Decision{Target: router.Target{ID: id}}, nil // which says that it is Ready
				}), t: t}
				l, err := router.New(w, v, router.Options{FailOpen: open}).Route(t.Context(), prompt, "a")
				if l != nil || err == nil || errors.Is(err, router.ErrNoTarget) {
					t.Errorf("(%v, %v)", l, err)
				}
				if o := w.last().outcomes; len(o) != 0 {
					t.Errorf("recorded %+v", o)
				}
				wantIdle(t, v)
			}
		})
	}
}

// What a fleet does not count was not sent: the strategy hears so, and the trie
// of cache_aware holds nothing of it.
func TestFleetRefuses(t *testing.T) {
	tests := map[string]func(*pool){
		"with an error":    func(f *pool) { f.refuse = errRefused },
		"with a panic":     func(f *pool) { f.crash = "fleet" },
		"without a flight": func(f *pool) { f.empty = true },
	}
	for name, refuse := range tests {
		t.Run(name, func(t *testing.T) {
			f := newPool(ready("a", "b")...)
			refuse(f)
			w := &witness{Strategy: cacheAware(t), t: t}
			r := router.New(w, f, router.Options{})
			for _, call := range []func() (*router.Lease, error){
				func() (*router.Lease, error) { return r.Route(t.Context(), prompt) },
				func() (*router.Lease, error) { return r.Assign(t.Context(), prompt, "b") },
			} {
				func() {
					defer func() {
						if p := recover(); p != f.crash {
							t.Errorf("recovered %v", p)
						}
					}()
					l, err := call()
					if l != nil || err == nil || f.refuse != nil && err != errRefused {
						t.Errorf("(%v, %v)", l, err)
					}
				}()
				if diff := cmp.Diff([]router.Stage{router.Sent, router.Failed}, w.last().stages()); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
			}
			f.refuse, f.crash, f.empty = nil, nil, false
			for _, c := range explain(t, router.New(w.Strategy, f, router.Options{})) {
				if c.Cached != 0 {
					t.Errorf("%s is believed to hold %d bytes", c.Target.ID, c.Cached)
				}
			}
		})
	}
}

// How long until a target may be Ready again comes from the fleet.
func TestNoTargetRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 8 * time.Second, Jitter: -1, FullFor: -1}, "a", "b", "c")
		r := router.New(leastLoad(t), v, router.Options{Backoff: -1, MaxRetryAfter: -1})
		if err := v.SetDraining("c", true); err != nil {
			t.Fatal(err)
		}
		err := r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			if l.Attempt() == 1 {
				return router.Outcome{Err: errRefused}, nil
			}
			return router.Outcome{Status: 429, RetryAfter: 5 * time.Second}, nil
		})
		var status *router.StatusError
		if !errors.As(err, &status) || status.Status != 429 {
			t.Fatalf("the last error is %v", err)
		}
		time.Sleep(2 * time.Second)
		_, err = r.Route(t.Context(), prompt)
		want := &router.NoTargetError{Offered: 3, NotReady: 3, RetryAfter: 3 * time.Second}
		if diff := cmp.Diff(want, err); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(3 * time.Second)
		route(t, r, t.Context()).Done(router.Outcome{})
		_, err = r.Route(t.Context(), prompt, "a", "b")
		if e, ok := err.(*router.NoTargetError); !ok || e.Excluded != 2 || e.NotReady != 1 {
			t.Errorf("%v", err)
		}
	})
}

// The time is that of the targets that the request may go to: one that was ruled out does not make it shorter.
func TestNoTargetRetryAfterOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 8 * time.Second, Jitter: -1, FullFor: -1}, "a", "b", "c")
		r := router.New(leastLoad(t), v, router.Options{Backoff: -1, MaxRetryAfter: -1})
		after := map[string]time.Duration{"a": 5 * time.Second, "b": 8 * time.Second, "c": 20 * time.Second}
		_ = r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			return router.Outcome{Status: 429, RetryAfter: after[l.Decision().Target.ID]}, nil
		})
		some := r.Among(func(t router.Target) bool { return t.ID != "a" })
		for name, c := range map[string]struct {
			router  *router.Router
			exclude []string
			want    router.NoTargetError
		}{
			"all": {r, nil, router.NoTargetError{Offered: 3, NotReady: 3, RetryAfter: after["a"]}},
			"without the quickest": {r, []string{"a"},
				router.NoTargetError{Offered: 3, Excluded: 1, NotReady: 2, RetryAfter: after["b"]}},
			"the slowest alone": {r, []string{"b", "a"},
				router.NoTargetError{Offered: 3, Excluded: 2, NotReady: 1, RetryAfter: after["c"]}},
			"among some": {some, nil,
				router.NoTargetError{Offered: 3, Excluded: 1, NotReady: 2, RetryAfter: after["b"]}},
			"none is left": {some, []string{"b", "c"}, router.NoTargetError{Offered: 3, Excluded: 3}},
		} {
			_, err := c.router.Route(t.Context(), prompt, c.exclude...)
			if diff := cmp.Diff(error(&c.want), err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// Under FailOpen the whole fleet being down does not end the service: the first
// success brings a target back.
func TestFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{CoolAfter: 1, PanicThreshold: -1}, "a", "b", "c")
		if err := v.SetDraining("c", true); err != nil {
			t.Fatal(err)
		}
		for _, s := range []router.Strategy{leastLoad(t), cacheAware(t)} {
			w := &witness{Strategy: s, t: t}
			r := router.New(w, v, router.Options{FailOpen: true, Attempts: 9, Backoff: -1})
			for range 3 {
				var sent []string
				err := r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
					sent = append(sent, l.Decision().Target.ID)
					return router.Outcome{}, errRefused
				})
				if !errors.Is(err, errRefused) || len(sent) != 2 || sent[0] == sent[1] || sent[0] == "c" || sent[1] == "c" {
					t.Errorf("%v after %v", err, sent)
				}
			}
			l := route(t, r, t.Context())
			if s := l.Decision().Target.State; s != router.Ready {
				t.Errorf("the strategy saw %v", s)
			}
			if s := stateOf(t, v, l.Decision().Target.ID); s != router.Cooling {
				t.Errorf("the fleet's own state is %v", s)
			}
			l.Done(router.Outcome{Status: 200})
			if s := stateOf(t, v, l.Decision().Target.ID); s != router.Ready {
				t.Errorf("after a success it is %v", s)
			}
			wantIdle(t, v)
			w.check()
		}
	})
}
