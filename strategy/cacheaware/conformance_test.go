package cacheaware_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/cacheaware"
)

func TestConformance(t *testing.T) {
	routertest.Run(t, func(rand func() uint64) router.Strategy {
		s, err := cacheaware.New(cacheaware.Config{Rand: rand})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, routertest.Options{})
}
