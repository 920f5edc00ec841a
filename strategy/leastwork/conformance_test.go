package leastwork_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/leastwork"
)

func TestConformance(t *testing.T) {
	routertest.Run(t, func(rand func() uint64) router.Strategy {
		s, err := leastwork.New(leastwork.Config{Rand: rand})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, routertest.Options{})
}

func TestConformanceOfAgree(t *testing.T) {
	routertest.Run(t, func(rand func() uint64) router.Strategy {
		s, err := leastwork.New(leastwork.Config{Rand: rand, Agree: 0.25})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, routertest.Options{})
}

func BenchmarkRequest(b *testing.B) {
	routertest.Benchmark(b, func(rand func() uint64) router.Strategy {
		s, err := leastwork.New(leastwork.Config{Rand: rand})
		if err != nil {
			b.Fatal(err)
		}
		return s
	})
}
