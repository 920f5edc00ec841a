package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// A time-out of one attempt speaks against its target, unlike the client's own end,
// and the request continues only if nothing was sent or the host allows it.
func TestAttemptTimeout(t *testing.T) {
	hang := func(ctx context.Context) (router.Outcome, error) {
		<-ctx.Done()
		return router.Outcome{}, ctx.Err()
	}
	always := func(router.Outcome) bool { return true }
	for name, tt := range map[string]struct {
		opts  router.Options
		send  func(context.Context, *router.Lease) (router.Outcome, error)
		sent  int
		stage router.Stage // of the first attempt
		err   error
	}{
		"hangs": {
			router.Options{AttemptTimeout: time.Second},
			func(ctx context.Context, _ *router.Lease) (router.Outcome, error) { return hang(ctx) },
			1, router.Failed, router.ErrAttemptTimeout},
		"says that it was canceled": {
			router.Options{AttemptTimeout: time.Second},
			func(ctx context.Context, _ *router.Lease) (router.Outcome, error) {
				<-ctx.Done()
				return router.Outcome{Stage: router.Canceled}, nil
			}, 1, router.Failed, router.ErrAttemptTimeout},
		"was not sent": {
			router.Options{AttemptTimeout: time.Second, Backoff: -1},
			func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				if l.Attempt() > 1 {
					return router.Outcome{Status: 200}, nil
				}
				_, err := hang(ctx)
				return router.Outcome{NotSent: true}, err
			}, 2, router.Failed, nil},
		"hangs, and the host allows another": {
			router.Options{AttemptTimeout: time.Second, Backoff: -1, Retryable: always},
			func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				if l.Attempt() > 1 {
					return router.Outcome{Status: 200}, nil
				}
				return hang(ctx)
			}, 2, router.Failed, nil},
		"hangs after the first token": {
			router.Options{AttemptTimeout: time.Second, Retryable: always},
			func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				time.Sleep(time.Second - 1)
				l.FirstToken()
				time.Sleep(50 * time.Second)
				return router.Outcome{Status: 200}, ctx.Err()
			}, 1, router.Finished, nil},
		"ends in time": {
			router.Options{AttemptTimeout: time.Second},
			func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				time.Sleep(time.Second - 1)
				return router.Outcome{Status: 200}, nil
			}, 1, router.Finished, nil},
		"ends too late, and well": {
			router.Options{AttemptTimeout: time.Second},
			func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				time.Sleep(2 * time.Second)
				return router.Outcome{Status: 200}, nil
			}, 1, router.Finished, nil},
		"the client leaves first": {
			router.Options{AttemptTimeout: time.Hour},
			func(ctx context.Context, _ *router.Lease) (router.Outcome, error) {
				<-ctx.Done()
				return router.Outcome{}, context.Cause(ctx)
			}, 1, router.Canceled, errGone},
		"the host's own context": {
			router.Options{Backoff: -1},
			func(ctx context.Context, _ *router.Lease) (router.Outcome, error) {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Second, router.ErrAttemptTimeout)
				defer cancel()
				<-ctx.Done()
				return router.Outcome{}, context.Cause(ctx)
			}, 1, router.Failed, router.ErrAttemptTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 1000 * time.Hour}, "a", "b")
				w := &witness{Strategy: first, t: t}
				ctx, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Second, func() { leave(errGone) })
				sent := 0
				err := router.New(w, v, tt.opts).Do(ctx, prompt, func(ctx context.Context, l *router.Lease) (
					router.Outcome,
					error) {
					sent++
					return tt.send(ctx, l)
				})
				synctest.Wait()
				if !errors.Is(err, tt.err) || sent != tt.sent {
					t.Errorf("sent %d times, error %v", sent, err)
				}
				end := w.stories[0].outcomes[len(w.stories[0].outcomes)-1]
				if end.Stage != tt.stage {
					t.Errorf("the first attempt ended with %+v", end)
				}
				blamed := tt.stage == router.Failed && name != "was not sent"
				if got := stateOf(t, v, "a") != router.Ready; got != blamed {
					t.Errorf("the target was blamed: %v", got)
				}
				wantIdle(t, v)
				w.check()
				leave(nil)
			})
		})
	}
}

