package router_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// Which endings of an attempt are followed by another, at another target, and
// which of them are the first target's failure.
func TestFailover(t *testing.T) {
	type attempt = func(l *router.Lease) (router.Outcome, error)
	says := func(o router.Outcome, err error) attempt {
		return func(*router.Lease) (router.Outcome, error) { return o, err }
	}
	const again, once = true, false
	tests := map[string]struct {
		first  attempt
		again  bool
		blamed bool
	}{
		"connect error":               {says(router.Outcome{}, errRefused), again, true},
		"connect error as an outcome": {says(router.Outcome{Err: errRefused}, nil), again, true},
		"the attempt's own deadline":  {says(router.Outcome{}, context.DeadlineExceeded), once, true},
		"an attempt's time-out":       {says(router.Outcome{}, fmt.Errorf("send: %w", router.ErrAttemptTimeout)), once, true},
		"timed out before it was sent": {
			says(router.Outcome{NotSent: true, Err: router.ErrAttemptTimeout}, nil), again, false},
		"the connection timed out": {
			says(router.Outcome{}, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), again, true},
		"an error as a reply":        {says(router.Outcome{Status: 200}, errRefused), again, true},
		"status 404 of the target's": {says(router.Outcome{Status: 404, Lacking: true}, nil), again, true},
		"status 302 of the target's": {says(router.Outcome{Status: 302, Lacking: true}, nil), again, true},
		"status 400 of the target's": {says(router.Outcome{Status: 400, Lacking: true}, nil), once, false},
		"no status":                  {says(router.Outcome{Status: 7}, nil), once, true},
		"no status, and an error":    {says(router.Outcome{Status: 7}, errRefused), again, true},
		"status 600":                 {says(router.Outcome{Status: 600}, nil), once, true},
		"failed without a word":      {says(router.Outcome{Stage: router.Failed}, nil), again, true},
		"status 500":                 {says(router.Outcome{Status: 500}, nil), again, true},
		"status 503":                 {says(router.Outcome{Status: 503}, nil), again, false},
		"status 599":                 {says(router.Outcome{Status: 599}, nil), again, true},
		"status 408":                 {says(router.Outcome{Status: 408}, nil), again, true},
		"status 429":                 {says(router.Outcome{Status: 429}, nil), again, false},
		"status 502 with an error":   {says(router.Outcome{Status: 502}, errRefused), again, true},
		"stage sent with an error":   {says(router.Outcome{Stage: router.Sent}, errRefused), again, true},
		"status 400":                 {says(router.Outcome{Status: 400}, nil), once, false},
		"status 404":                 {says(router.Outcome{Status: 404}, nil), once, false},
		"status 422 with an error":   {says(router.Outcome{Status: 422}, errRefused), once, false},
		"status 499":                 {says(router.Outcome{Status: 499}, nil), once, false},
		"canceled":                   {says(router.Outcome{Stage: router.Canceled}, errGone), once, false},
		"first token, then an error": {func(l *router.Lease) (router.Outcome, error) {
			l.FirstToken()
			return router.Outcome{Status: 200}, errRefused
		}, once, true},
		"first token, then a reset": {func(l *router.Lease) (router.Outcome, error) {
			l.FirstToken()
			return router.Outcome{}, errRefused
		}, once, true},
		"first token as a stage":  {says(router.Outcome{Stage: router.FirstToken}, errRefused), once, true},
		"a part of the reply":     {says(router.Outcome{Reply: "Ray"}, errRefused), once, true},
		"output tokens, then 500": {says(router.Outcome{Status: 500, OutputTokens: 1}, nil), once, true},
		"settled by send itself": {func(l *router.Lease) (router.Outcome, error) {
			l.Done(router.Outcome{Status: 502})
			return router.Outcome{Status: 502}, nil
		}, once, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := newView(t, loadview.Config{CoolAfter: 1}, "a", "b")
			w := &witness{Strategy: first, t: t}
			r := router.New(w, v, router.Options{Backoff: -1})
			var sent []string
			err := r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
				sent = append(sent, l.Decision().Target.ID)
				if len(sent) == 1 {
					return tt.first(l)
				}
				return router.Outcome{Status: 200}, nil
			})
			want := []string{"a"}
			if tt.again {
				want = append(want, "b")
			}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("sent to (-want +got):\n%s", diff)
			}
			if (err == nil) != tt.again {
				t.Errorf("error: %v", err)
			}
			if s := stateOf(t, v, "a"); (s == router.Cooling) != tt.blamed {
				got := s == router.Cooling
				t.Errorf("the first target was blamed: %v, want %v", got, tt.blamed)
			}
			wantIdle(t, v)
			w.check()
		})
	}
}

