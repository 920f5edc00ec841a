package router_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

var (
	_ router.ForgetNotifier = (*loadview.View)(nil)
	_ router.ChangeNotifier = (*loadview.View)(nil)
)

// Requests that wait over a View sleep through no change of it: members that join,
// get well, stop draining or end their cool-down.
func TestWaitOverView(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after func(*testing.T, *loadview.View)
		want          time.Duration
	}{
		"one joins": {
			func(*testing.T, *loadview.View) {}, func(t *testing.T, v *loadview.View) { setMembers(t, v, "a") }, time.Hour},
		"one gets well": {
			func(t *testing.T, v *loadview.View) { setMembers(t, v, "a"); flag(t, v.SetUnhealthy("a", true)) },
			func(t *testing.T, v *loadview.View) { flag(t, v.SetUnhealthy("a", false)) }, time.Hour},
		"one stops draining": {
			func(t *testing.T, v *loadview.View) { setMembers(t, v, "a"); flag(t, v.SetDraining("a", true)) },
			func(t *testing.T, v *loadview.View) { flag(t, v.SetDraining("a", false)) }, time.Hour},
		"one has cooled down": {
			func(t *testing.T, v *loadview.View) {
				setMembers(t, v, "a")
				r := router.New(first, v, router.Options{})
				route(t, r, t.Context()).Done(router.Outcome{Err: errRefused})
			}, func(*testing.T, *loadview.View) {}, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 10 * time.Minute, CoolMax: time.Hour, Jitter: -1})
				tt.before(t, v)
				r := router.New(first, v, router.Options{Wait: 24 * time.Hour})
				start := time.Now()
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						l, err := r.Route(t.Context(), prompt)
						if err != nil {
							t.Error(err)
							return
						}
						if took := time.Since(start); took != tt.want {
							t.Errorf("waited %v", took)
						}
						l.Done(router.Outcome{Status: 200})
					})
				}
				time.AfterFunc(time.Hour, func() { tt.after(t, v) })
				wg.Wait()
				wantIdle(t, v)
			})
		})
	}
}

func flag(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A View with members that come, go, fail and recover while requests wait for them,
// on real time: all are served.
func TestWaitStormOverView(t *testing.T) {
	v := newView(t, loadview.Config{CoolAfter: 2, CoolBase: time.Millisecond, CoolMax: 2 * time.Millisecond})
	r := router.New(first, v, router.Options{Wait: time.Hour, Backoff: -1})
	stop := make(chan struct{})
	var aside, wg sync.WaitGroup
	aside.Go(func() {
		rng := rand.New(rand.NewPCG(3, 4))
		for {
			select {
			case <-stop:
				return
			default:
			}
			setMembers(t, v, []string{"a", "b"}[:rng.IntN(3)]...)
			_ = v.SetUnhealthy("a", rng.IntN(2) == 0) // if it is there
		}
	})
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(g)))
			for range 100 {
				l, err := r.Route(t.Context(), prompt)
				if err != nil {
					t.Error(err)
					return
				}
				o := router.Outcome{Status: 200}
				if rng.IntN(3) == 0 {
					o = router.Outcome{Err: errors.New("connection reset")}
				}
				l.Done(o)
			}
		})
	}
	wg.Wait()
	close(stop)
	aside.Wait()
	wantIdle(t, v)
}
