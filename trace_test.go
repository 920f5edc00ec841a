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

// log is a Trace that records its calls.
type log struct{ lines []string }

func (l *log) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) trace() router.Trace {
	return router.Trace{
		Routed:   func(_ context.Context, i router.RouteInfo) { l.add("routed %s %d", i.Decision.Target.ID, i.Attempt) },
		NoTarget: func(_ context.Context, _ router.Prompt, err error) { l.add("no target: %v", err) },
		FirstToken: func(_ context.Context, d router.Decision) {
			l.add("first token %s", d.Target.ID)
		},
		Done: func(_ context.Context, d router.Decision, o router.Outcome) {
			l.add("done %s %v %d", d.Target.ID, o.Stage, o.Status)
		},
		Retry: func(_ context.Context, i router.RetryInfo) {
			l.add("retry after %s %v %d, attempt %d, in %v", i.Decision.Target.ID, i.Outcome.Stage, i.Outcome.Status,
				i.Attempt, i.Wait)
		},
	}
}

func TestTrace(t *testing.T) {
	ctx := t.Context()
	step := func(t *testing.T, l *log, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, l.lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		l.lines = nil
	}
	setup := func(o router.Options, ids ...string) (*log, *router.Router) {
		l := &log{}
		o.Trace = l.trace()
		return l, router.New(first, newPool(ready(ids...)...), o)
	}
	t.Run("a request", func(t *testing.T) {
		l, r := setup(router.Options{}, "a")
		lease := route(t, r, ctx)
		lease.FirstToken()
		lease.FirstToken()
		lease.Done(router.Outcome{Status: 200})
		lease.Done(router.Outcome{Status: 500})
		step(t, l, "routed a 1", "first token a", "done a finished 200")
	})
	t.Run("a first token that only the outcome tells of", func(t *testing.T) {
		l, r := setup(router.Options{}, "a")
		for _, o := range []router.Outcome{{Reply: "Ray"}, {OutputTokens: 1}, {Stage: router.FirstToken}} {
			route(t, r, ctx).Done(o)
			step(t, l, "routed a 1", "first token a", "done a finished 0")
		}
	})
	t.Run("failover", func(t *testing.T) {
		l, r := setup(router.Options{Backoff: 10, Rand: func() uint64 { return 0 }}, "a", "b")
		r.Do(ctx, prompt, func(context.Context, *router.Lease) (router.Outcome, error) {
			return router.Outcome{Status: 503}, nil
		})
		step(t, l,
			"routed a 1", "done a failed 503", "retry after a failed 503, attempt 1, in 5ns",
			"routed b 2", "done b failed 503", "retry after b failed 503, attempt 2, in 10ns",
			"no target: router: no target: 2 offered, 2 excluded, 0 not ready")
	})
	t.Run("assigned, and unknown", func(t *testing.T) {
		l, r := setup(router.Options{}, "a", "b")
		lease, err := r.Assign(ctx, prompt, "b")
		if err != nil {
			t.Fatal(err)
		}
		lease.Done(router.Outcome{Stage: router.Canceled})
		_, err = r.Assign(ctx, prompt, "c")
		step(t, l, "routed b 1", "done b canceled 0", "no target: "+err.Error())
	})
	t.Run("context done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, r := setup(router.Options{}, "a")
			ctx, cancel := context.WithCancel(t.Context())
			route(t, r, ctx)
			cancel()
			synctest.Wait()
			_, err := r.Route(ctx, prompt)
			if err != context.Canceled {
				t.Errorf("error %v", err)
			}
			step(t, l, "routed a 1", "done a canceled 0")
		})
	})
}

// Hooks may call the Router and the fleet: none is called under a lock.
func TestTraceReenters(t *testing.T) {
	v := newView(t, loadview.Config{CoolAfter: 1}, ids(4)...)
	plain := router.New(leastLoad(t), v, router.Options{})
	var r *router.Router
	calls := map[string]int{}
	busy := false
	again := func(hook string) {
		if busy { // a hook of the calls below
			return
		}
		busy = true
		defer func() { busy = false }()
		calls[hook]++
		v.Snapshot()
		ctx := context.Background()
		for _, r := range []*router.Router{r, plain} {
			if l, err := r.Route(ctx, prompt); err == nil {
				l.FirstToken()
				l.Done(router.Outcome{})
			}
			if l, err := r.Assign(ctx, prompt, "vllm-0"); err == nil {
				l.Done(router.Outcome{})
			}
			if _, err := r.Explain(ctx, prompt); err != nil {
				t.Error(err)
			}
		}
		if err := v.SetDraining("vllm-3", calls[hook]%2 == 0); err != nil {
			t.Error(err)
		}
	}
	r = router.New(cacheAware(t), v, router.Options{Backoff: -1, Trace: router.Trace{
		Routed:     func(context.Context, router.RouteInfo) { again("Routed") },
		NoTarget:   func(context.Context, router.Prompt, error) { again("NoTarget") },
		FirstToken: func(context.Context, router.Decision) { again("FirstToken") },
		Done:       func(context.Context, router.Decision, router.Outcome) { again("Done") },
		Retry:      func(context.Context, router.RetryInfo) { again("Retry") },
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			if l.Attempt() == 2 {
				l.FirstToken()
				return router.Outcome{}, nil
			}
			return router.Outcome{}, errRefused
		})
		if _, err := r.Route(t.Context(), prompt, ids(4)...); !errors.Is(err, router.ErrNoTarget) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l := route(t, plain, ctx)
		cancel()
		l.Done(router.Outcome{})
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a hook waits for a lock")
	}
	want := map[string]int{"Routed": 2, "NoTarget": 1, "FirstToken": 1, "Done": 2, "Retry": 1}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("called (-want +got):\n%s", diff)
	}
	wantIdle(t, v)
}

// Took is the time that the choice took, in which the fleet may have kept the
// request waiting.
func TestTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		s := pickFunc(func(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
			time.Sleep(3 * ms)
			return first(ctx, p, ts)
		})
		r := router.New(s, newPool(ready("a")...), router.Options{Trace: router.Trace{
			Routed: func(_ context.Context, i router.RouteInfo) { took = i.Took },
		}})
		route(t, r, t.Context()).Done(router.Outcome{})
		if took != 3*ms {
			t.Errorf("took %v", took)
		}
	})
}
