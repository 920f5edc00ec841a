package router_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
)

func leastLoad(t testing.TB) router.Strategy {
	t.Helper()
	s, err := leastload.New(leastload.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cacheAware(t testing.TB) router.Strategy {
	t.Helper()
	s, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Choosing and counting are one step: each choice sees all that was chosen
// before, also by another Router over the same Fleet.
func TestSpread(t *testing.T) {
	tests := map[string][]router.Strategy{
		"least_load":                   {leastLoad(t)},
		"cache_aware":                  {cacheAware(t)},
		"least_load, two Routers":      {leastLoad(t), leastLoad(t)},
		"cache_aware, two Routers":     {cacheAware(t), cacheAware(t)},
		"one of each over the same":    {leastLoad(t), cacheAware(t)},
		"one cache_aware, two Routers": slices.Repeat([]router.Strategy{cacheAware(t)}, 2),
		"eight Routers, four of a kind": {leastLoad(t), leastLoad(t), leastLoad(t), leastLoad(t), cacheAware(t),
			cacheAware(t), cacheAware(t), cacheAware(t)},
	}
	for name, strategies := range tests {
		t.Run(name, func(t *testing.T) {
			const requests, targets = 1000, 8
			v := newView(t, loadview.Config{}, ids(targets)...)
			var routers []*router.Router
			for _, s := range strategies {
				routers = append(routers, router.New(s, v, router.Options{}))
			}
			leases := make([]*router.Lease, requests)
			start := make(chan struct{})
			var wg sync.WaitGroup
			for i := range leases {
				wg.Go(func() {
					<-start
					// The number comes first: nothing is cached of any of them.
					p := router.Prompt{Text: fmt.Sprintf("%d is the number of this one", i)}
					l, err := routers[i%len(routers)].Route(t.Context(), p)
					if err != nil {
						t.Error(err)
						return
					}
					leases[i] = l
				})
			}
			close(start)
			wg.Wait()
			n := inFlight(v)
			sum := 0
			for _, n := range n {
				sum += n
			}
			if sum != requests || slices.Max(n)-slices.Min(n) > 2 {
				t.Errorf("%d requests were spread as %v", requests, n)
			}
			for _, l := range leases {
				wg.Go(func() {
					if l != nil {
						l.Done(router.Outcome{Status: 200})
					}
				})
			}
			wg.Wait()
			wantIdle(t, v)
		})
	}
}
