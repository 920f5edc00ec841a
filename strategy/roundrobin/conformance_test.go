package roundrobin_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/roundrobin"
)

func newStrategy(_ func() uint64) router.Strategy {
	s, err := roundrobin.New(roundrobin.Config{})
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