// A request reaches at most Attempts targets, none of them twice, and the error
// is the last one's.
func TestAttempts(t *testing.T) {
	for _, tt := range []struct{ attempts, targets, want int }{
		{0, 8, 3}, {-1, 8, 1}, {1, 8, 1}, {2, 8, 2}, {5, 8, 5}, {9, 4, 4}, {3, 1, 1}, {math.MaxInt, 8, 8},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.attempts, tt.targets), func(t *testing.T) {
			for _, s := range []router.Strategy{first, leastLoad(t), cacheAware(t)} {
				v := newView(t, loadview.Config{CoolAfter: -1}, ids(tt.targets)...)
				w := &witness{Strategy: s, t: t}
				r := router.New(w, v, router.Options{Attempts: tt.attempts, Backoff: -1})
				var sent []string
				var last error
				err := r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
					if n := l.Attempt(); n != len(sent)+1 {
						t.Errorf("attempt %d is said to be %d", len(sent)+1, n)
					}
					sent = append(sent, l.Decision().Target.ID)
					last = fmt.Errorf("%s: %w", sent[len(sent)-1], errRefused)
					return router.Outcome{}, last
				})
				if len(sent) != tt.want {
					t.Errorf("sent to %v, want %d", sent, tt.want)
				}
				slices.Sort(sent)
				if u := slices.Compact(slices.Clone(sent)); len(u) != len(sent) {
					t.Errorf("sent twice: %v", sent)
				}
				if !errors.Is(err, last) || errors.Is(err, router.ErrNoTarget) {
					t.Errorf("error %v, want %v", err, last)
				}
				wantIdle(t, v)
				w.check()
			}
		})
	}
}

// What Do returns.
func TestDoError(t *testing.T) {
	do := func(ctx context.Context, ts []router.Target, send func(*router.Lease) (router.Outcome, error)) error {
		r := router.New(first, newPool(ts...), router.Options{Backoff: -1})
		return r.Do(ctx, prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) { return send(l) })
	}
	says := func(o router.Outcome, err error) func(*router.Lease) (router.Outcome, error) {
		return func(*router.Lease) (router.Outcome, error) { return o, err }
	}
	ctx := t.Context()
	if err := do(ctx, ready("a"), says(router.Outcome{Status: 200}, nil)); err != nil {
		t.Errorf("finished: %v", err)
	}
	if err := do(ctx, ready("a"), says(router.Outcome{Stage: router.Finished}, errRefused)); err != errRefused {
		t.Errorf("finished with an error: %v", err)
	}
	var status *router.StatusError
	if err := do(ctx, ready("a", "b"), says(router.Outcome{Status: 429, RetryAfter: time.Nanosecond},
		nil)); !errors.As(err, &status) {
		t.Errorf("429: %v", err)
	} else if diff := cmp.Diff(&router.StatusError{Status: 429, RetryAfter: time.Nanosecond}, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := do(ctx, ready("a"), says(router.Outcome{Stage: router.Failed}, nil)); !errors.As(err, &status) ||
		status.Status != 0 {
		t.Errorf("failed without a word: %v", err)
	}
	if err := do(ctx, ready("a"), says(router.Outcome{Stage: router.Canceled}, nil)); err != context.Canceled {
		t.Errorf("canceled without a word: %v", err)
	}
	var none *router.NoTargetError
	if err := do(ctx, nil, says(router.Outcome{}, errRefused)); !errors.As(err, &none) ||
		!errors.Is(err, router.ErrNoTarget) {
		t.Errorf("no target: %v", err)
	}
	n := 0
	err := do(ctx, ready("a", "b"), func(*router.Lease) (router.Outcome, error) {
		n++
		if n == 1 {
			return router.Outcome{}, errRefused
		}
		return router.Outcome{Status: 404}, nil
	})
	if !errors.As(err, &status) || status.Status != 404 || errors.Is(err, errRefused) {
		t.Errorf("the last of two: %v", err)
	}

	done, cancel := context.WithCancelCause(ctx)
	cancel(errGone)
	err = do(done, ready("a"), func(*router.Lease) (router.Outcome, error) {
		t.Error("sent under a done context")
		return router.Outcome{}, nil
	})
	if err != errGone {
		t.Errorf("done before: %v", err)
	}
}

// A client that goes away ends its request: it is not sent again, whatever send
// makes of it, and the target is none the worse.
func TestClientGoesAway(t *testing.T) {
	for name, o := range map[string]router.Outcome{
		"an error":     {Err: errRefused},
		"a status":     {Status: 502},
		"nothing":      {},
		"said failed":  {Stage: router.Failed, Err: errRefused},
		"with a reply": {Reply: "Ray", Err: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1, FullFor: -1}, "a", "b")
				w := &witness{Strategy: first, t: t}
				r := router.New(w, v, router.Options{})
				ctx, cancel := context.WithCancelCause(t.Context())
				sent := 0
				err := r.Do(ctx, prompt, func(context.Context, *router.Lease) (router.Outcome, error) {
					sent++
					cancel(errGone)
					synctest.Wait() // a request is read for as long as it takes
					return o, nil
				})
				if !errors.Is(err, errGone) || sent != 1 {
					t.Errorf("%v after %d attempts", err, sent)
				}
				if s := stateOf(t, v, "a"); s != router.Ready {
					t.Errorf("the target is %v", s)
				}
				wantIdle(t, v)
				w.check()
			})
		})
	}
}

