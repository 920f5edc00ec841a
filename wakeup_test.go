package router_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

// scaled is a pool to which targets are added, and that says so.
type scaled struct {
	*pool
	in      time.Duration // RetryAfter of its NoTargetErrors
	mute    bool          // it is no ChangeNotifier that says anything
	changed chan struct{}
}

func newScaled(ts ...router.Target) *scaled {
	return &scaled{pool: newPool(ts...), changed: make(chan struct{})}
}

func (f *scaled) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	d, fl, err := f.pool.Choose(ctx, pick)
	if e, ok := err.(*router.NoTargetError); ok {
		c := *e
		c.RetryAfter = f.in
		err = &c
	}
	return d, fl, err
}

func (f *scaled) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mute {
		return nil
	}
	return f.changed
}

// set makes ts the targets.
func (f *scaled) set(ts ...router.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = ts
	close(f.changed)
	f.changed = make(chan struct{})
}

// How long Route waits for a target, and for which events.
func TestWait(t *testing.T) {
	cooling := router.Target{ID: "a", State: router.Cooling}
	var none *router.NoTargetError
	for name, tt := range map[string]struct {
		wait  time.Duration
		fleet *scaled
		after func(*scaled) // an hour later
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		want  time.Duration
		ok    bool
	}{
		"not at all by default": {0, newScaled(), nil, nil, 0, false},
		"until one joins": {24 * time.Hour, newScaled(), func(f *scaled) { f.set(ready("a")...) }, nil, time.Hour,
			true},
		"until one is Ready": {24 * time.Hour, newScaled(cooling), func(f *scaled) { f.set(ready("a")...) }, nil,
			time.Hour, true},
		"past changes that help nobody": {24 * time.Hour, newScaled(cooling), func(f *scaled) {
			for range 10 {
				f.set(cooling)
			}
			time.AfterFunc(time.Hour, func() { f.set(ready("b")...) })
		}, nil, 2 * time.Hour, true},
		"as long as that": {30 * time.Minute, newScaled(cooling), func(f *scaled) { f.set(ready("a")...) }, nil,
			30 * time.Minute, false},
		"until it should be back": {24 * time.Hour, &scaled{pool: newPool(cooling), mute: true, in: 7 * time.Minute},
			func(f *scaled) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.targets = ready("a")
			}, nil, 63 * time.Minute, true},
		"not where nobody would say": {24 * time.Hour, &scaled{pool: newPool(cooling), mute: true}, nil, nil, 0, false},
		"as long as the client does": {24 * time.Hour, newScaled(), nil,
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, time.Minute, errGone)
			}, time.Minute, false},
		"not if one is Ready": {24 * time.Hour, newScaled(ready("a")...), nil, nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tt.fleet
				if f.changed != nil {
					f.changed = make(chan struct{}) // of this bubble
				}
				if tt.after != nil {
					time.AfterFunc(time.Hour, func() { tt.after(f) })
				}
				ctx := t.Context()
				if tt.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tt.ctx(ctx)
					defer cancel()
				}
				told := 0
				var info router.RouteInfo
				r := router.New(first, f, router.Options{Wait: tt.wait, Trace: router.Trace{
					NoTarget: func(_ context.Context, _ router.Prompt, err error) {
						told++
						if !errors.As(err, &none) {
							t.Errorf("told of %v", err)
						}
					},
					Routed: func(_ context.Context, i router.RouteInfo) { info = i },
				}})
				start := time.Now()
				l, err := r.Route(ctx, prompt)
				if took := time.Since(start); took != tt.want || (err == nil) != tt.ok {
					t.Errorf("(%v, %v) after %v", l, err, took)
				}
				if tt.ok {
					if info.Waited != tt.want || info.Took != 0 || told != 0 {
						t.Errorf("%+v, told %d times", info, told)
					}
					l.Done(router.Outcome{})
				} else {
					if told != 1 || !errors.As(err, &none) && !errors.Is(err, errGone) {
						t.Errorf("told %d times: %v", told, err)
					}
				}
				if r := f.counts["a"]; r != 0 {
					t.Errorf("%d in flight", r)
				}
			})
		})
	}
	// Who assigns and who retries does not wait.
	synctest.Test(t, func(t *testing.T) {
		f := newScaled(ready("a")...)
		r := router.New(first, f, router.Options{Wait: time.Hour, Backoff: -1})
		start := time.Now()
		if _, err := r.Assign(t.Context(), prompt, "b"); !errors.As(err, &none) {
			t.Error(err)
		}
		l := route(t, r, t.Context())
		if _, err := l.Retry(t.Context(), router.Outcome{Err: errRefused}); err != errRefused {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v", took)
		}
	})
}

// Targets come and go while requests wait for them: nobody sleeps through a change
// (in virtual time, that would be for a day), and who is woken sees the fleet and
// the caches as they are then.
func TestNoLostWakeUp(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			f := newScaled()
			w := &witness{Strategy: cacheAware(t), t: t}
			r := router.New(w, f, router.Options{Wait: 24 * time.Hour})
			rng := rand.New(rand.NewPCG(seed, 1))
			var leased atomic.Int64
			var wg sync.WaitGroup
			for i := range 100 {
				delay := time.Duration(rng.IntN(50)) * ms
				wg.Go(func() {
					time.Sleep(delay)
					start := time.Now()
					l, err := r.Route(t.Context(), prompt)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
						return
					}
					if took := time.Since(start); took > 60*ms {
						t.Errorf("request %d slept for %v", i, took)
					}
					leased.Add(1)
					l.Done(router.Outcome{Status: 200})
				})
			}
			for range 50 {
				time.Sleep(ms)
				switch rng.IntN(3) {
				case 0:
					f.set()
				case 1:
					f.set(router.Target{ID: "a", State: router.Cooling})
				case 2:
					f.set(ready("a", "b")...)
				}
			}
			f.set(ready("a", "b")...)
			wg.Wait()
			if n := leased.Load(); n != 100 {
				t.Errorf("%d of 100 were leased", n)
			}
			w.check()
		})
	}
	// On real time and threads: a change at any instant between Choose and the wait.
	f := newScaled()
	r := router.New(first, f, router.Options{Wait: time.Hour})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for range 300 {
				l, err := r.Route(t.Context(), prompt)
				if err != nil {
					t.Error(err)
					return
				}
				l.Done(router.Outcome{})
			}
		})
	}
	var setter sync.WaitGroup
	setter.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f.set()
				f.set(ready("a")...)
			}
		}
	})
	wg.Wait()
	close(stop)
	setter.Wait()
}

// Requests that wait for the first target and are woken together see each other's
// prompts: all of one conversation go where the first of them went.
func TestWokenSeeCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScaled()
		r := router.New(cacheAware(t), f, router.Options{Wait: time.Hour})
		var mu sync.Mutex
		var targets []string
		var reasons []router.Reason
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				l, err := r.Route(t.Context(), prompt)
				if err != nil {
					t.Error(err)
					return
				}
				l.Done(router.Outcome{Status: 200})
				mu.Lock()
				defer mu.Unlock()
				targets = append(targets, l.Decision().Target.ID)
				reasons = append(reasons, l.Decision().Reason)
			})
		}
		synctest.Wait()
		f.set(ready("a", "b", "c")...)
		wg.Wait()
		slices.Sort(targets)
		slices.Sort(reasons)
		if n := len(slices.Compact(targets)); n != 1 {
			t.Errorf("one conversation went to %d targets", n)
		}
		want := []router.Reason{router.ReasonCold, router.ReasonWarm}
		if diff := cmp.Diff(want, slices.Compact(reasons)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
