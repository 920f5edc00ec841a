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
	routertest.Run(t, newStrategy, routertest.Options{Skip: map[routertest.Law]string{
		routertest.Ranked: "the Score is the cached share alone, whatever the rank: to be mended",
	}})
}

func BenchmarkRequest(b *testing.B) {
	routertest.Benchmark(b, newStrategy)
}