// Retry by itself: what it returns, and that it leases once at most.
func TestRetry(t *testing.T) {
	failed := router.Outcome{Err: errRefused}
	setup := func(t *testing.T) (*loadview.View, *router.Router) {
		v := newView(t, loadview.Config{CoolAfter: -1}, ids(3)...)
		return v, router.New(first, v, router.Options{Backoff: -1})
	}
	no := func(t *testing.T, l *router.Lease, err, want error) {
		t.Helper()
		if l != nil || !errors.Is(err, want) {
			t.Errorf("(%v, %v), want the error %v", l, err, want)
		}
	}
	t.Run("second of one lease", func(t *testing.T) {
		v, r := setup(t)
		l := route(t, r, t.Context())
		next, err := l.Retry(t.Context(), failed)
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.Retry(t.Context(), router.Outcome{Err: errGone})
		no(t, again, err, errRefused)
		wantCounts(t, v, 0, 1, 0)
		next.Done(router.Outcome{})
		wantIdle(t, v)
	})
	t.Run("after Done", func(t *testing.T) {
		v, r := setup(t)
		for _, o := range []router.Outcome{{Err: errGone}, {Stage: router.Finished, Err: errGone},
			{Stage: router.Canceled, Err: errGone}} {
			l := route(t, r, t.Context())
			l.Done(o)
			next, err := l.Retry(t.Context(), failed)
			no(t, next, err, errGone)
		}
		wantIdle(t, v)
	})
	t.Run("of a request that finished", func(t *testing.T) {
		v, r := setup(t)
		next, err := route(t, r, t.Context()).Retry(t.Context(), router.Outcome{Status: 200})
		if next != nil || err == nil {
			t.Errorf("(%v, %v)", next, err)
		}
		wantIdle(t, v)
	})
	t.Run("keeps what Route excluded", func(t *testing.T) {
		v, r := setup(t)
		l := route(t, r, t.Context(), "vllm-0")
		next, err := l.Retry(t.Context(), failed)
		if err != nil {
			t.Fatal(err)
		}
		if id := next.Decision().Target.ID; id != "vllm-2" {
			t.Errorf("sent again to %s", id)
		}
		last, err := next.Retry(t.Context(), failed)
		no(t, last, err, errRefused)
		wantIdle(t, v)
	})
	t.Run("two branches share no list", func(t *testing.T) {
		_, r := setup(t)
		exclude := make([]string, 1, 8) // with spare capacity
		exclude[0] = "vllm-0"
		a, b := route(t, r, t.Context(), exclude...), route(t, r, t.Context(), exclude...)
		exclude[0] = "vllm-2"
		for _, l := range []*router.Lease{a, b} {
			next, err := l.Retry(t.Context(), failed)
			if err != nil {
				t.Fatal(err)
			}
			if id := next.Decision().Target.ID; id != "vllm-2" {
				t.Errorf("sent again to %s", id)
			}
		}
	})
	t.Run("of an assigned one", func(t *testing.T) {
		v, r := setup(t)
		l, err := r.Assign(t.Context(), prompt, "vllm-0")
		if err != nil {
			t.Fatal(err)
		}
		next, err := l.Retry(t.Context(), failed)
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, v, 0, 1, 0)
		next.Done(router.Outcome{})
	})
	t.Run("for the life of its own context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, r := setup(t)
			ctx, cancel := context.WithCancel(t.Context())
			next, err := route(t, r, t.Context()).Retry(ctx, failed)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, v, 0, 1, 0)
			cancel()
			synctest.Wait()
			wantIdle(t, v)
			next.Done(router.Outcome{})
			wantIdle(t, v)
		})
	})
	t.Run("under a done context", func(t *testing.T) {
		v, r := setup(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		next, err := route(t, r, t.Context()).Retry(ctx, failed)
		no(t, next, err, errRefused)
		no(t, next, err, errGone)
		wantIdle(t, v)
	})
	t.Run("from many goroutines, and the context done", func(t *testing.T) {
		for round := range 200 {
			v, r := setup(t)
			ctx, cancel := context.WithCancel(t.Context())
			l := route(t, r, ctx)
			var mu sync.Mutex
			var got []*router.Lease
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					next, err := l.Retry(t.Context(), failed)
					if (next == nil) == (err == nil) {
						t.Errorf("(%v, %v)", next, err)
					}
					if next != nil {
						mu.Lock()
						got = append(got, next)
						mu.Unlock()
					}
				})
			}
			if round%2 == 0 {
				wg.Go(cancel)
			}
			wg.Wait()
			cancel()
			if len(got) > 1 || round%2 == 1 && len(got) == 0 {
				t.Fatalf("%d leases", len(got))
			}
			wantCounts(t, v, 0, len(got), 0)
			for _, l := range got {
				l.Done(router.Outcome{})
			}
			wantIdle(t, v)
		}
	})
}
