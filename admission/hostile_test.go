package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// waitingRoute has a request wait, and returns the channel of its result.
func waitingRoute(r *router.Router, ctx context.Context, p router.Prompt) <-chan error {
	end := make(chan error, 1)
	go func() {
		l, err := r.Route(ctx, p)
		l.Done(router.Outcome{Status: 200})
		end <- err
	}()
	synctest.Wait()
	return end
}

// A client that names a new tenant, priority or weight in each request takes no memory
// beyond the bounds, and does not starve one that waits.
func TestForgedClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, MaxWaiting: 50, MaxWait: time.Hour, Aging: time.Second})
		r, _ := fleet(t, q, 1, router.Options{})
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					c := Class{Tenant: fmt.Sprint(i, "/", n, strings.Repeat("x", 4000)), Priority: math.MaxInt,
						Weight: []float64{math.Inf(1), math.NaN(), -1, 1e300}[n%4]}
					l, err := r.Route(context.WithValue(ctx, key{}, c), prompt(1))
					if err == nil {
						time.Sleep(10 * time.Millisecond)
					}
					l.Done(router.Outcome{Status: 200})
				}
			})
		}
		time.Sleep(10 * time.Second)
		honest := time.Now()
		l, err := r.Route(as(Class{Tenant: "honest"}), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Status: 200})
		// It waits behind higher priorities for Aging, and then gets every other place.
		if took := time.Since(honest); took > 2*time.Second {
			t.Errorf("an honest request waited for %v", took)
		}
		q.mu.Lock()
		names, bands := 0, 0
		for _, n := range q.lines {
			for _, b := range n.bands {
				bands++
				for name := range b.byName {
					if names++; len(name) > maxName {
						t.Errorf("a name of %d bytes is kept", len(name))
					}
				}
			}
		}
		q.mu.Unlock()
		if names > 2*(maxIdle+50) || bands > 2 {
			t.Errorf("%d tenants in %d bands are remembered", names, bands)
		}
		stop()
		wg.Wait()
	})
}

// A deadline that is over, or no time at all, does not get in.
func TestNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, MaxWait: 1})
		r, _ := fleet(t, q, 1, router.Options{})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		past, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
		defer cancel()
		if err := <-waitingRoute(r, past, prompt(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		var none *router.NoTargetError
		if err := <-waitingRoute(r, context.Background(), prompt(1)); !errors.As(err, &none) || none.Shed != TooLong {
			t.Error(err)
		}
		if s := q.Stats(); s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		l.Done(router.Outcome{Status: 200})
	})
}

// Targets that go away, fall asleep or drain while requests wait for them do not keep
// these: the next target that is there takes them, or they end at once.
func TestFleetChanges(t *testing.T) {
	for name, change := range map[string]func(*loadview.View) error{
		"leaves":  func(v *loadview.View) error { return v.Set([]loadview.Member{{ID: "new"}}) },
		"drained": func(v *loadview.View) error { return v.Set([]loadview.Member{{ID: "t0", Draining: true}, {ID: "new"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Config{Requests: 1})
				r, v := fleet(t, q, 1, router.Options{})
				l, err := r.Route(context.Background(), prompt(1))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				ends := []<-chan error{waitingRoute(r, context.Background(), prompt(1)),
					waitingRoute(r, context.Background(), prompt(1))}
				if err := change(v); err != nil {
					t.Fatal(err)
				}
				for _, end := range ends {
					if err := <-end; err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(begun); took > lookAgain {
					t.Errorf("it took %v to see a target with a place", took)
				}
				l.Done(router.Outcome{Status: 200}) // of a target that is no more
			})
		})
	}
	for name, change := range map[string]func(*loadview.View) error{
		"all leave":         func(v *loadview.View) error { return v.Set(nil) },
		"all are unhealthy": func(v *loadview.View) error { return v.SetUnhealthy("t0", true) },
		"all are drained":   func(v *loadview.View) error { return v.Set([]loadview.Member{{ID: "t0", Draining: true}}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Config{Requests: 1})
				r, v := fleet(t, q, 1, router.Options{})
				l, err := r.Route(context.Background(), prompt(1))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				end := waitingRoute(r, context.Background(), prompt(1))
				if err := change(v); err != nil {
					t.Fatal(err)
				}
				if err := <-end; !errors.Is(err, router.ErrNoTarget) {
					t.Error(err)
				}
				if took := time.Since(begun); took > lookAgain {
					t.Errorf("it took %v to see that there is none", took)
				}
				l.Done(router.Outcome{Status: 200})
				if s := q.Stats(); s.Waiting != 0 || s.Left[Ended] != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Thousands of made-up models take no more lines and goroutines than requests may wait,
// and nothing stays of them.
func TestForgedModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, MaxWaiting: 200, MaxWait: 3 * time.Second})
		r, _ := fleet(t, q, 1, router.Options{})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				p := prompt(1)
				p.Model = fmt.Sprint("model ", i)
				l, err := r.Route(as(Class{Tenant: fmt.Sprint(i % 7)}), p)
				var none *router.NoTargetError
				if err != nil && (!errors.As(err, &none) || none.Status() != 429 || none.RetryAfter <= 0) {
					t.Error(err)
				}
				l.Done(router.Outcome{Status: 200})
			})
		}
		synctest.Wait()
		if s := q.Stats(); s.Waiting != 200 || s.Models > 200 {
			t.Errorf("%+v", s)
		}
		l.Done(router.Outcome{Status: 200})
		wg.Wait()
		synctest.Wait()
		if s := q.Stats(); s.Waiting != 0 || s.Models != 0 || s.Bytes != 0 || len(s.Left) == 0 || s.Left[Served] != 200 {
			t.Errorf("%+v", s)
		}
	})
}

// Before anybody was served, a request that is shed is asked to come again after the time
// for which that has been so, a second at the least.
func TestRetryAfterAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, MaxWaiting: 1})
		r, _ := fleet(t, q, 1, router.Options{})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		first := waitingRoute(r, context.Background(), prompt(1))
		for _, want := range []time.Duration{time.Second, 20 * time.Second} {
			var none *router.NoTargetError
			if err := <-waitingRoute(r, context.Background(), prompt(1)); !errors.As(err, &none) || none.RetryAfter != want {
				t.Errorf("%v, %+v, want %v", err, none, want)
			}
			time.Sleep(20 * time.Second)
		}
		l.Done(router.Outcome{Status: 200})
		if err := <-first; err == nil {
			t.Error("served after MaxWait")
		}
	})
}
