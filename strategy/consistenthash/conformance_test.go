package consistenthash_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/consistenthash"
)

func newStrategy(rand func() uint64) router.Strategy {
	s, err := consistenthash.New(consistenthash.Config{Rand: rand})
	if err != nil {
		panic(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	routertest.Run(t, newStrategy, routertest.Options{})
}

func BenchmarkRequest(b *testing.B) {
	routertest.Benchmark(b, newStrategy)
}