// A lease that was routed with a context of one attempt is settled as Failed by its
// time-out, and Retry goes on from it, once, where the rules allow.
func TestAttemptContext(t *testing.T) {
	for name, tt := range map[string]struct {
		retryable func(router.Outcome) bool
		out       router.Outcome
		again     bool
	}{
		"sent":     {nil, router.Outcome{Err: context.DeadlineExceeded}, false},
		"not sent": {nil, router.Outcome{Err: context.DeadlineExceeded, NotSent: true}, true},
		"the host allows it": {func(o router.Outcome) bool { return o.Err == router.ErrAttemptTimeout },
			router.Outcome{}, true},
		"a reply that is late": {nil, router.Outcome{Status: 200}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 1000 * time.Hour}, "a", "b")
				w := &witness{Strategy: first, t: t}
				r := router.New(w, v, router.Options{Retryable: tt.retryable})
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, router.ErrAttemptTimeout)
				defer cancel()
				l := route(t, r, ctx)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				wantIdle(t, v)
				want := []router.Outcome{{Stage: router.Sent}, {Stage: router.Failed, Err: router.ErrAttemptTimeout}}
				if diff := cmp.Diff(want, w.last().outcomes, cmpopts.EquateErrors()); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
				if stateOf(t, v, "a") == router.Ready {
					t.Error("the target was not blamed")
				}
				next, err := l.Retry(t.Context(), tt.out)
				if (next != nil) != tt.again || (next == nil) != errors.Is(err, router.ErrAttemptTimeout) {
					t.Fatalf("(%v, %v)", next, err)
				}
				twice, err := l.Retry(t.Context(), tt.out)
				if twice != nil || err == nil {
					t.Errorf("again: (%v, %v)", twice, err)
				}
				next.Done(router.Outcome{})
				wantIdle(t, v)
			})
		})
	}
}

// Within Do a client that closes after the first token does not end the request
// before send has: what send says of it counts.
func TestClientClosesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		token bool
		out   router.Outcome
		err   error
		stage router.Stage
	}{
		"all of the reply was there":     {true, router.Outcome{Status: 200, Reply: "Rayleigh."}, nil, router.Finished},
		"in the middle of it":            {true, router.Outcome{Status: 200}, context.Canceled, router.Canceled},
		"said to be canceled":            {true, router.Outcome{Stage: router.Canceled}, nil, router.Canceled},
		"before the first token":         {false, router.Outcome{Status: 200, Reply: "Rayleigh."}, nil, router.Canceled},
		"the engine's end, then the own": {true, router.Outcome{Stage: router.Failed}, errRefused, router.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{}, "a")
				w := &witness{Strategy: first, t: t}
				ctx, leave := context.WithCancel(t.Context())
				err := router.New(w, v, router.Options{}).Do(ctx, prompt,
					func(_ context.Context, l *router.Lease) (router.Outcome, error) {
						if tt.token {
							l.FirstToken()
						}
						leave()
						time.Sleep(time.Second)
						synctest.Wait()
						if n := inFlight(v)[0]; (n == 1) != tt.token {
							t.Errorf("%d in flight while send goes on", n)
						}
						return tt.out, tt.err
					})
				synctest.Wait()
				wantIdle(t, v)
				if (err == nil) != (tt.stage == router.Finished) {
					t.Errorf("error: %v", err)
				}
				o := w.last().outcomes
				if end := o[len(o)-1]; end.Stage != tt.stage {
					t.Errorf("ended with %+v", end)
				}
				w.check()
			})
		})
	}
}

