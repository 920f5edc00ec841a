package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

// TestTimed: the times of a request begin with the first attempt's call, and those of an attempt when its target was
// counted.
func TestTimed(t *testing.T) {
	type timing struct {
		Stage                router.Stage
		Attempt              int
		Request, Took, Reply time.Duration
	}
	const s = time.Second
	tests := map[string]struct {
		send func(*router.Lease) router.Outcome
		want []timing
	}{
		"a stream": {func(l *router.Lease) router.Outcome {
			time.Sleep(2 * s)
			l.FirstToken()
			time.Sleep(3 * s)
			return router.Outcome{Status: 200}
		}, []timing{{router.FirstToken, 1, 2 * s, 2 * s, 0}, {router.Finished, 1, 5 * s, 5 * s, 3 * s}}},
		"a first token that only the outcome tells of": {func(*router.Lease) router.Outcome {
			time.Sleep(2 * s)
			return router.Outcome{Status: 200, OutputTokens: 3}
		}, []timing{{router.FirstToken, 1, 2 * s, 2 * s, 0}, {router.Finished, 1, 2 * s, 2 * s, 0}}},
		"no token": {func(*router.Lease) router.Outcome {
			time.Sleep(2 * s)
			return router.Outcome{Status: 400}
		}, []timing{{router.Failed, 1, 2 * s, 2 * s, 0}}},
		"another attempt": {func(l *router.Lease) router.Outcome {
			time.Sleep(2 * s)
			if l.Attempt() == 1 {
				return router.Outcome{Status: 503}
			}
			l.FirstToken()
			time.Sleep(s)
			return router.Outcome{Status: 200}
		}, []timing{{router.Failed, 1, 2 * s, 2 * s, 0}, {router.FirstToken, 2, 5 * s, 2 * s, 0},
			{router.Finished, 2, 6 * s, 3 * s, s}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []timing
				r := router.New(first, newPool(ready("a", "b")...), router.Options{
					Backoff: 2 * s, Rand: func() uint64 { return 0 },
					Trace: router.Trace{Timed: func(_ context.Context, i router.Timing) {
						got = append(got, timing{i.Outcome.Stage, i.Attempt, i.Request, i.Took, i.Reply})
					}},
				})
				_ = r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
					return tt.send(l), nil
				})
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAsideIsNotTimed: the lease of a prefill for another target has no times of a request; everything else of it is
// reported.
func TestAsideIsNotTimed(t *testing.T) {
	var timed []string
	done := 0
	r := router.New(first, newPool(ready("a")...), router.Options{Trace: router.Trace{
		Done:  func(context.Context, router.Decision, router.Outcome) { done++ },
		Timed: func(_ context.Context, i router.Timing) { timed = append(timed, i.Outcome.Stage.String()) },
	}})
	for _, ctx := range []context.Context{router.Aside(t.Context()), t.Context()} {
		l := route(t, r, ctx)
		l.FirstToken()
		l.Done(router.Outcome{Status: 200})
	}
	if diff := cmp.Diff([]string{"first_token", "finished"}, timed); diff != "" || done != 2 {
		t.Errorf("%d done (-want +got):\n%s", done, diff)
	}
}
