package lmcacheaware_test

import (
	"context"
	"fmt"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

// capacities stands in for an *lmcache.Poller.
type capacities map[string]float64

func (c capacities) Free(targets []router.Target, dst []float64) {
	for i := range targets {
		dst[i] = math.NaN() // nothing is known
		if free, ok := c[targets[i].ID]; ok {
			dst[i] = free
		}
	}
}

func Example() {
	s, err := lmcacheaware.New(lmcacheaware.Config{
		Source: capacities{"gpu-1": 0.1, "gpu-2": 0.7}, // gpu-3 does not answer
	})
	if err != nil {
		panic(err)
	}
	p := router.Prompt{Model: "llama", Text: "Hello"}
	for _, inFlight := range []int{1, 6} {
		d, err := s.Pick(context.Background(), p, []router.Target{
			{ID: "gpu-1", Load: router.Load{Known: true, InFlight: 1}},
			{ID: "gpu-2", Load: router.Load{Known: true, InFlight: inFlight}},
			{ID: "gpu-3", Load: router.Load{Known: true, InFlight: 0}},
		})
		fmt.Println(d.Target.ID, d.Reason, err)
	}
	// Output:
	// gpu-2 cache_capacity <nil>
	// gpu-1 cache_capacity <nil>
}

func ExampleStrategy_Explain() {
	s, err := lmcacheaware.New(lmcacheaware.Config{
		Source: capacities{"gpu-1": 0.1, "gpu-2": 0.7, "gpu-4": -1},
	})
	if err != nil {
		panic(err)
	}
	cs := s.Explain(context.Background(), router.Prompt{Model: "llama", Text: "Hello"}, []router.Target{
		{ID: "gpu-1"}, {ID: "gpu-2"}, {ID: "gpu-3"}, {ID: "gpu-4"},
	}, nil)
	for _, c := range cs {
		fmt.Printf("%s %.2f %s\n", c.Target.ID, c.Score, c.Reason)
	}
	// Output:
	// gpu-2 1.00 cache_capacity
	// gpu-1 0.29 fuller_cache
	// gpu-3 0.05 cache_unknown
	// gpu-4 0.03 cache_unavailable
}
