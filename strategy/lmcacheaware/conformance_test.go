package lmcacheaware_test

import (
	"hash/fnv"
	"math"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

// byName says something of every target: by a hash of its ID, so that it is the
// same in whatever order they come.
type byName struct{}

func (byName) Free(targets []router.Target, dst []float64) {
	for i := range targets {
		h := fnv.New32a()
		_, _ = h.Write([]byte(targets[i].ID))
		dst[i] = []float64{0, 0.25, 0.5, 1, math.NaN(), -1, 7, math.Inf(1), math.Inf(-1)}[h.Sum32()%9]
	}
}

// alike says the same of all.
type alike float64

func (a alike) Free(_ []router.Target, dst []float64) {
	for i := range dst {
		dst[i] = float64(a)
	}
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		config lmcacheaware.Config
		skip   map[routertest.Law]string
	}{
		"no source": {},
		"half full": {config: lmcacheaware.Config{Source: alike(0.5)}},
		"affinity":  {config: lmcacheaware.Config{AffinityRequests: 4}},
		"all different": {lmcacheaware.Config{Source: byName{}},
			map[routertest.Law]string{routertest.Ties: "what the source says differs"}},
		"affinity, all different": {lmcacheaware.Config{Source: byName{}, AffinityRequests: 4},
			map[routertest.Law]string{routertest.Ties: "what the source says differs"}},
	} {
		t.Run(name, func(t *testing.T) {
			routertest.Run(t, func(rand func() uint64) router.Strategy {
				cfg := c.config
				cfg.Rand = rand
				return mustNew(t, cfg)
			}, routertest.Options{Skip: c.skip})
		})
	}
}
