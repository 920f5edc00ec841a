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
)

// busy is a Fleet without a Ready target at the instant of a failure.
type busy struct {
	*pool
	until time.Time
}

func (f *busy) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	state := router.Ready
	if !time.Now().After(f.until) {
		state = router.Cooling
	}
	for i := range f.targets {
		f.targets[i].State = state
	}
	return f.pool.Choose(ctx, pick)
}

// waits runs a request that fails at once everywhere and returns how long it
// waited before each further attempt. If idle is not set, no target is Ready at the
// instant of a failure.
func waits(
	t *testing.T, ctx context.Context, o router.Options, out router.Outcome, idle bool,
) (d []time.Duration, err error) {
	t.Helper()
	f := &busy{pool: newPool(ready(ids(8)...)...)}
	var last time.Time
	err = router.New(first, f, o).Do(ctx, prompt, func(context.Context, *router.Lease) (router.Outcome, error) {
		now := time.Now()
		if !last.IsZero() {
			d = append(d, now.Sub(last))
		}
		last = now
		if !idle {
			f.until = now
		}
		return out, nil
	})
	for id, n := range f.counts {
		if n != 0 {
			t.Errorf("%d in flight on %s", n, id)
		}
	}
	return d, err
}

const ms = time.Millisecond

func TestBackoff(t *testing.T) {
	fixed := func(n uint64) func() uint64 { return func() uint64 { return n } }
	half, one := 12500*time.Microsecond, 25*ms
	asks := router.Outcome{Status: 429, RetryAfter: time.Hour}
	tests := map[string]struct {
		opts router.Options
		out  router.Outcome
		idle bool
		want []time.Duration
	}{
		"by default, at least": {
			router.Options{Attempts: 8, Rand: fixed(0)}, router.Outcome{}, true,
			[]time.Duration{half, one, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms}},
		"by default, at most": {
			router.Options{Rand: fixed(uint64(half))}, router.Outcome{}, true, []time.Duration{one, one + half}},
		"bounded": {
			router.Options{Attempts: 5, Backoff: 200 * ms, MaxBackoff: 300 * ms, Rand: fixed(0)}, router.Outcome{}, true,
			[]time.Duration{100 * ms, 150 * ms, 150 * ms, 150 * ms}},
		"longer than the default bound": {
			router.Options{Backoff: 4 * time.Second, Rand: fixed(0)}, router.Outcome{}, true,
			[]time.Duration{2 * time.Second, 2 * time.Second}},
		"none": {router.Options{Backoff: -1}, router.Outcome{}, true, []time.Duration{0, 0}},
		"RetryAfter": {
			router.Options{Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: 700 * ms}, false,
			[]time.Duration{700 * ms, 700 * ms}},
		"RetryAfter of a 503": {
			router.Options{Backoff: -1}, router.Outcome{Status: 503, RetryAfter: time.Second}, false,
			[]time.Duration{time.Second, time.Second}},
		"RetryAfter, bounded by default": {
			router.Options{Rand: fixed(0)}, asks, false, []time.Duration{2 * time.Second, 2 * time.Second}},
		"RetryAfter, bounded": {
			router.Options{MaxRetryAfter: 3 * time.Second}, router.Outcome{Status: 429, RetryAfter: math.MaxInt64}, false,
			[]time.Duration{3 * time.Second, 3 * time.Second}},
		"RetryAfter, not waited for": {
			router.Options{MaxRetryAfter: -1, Rand: fixed(0)}, asks, false, []time.Duration{half, one}},
		"RetryAfter shorter than backoff": {
			router.Options{Rand: fixed(0)}, router.Outcome{Status: 429, RetryAfter: 1}, false, []time.Duration{half, one}},
		"negative RetryAfter": {
			router.Options{Backoff: -1}, router.Outcome{Status: 429, RetryAfter: -time.Hour}, true, []time.Duration{0, 0}},
		"RetryAfter beside idle targets": {router.Options{Rand: fixed(0)}, asks, true, []time.Duration{half, one}},
		"RetryAfter beside idle targets, no backoff": {
			router.Options{Backoff: -1}, asks, true, []time.Duration{0, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.out.Stage = router.Failed
				got, err := waits(t, t.Context(), tt.opts, tt.out, tt.idle)
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
			got, _ := waits(t, t.Context(), o, router.Outcome{Status: 500}, true)
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
		_, err := waits(t, ctx, router.Options{}, router.Outcome{Status: 429, RetryAfter: 1600 * ms}, false)
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
		d, err := waits(t, ctx, router.Options{}, router.Outcome{Status: 429, RetryAfter: 1600 * ms}, false)
		if took := time.Since(start); took != time.Second || len(d) != 0 || !errors.As(err, &status) ||
			!errors.Is(err, errGone) {
			t.Errorf("%v after %v", err, took)
		}

		// Just enough time is enough.
		ctx, cancel = context.WithTimeout(t.Context(), 1600*ms+1)
		defer cancel()
		d, _ = waits(t, ctx, router.Options{Attempts: 2}, router.Outcome{Status: 429, RetryAfter: 1600 * ms}, false)
		if diff := cmp.Diff([]time.Duration{1600 * ms}, d); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