// What may be retried is the host's choice, but never after the first token, and
// never beyond Attempts.
func TestRetryableOption(t *testing.T) {
	var asked []router.Outcome
	keys := func(o router.Outcome) bool { // channels with keys of their own
		asked = append(asked, o)
		return o.Status == 401 || o.Status == 403 || o.Status == 404
	}
	for name, tt := range map[string]struct {
		retryable func(router.Outcome) bool
		out       router.Outcome
		sent      int
	}{
		"401 by the host's rule":      {keys, router.Outcome{Status: 401}, 3},
		"503 by the host's rule":      {keys, router.Outcome{Status: 503}, 1},
		"401 after a token":           {keys, router.Outcome{Status: 401, OutputTokens: 1}, 1},
		"401":                         {nil, router.Outcome{Status: 401}, 1},
		"401 that is the target's":    {nil, router.Outcome{Status: 401, Lacking: true}, 2},
		"404 that is the target's":    {nil, router.Outcome{Status: 404, Lacking: true}, 2},
		"a reply that was an error":   {nil, router.Outcome{Status: 200, Err: errRefused}, 3},
		"finished, whatever the rule": {func(router.Outcome) bool { return true }, router.Outcome{Status: 200}, 1},
	} {
		asked = nil
		v := newView(t, loadview.Config{}, ids(8)...)
		sent := 0
		router.New(first, v, router.Options{Backoff: -1, Retryable: tt.retryable}).Do(t.Context(), prompt,
			func(context.Context, *router.Lease) (router.Outcome, error) {
				sent++
				return tt.out, nil
			})
		if sent != tt.sent {
			t.Errorf("%s: sent %d times, want %d", name, sent, tt.sent)
		}
		for _, o := range asked {
			if !o.Stage.Final() || o.SawToken() {
				t.Errorf("%s: asked about %+v", name, o)
			}
		}
		wantIdle(t, v)
	}
}

// A nil Lease and a zero one do nothing, whatever is called.
func TestZeroLease(t *testing.T) {
	for name, l := range map[string]*router.Lease{"nil": nil, "zero": new(router.Lease)} {
		l.FirstToken()
		l.Done(router.Outcome{Status: 200})
		if d := l.Decision(); d.Target.ID != "" || d.Memo != nil || l.Attempt() != 0 {
			t.Errorf("%s: %+v, attempt %d", name, d, l.Attempt())
		}
		if next, err := l.Retry(t.Context(), router.Outcome{Status: 503}); next != nil || err == nil {
			t.Errorf("%s: (%v, %v)", name, next, err)
		}
	}
}

// A host's own loop gets the numbers, the exclusions, the waits and the hooks that
// Retry would give.
func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{CoolAfter: -1}, ids(3)...)
		var hooks []string
		r := router.New(first, v, router.Options{Attempts: 1, Rand: func() uint64 { return 0 }, Trace: router.Trace{
			Routed: func(_ context.Context, i router.RouteInfo) {
				hooks = append(hooks, fmt.Sprint("routed ", i.Attempt, " ", i.Decision.Target.ID))
			},
			Retry: func(_ context.Context, i router.RetryInfo) {
				hooks = append(hooks, fmt.Sprint("retry after ", i.Attempt, " ", i.Outcome.Stage, " ", i.Wait))
			},
		}})
		q := r.Request(prompt)
		if q.Last() != nil {
			t.Error("there is a lease before the first call")
		}
		// Each attempt has a context of its own, and the second one times out.
		start := time.Now()
		for i, end := range []func(*router.Lease, context.CancelCauseFunc){
			func(l *router.Lease, _ context.CancelCauseFunc) { l.Done(router.Outcome{Status: 400}) },
			func(_ *router.Lease, cancel context.CancelCauseFunc) { cancel(router.ErrAttemptTimeout) },
			func(*router.Lease, context.CancelCauseFunc) {},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			l, err := q.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if l.Attempt() != i+1 || q.Last() != l {
				t.Errorf("attempt %d is said to be %d", i+1, l.Attempt())
			}
			end(l, cancel)
			synctest.Wait()
		}
		want := []string{
			"routed 1 vllm-0", "retry after 1 failed 12.5ms", "routed 2 vllm-1", "retry after 2 failed 25ms", "routed 3 vllm-2",
		}
		if diff := cmp.Diff(want, hooks); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if took := time.Since(start); took != 37500*time.Microsecond {
			t.Errorf("waited %v", took)
		}
		wantCounts(t, v, 0, 0, 1) // the third goes on

		// There is no wait while another attempt continues, and no target is left.
		start = time.Now()
		if l, err := q.Next(t.Context()); l != nil || !errors.Is(err, router.ErrNoTarget) || time.Since(start) != 0 {
			t.Errorf("(%v, %v)", l, err)
		}
		q.Last().Done(router.Outcome{Err: errRefused})
		if l, err := q.Next(t.Context()); l != nil || err != errRefused {
			t.Errorf("(%v, %v)", l, err)
		}
		if q.Last().Attempt() != 3 {
			t.Error("a call that failed is the last lease")
		}
		wantIdle(t, v)
	})
}

