package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// unprepared is a strategy that matches in Pick, while the fleet is locked.
type unprepared struct{ router.Strategy }

// newUnprepared is newRouter with a strategy that matches while the fleet is locked.
func newUnprepared(n int) (*router.Router, error) {
	s, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		return nil, err
	}
	view, err := newView(n)
	if err != nil {
		return nil, err
	}
	return router.New(unprepared{s}, view, router.Options{}), nil
}

// newView returns a fleet of n idle members.
func newView(n int) (*loadview.View, error) {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	members := make([]loadview.Member, n)
	for i := range members {
		members[i] = loadview.Member{ID: fmt.Sprintf("engine-%d", i)}
	}
	return view, view.Set(members)
}

// parallelRows reads how many requests a second 1 to 16 goroutines route over one
// fleet, with the strategy matching before and under the fleet's lock, and over
// fleets of their own, which share nothing: the last is the most that the machine
// and Go's scheduler leave. The three are measured by turns.
func parallelRows(t *table, o *options, texts []string) error {
	t.say("Route + Done from several goroutines")
	const size = 8
	for _, n := range []int{1, 2, 4, 8, 16} {
		var best [3]float64
		var worst [3]time.Duration // the least of the repetitions' p99
		for rep := range o.reps {
			for kind := range best {
				routers := make([]*router.Router, n)
				for i := range routers {
					var err error
					switch {
					case kind == 2 || i == 0 && kind == 0:
						routers[i], err = newRouter(size)
					case i == 0:
						routers[i], err = newUnprepared(size)
					default:
						routers[i] = routers[0]
					}
					if err != nil {
						return err
					}
				}
				perSecond, p99, err := routeFrom(routers, texts, fmt.Sprint(rep, kind, n))
				if err != nil {
					return err
				}
				best[kind] = max(best[kind], perSecond)
				if rep == 0 || p99 < worst[kind] {
					worst[kind] = p99
				}
			}
		}
		t.reading(fmt.Sprintf("  from %d goroutines on %d cores", n, runtime.GOMAXPROCS(0)),
			"%.0fk a second, p99 %.0f us; matched under the lock %.0fk, %.0f us; over fleets of their own %.0fk, %.0f us",
			best[0]/1e3, us(worst[0]), best[1]/1e3, us(worst[1]), best[2]/1e3, us(worst[2]))
	}
	return nil
}

// routeFrom routes new turns from one goroutine for each of routers, which may be
// one.
func routeFrom(routers []*router.Router, texts []string, tag string) (perSecond float64, p99 time.Duration, err error) {
	const total = 4096
	lists := make([][]string, len(routers))
	for g := range lists {
		for i := range total / len(lists) {
			text := texts[(i+g)%len(texts)]
			lists[g] = append(lists[g], fmt.Sprintf("%s%s.%d.%d", text[:len(text)-600], tag, g, i)+text[:580])
		}
		for _, text := range texts[:min(len(texts), 200)] {
			if err := roundTrip(context.Background(), routers[g], text[:len(text)-600]); err != nil {
				return 0, 0, err
			}
		}
	}
	runtime.GC()
	var failed atomic.Pointer[error]
	all := newSamples(total)
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for g, list := range lists {
		wg.Go(func() {
			s := newSamples(len(list))
			for _, text := range list {
				b := time.Now()
				if err := roundTrip(context.Background(), routers[g], text); err != nil {
					failed.Store(&err)
				}
				s.add(time.Since(b))
			}
			mu.Lock()
			defer mu.Unlock()
			all.d = append(all.d, s.d...)
		})
	}
	wg.Wait()
	perSecond = float64(len(all.d)) / time.Since(start).Seconds()
	if e := failed.Load(); e != nil {
		return 0, 0, *e
	}
	return perSecond, all.p(.99), nil
}
