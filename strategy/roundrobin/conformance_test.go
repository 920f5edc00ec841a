package roundrobin_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/roundrobin"
)

func TestConformance(t *testing.T) {
	routertest.Run(t, func(_ func() uint64) router.Strategy {
		s, err := roundrobin.New(roundrobin.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, routertest.Options{})
}
