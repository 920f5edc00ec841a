package router_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// waits runs a request that fails at once everywhere and returns how long it
// waited before each further attempt.
func waits(t *testing.T, ctx context.Context, o router.Options, out router.Outcome) (d []time.Duration, err error) {
	t.Helper()
	v := newView(t, loadview.Config{CoolAfter: -1, RetryAfterMax: -1}, ids(8)...)
	var last time.Time
	err = router.New(first, v, o).Do(ctx, prompt, func(context.Context, *router.Lease) (router.Outcome, error) {
		now := time.Now()
		if !last.IsZero() {
			d = append(d, now.Sub(last))
		}
		last = now
		return out, nil
	})
	wantIdle(t, v)
	return d, err
}

const ms = time.Millisecond

func TestBackoff(t *testing.T) {
	fixed := func(n uint64) func() uint64 { return func() uint64 { return n } }
	tests := map[string]struct {
		opts router.Options
		out  router.Outcome
		want []time.Duration
	}{
		"by default, at least":            {router.Options{Attempts: 8, Rand: fixed(0)}, router.Outcome{}, []time.Duration{12500 * time.Microsecond, 25 * ms, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms}},
		"by default, at most":             {router.Options{Rand: fixed(uint64(12500 * time.Microsecond))}, router.Outcome{}, []time.Duration{25 * ms, 37500 * time.Microsecond}},
		"bounded":                         {router.Options{Attempts: 5, Backoff: 200 * ms, MaxBackoff: 300 * ms, Rand: fixed(0)}, router.Outcome{}, []time.Duration{100 * ms, 150 * ms, 150 * ms, 150 * ms}},
		"longer than the default bound":   {router.Options{Backoff: 4 * time.Second, Rand: fixed(0)}, router.Outcome{}, []time.Duration{2 * time.Second, 2 * time.Second}},
		"none":                            {router.Options{Backoff: -1}, router.Outcome{}, []time.Duration{0, 0}},
		"RetryAfter":                      {router.Options{Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: 700 * ms}, []time.Duration{700 * ms, 700 * ms}},
		"RetryAfter of a 503":             {router.Options{Backoff: -1}, router.Outcome{Status: 503, RetryAfter: time.Second}, []time.Duration{time.Second, time.Second}},
		"RetryAfter, bounded by default":  {router.Options{Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: time.Hour}, []time.Duration{2 * time.Second, 2 * time.Second}},
		"RetryAfter, bounded":             {router.Options{MaxRetryAfter: 3 * time.Second}, router.Outcome{Status: 429, RetryAfter: math.MaxInt64}, []time.Duration{3 * time.Second, 3 * time.Second}},
		"RetryAfter, not waited for":      {router.Options{MaxRetryAfter: -1, Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: time.Hour}, []time.Duration{12500 * time.Microsecond, 25 * ms}},
		"RetryAfter shorter than backoff": {router.Options{Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: time.Nanosecond}, []time.Duration{12500 * time.Microsecond, 25 * ms}},
		"negative RetryAfter":             {router.Options{Backoff: -1}, router.Outcome{Status: 429, RetryAfter: -time.Hour}, []time.Duration{0, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.out.Stage = router.Failed
				got, err := waits(t, t.Context(), tt.opts, tt.out)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
				if err == nil {
					t.Error("no error")
				}
			})
		})
	}
}

// The jitter fills the upper half of the backoff, and none of it is outside.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		seen := map[int]int{}
		for range 400 {
			o := router.Options{Attempts: 4, Backoff: 100 * ms, MaxBackoff: 300 * ms, Rand: rng.Uint64}
			got, _ := waits(t, t.Context(), o, router.Outcome{Status: 500})
			for i, most := range []time.Duration{100 * ms, 200 * ms, 300 * ms} {
				if got[i] < most/2 || got[i] > most {
					t.Fatalf("wait %d is %v, outside %v to %v", i+1, got[i], most/2, most)
				}
				seen[min(int(8*(got[i]-most/2)/(most/2)), 7)]++
			}
		}
		for eighth := range 8 { // 150 each; the deviation is 11.5
			if n := seen[eighth]; n < 90 || n > 210 {
				t.Errorf("%d of 1200 waits are in eighth %d", n, eighth+1)
			}
		}
	})
}

// A wait that would outlive the request is not begun; one that the client does
// not live to see ends with it.
func TestBackoffAndContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*ms)
		defer cancel()
		_, err := waits(t, ctx, router.Options{}, router.Outcome{Status: 429, RetryAfter: 1600 * ms})
		var status *router.StatusError
		if took := time.Since(start); took != 0 || !errors.As(err, &status) || status.Status != 429 {
			t.Errorf("%v after %v", err, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not say why it was not sent again", err)
		}

		start = time.Now()
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errGone) })
		d, err := waits(t, ctx, router.Options{}, router.Outcome{Status: 429, RetryAfter: 1600 * ms})
		if took := time.Since(start); took != time.Second || len(d) != 0 || !errors.As(err, &status) || !errors.Is(err, errGone) {
			t.Errorf("%v after %v", err, took)
		}

		// Just enough time is enough.
		ctx, cancel = context.WithTimeout(t.Context(), 1600*ms+1)
		defer cancel()
		d, _ = waits(t, ctx, router.Options{Attempts: 2}, router.Outcome{Status: 429, RetryAfter: 1600 * ms})
		if diff := cmp.Diff([]time.Duration{1600 * ms}, d); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
