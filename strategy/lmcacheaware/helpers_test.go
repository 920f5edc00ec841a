package lmcacheaware_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

// values is a Source with the values of a test, by ID; nothing for others.
type values map[string]float64

func (f values) Free(targets []router.Target, dst []float64) {
	for i := range targets {
		dst[i] = math.NaN()
		if v, ok := f[targets[i].ID]; ok {
			dst[i] = v
		}
	}
}

// unavailable is what a Source says of a cache that cannot be used.
const unavailable = -1

func mustNew(tb testing.TB, c lmcacheaware.Config) *lmcacheaware.Strategy {
	tb.Helper()
	if c.Rand == nil {
		c.Rand = seeded(1)
	}
	s, err := lmcacheaware.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func seeded(n uint64) func() uint64 {
	var mu sync.Mutex
	src := rand.NewPCG(n, n)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return src.Uint64()
	}
}

// busy is a Ready target with n requests in flight.
func busy(id string, n int) router.Target {
	return router.Target{ID: id, Load: router.Load{Known: true, InFlight: n}}
}

func pickFor(tb testing.TB, s *lmcacheaware.Strategy, p router.Prompt, ts ...router.Target) router.Decision {
	tb.Helper()
	d, err := s.Pick(context.Background(), p, ts)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// send records p as sent to id and finished there.
func send(tb testing.TB, s *lmcacheaware.Strategy, p router.Prompt, id string) {
	tb.Helper()
	d := pickFor(tb, s, p, busy(id, 0))
	for _, st := range []router.Stage{router.Sent, router.FirstToken, router.Finished} {
		s.Record(d, router.Outcome{Stage: st})
	}
}

// taken returns the share of 2,000 picks that each target got.
func taken(tb testing.TB, s *lmcacheaware.Strategy, p router.Prompt, ts ...router.Target) map[string]float64 {
	tb.Helper()
	const n = 2000
	got := map[string]float64{}
	for range n {
		got[pickFor(tb, s, p, ts...).Target.ID]++
	}
	for id := range got {
		got[id] /= n
	}
	return got
}
