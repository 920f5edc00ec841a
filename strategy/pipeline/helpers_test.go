package pipeline_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// busy is a Ready target with n requests in flight.
func busy(id string, n int) router.Target {
	return router.Target{ID: id, Load: router.Load{Known: true, InFlight: n}}
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

// clock is a clock that the test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

func pickFor(tb testing.TB, s *pipeline.Strategy, p router.Prompt, ts ...router.Target) router.Decision {
	tb.Helper()
	d, err := s.Pick(context.Background(), p, ts)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// send records p as sent to id and finished there.
func send(tb testing.TB, s *pipeline.Strategy, p router.Prompt, id string) {
	tb.Helper()
	record(s, pickFor(tb, s, p, busy(id, 0)), router.Sent, router.FirstToken, router.Finished)
}

func record(s *pipeline.Strategy, d router.Decision, stages ...router.Stage) {
	for _, st := range stages {
		s.Record(d, router.Outcome{Stage: st})
	}
}

// always reports whether Pick takes id every time.
func always(tb testing.TB, s *pipeline.Strategy, p router.Prompt, id string, ts ...router.Target) bool {
	tb.Helper()
	for range 30 {
		if pickFor(tb, s, p, ts...).Target.ID != id {
			return false
		}
	}
	return true
}
