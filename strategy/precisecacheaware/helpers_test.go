package precisecacheaware_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

const blockSize = kvtest.BlockSize

var tokens = kvtest.Tokens

func mustNew(tb testing.TB, c precisecacheaware.Config) *precisecacheaware.Strategy {
	tb.Helper()
	s, err := precisecacheaware.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// busy is a target of known load.
func busy(id string, inFlight int) router.Target {
	return router.Target{ID: id, Load: router.Load{Known: true, InFlight: inFlight}}
}

func pick(tb testing.TB, s *precisecacheaware.Strategy, p router.Prompt, targets ...router.Target) router.Decision {
	tb.Helper()
	d, err := s.Pick(context.Background(), p, targets)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// send records a prompt on a target, as if somebody else had chosen it.
func send(s *precisecacheaware.Strategy, id string, p router.Prompt) {
	s.Record(router.Decision{Prompt: p, Target: router.Target{ID: id}}, router.Outcome{Stage: router.Sent})
}

func seeded(n uint64) func() uint64 { return rand.New(rand.NewPCG(n, 3)).Uint64 }