func TestRequestGoesNoFurther(t *testing.T) {
	for name, end := range map[string]func(*router.Lease){
		"finished":                 func(l *router.Lease) { l.Done(router.Outcome{Status: 200}) },
		"has begun":                (*router.Lease).FirstToken,
		"failed after the first":   func(l *router.Lease) { l.FirstToken(); l.Done(router.Outcome{Err: errRefused}) },
		"failed, and had a reply":  func(l *router.Lease) { l.Done(router.Outcome{Err: errRefused, Reply: "Ray"}) },
		"canceled after the first": func(l *router.Lease) { l.FirstToken(); l.Done(router.Outcome{Stage: router.Canceled}) },
	} {
		q := router.New(first, newPool(ready("a", "b")...), router.Options{}).Request(prompt)
		l, err := q.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end(l)
		if next, err := q.Next(t.Context()); next != nil || err == nil {
			t.Errorf("%s: (%v, %v)", name, next, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	q := router.New(first, newPool(ready("a", "b")...), router.Options{}).Request(prompt)
	if l, err := q.Next(ctx); l != nil || err != errGone {
		t.Errorf("(%v, %v)", l, err)
	}
	l, err := q.Next(t.Context()) // the first one came to nothing
	if err != nil || l.Attempt() != 1 {
		t.Fatalf("(%v, %v)", l, err)
	}
	if next, err := q.Next(ctx); next != nil || err != errGone {
		t.Errorf("beside one that goes on: (%v, %v)", next, err)
	}
	l.Done(router.Outcome{Err: errRefused})
	if next, err := q.Next(ctx); next != nil || !errors.Is(err, errRefused) || !errors.Is(err, errGone) {
		t.Errorf("(%v, %v)", next, err)
	}
}

// FirstToken and the time-out of an attempt at the same instant: the one that comes
// first counts, and a reply that has begun is not cut.
func TestFirstTokenAgainstTimeout(t *testing.T) {
	v := newView(t, loadview.Config{CoolAfter: -1}, "a")
	r := router.New(first, v, router.Options{AttemptTimeout: 200 * time.Microsecond})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			r.Do(t.Context(), prompt, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
				time.Sleep(time.Duration(i) * 2 * time.Microsecond)
				before := ctx.Err()
				l.FirstToken()
				if before == nil && l.Attempt() == 1 {
					after := ctx.Err()
					time.Sleep(time.Millisecond)
					if ctx.Err() != after {
						t.Error("cut after the first token")
					}
				}
				return router.Outcome{Status: 200}, nil
			})
		})
	}
	wg.Wait()
	wantIdle(t, v)
}
