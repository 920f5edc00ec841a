// Package leastload sends each prompt to the target that has the least to do.
package leastload

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/pick"
)

// Name is the strategy's name in configuration files.
const Name = "least_load"

// Config is how the strategy works. The zero Config is the default.
type Config struct {
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// Strategy picks the Ready target of the least load, which is
// (InFlight + Queued) / (Weight / the smallest Ready Weight); equal ones have
// equal chances. A target of unknown load counts at the mean of the others.
// Where no load is known at all, one is drawn by Weight.
//
// It keeps no state and is safe for concurrent use.
type Strategy struct{ rand func() uint64 }

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
)

// WithDefaults returns c with the default in place of each field that is zero and
// has one.
func (c Config) WithDefaults() Config {
	c.Rand = pick.Rand(c.Rand)
	return c
}

// New returns a Strategy. It does not fail today.
func New(c Config) (*Strategy, error) { return &Strategy{rand: c.WithDefaults().Rand}, nil }

// Pick chooses the least loaded target. It draws one random number a call where
// two or more are Ready.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := pick.Scan(targets)
	switch sum.Ready {
	case 0:
		return router.Decision{}, pick.NoTarget(targets)
	case 1:
		return pick.Decision(p, &targets[sum.Only], router.ReasonOnly), nil
	}
	i, _ := pick.Least(targets, &sum, s.rand())
	return pick.Decision(p, &targets[i], reason(&sum)), nil
}

func reason(sum *pick.Summary) router.Reason {
	if sum.Known == 0 {
		return router.ReasonRandom
	}
	return router.ReasonLeastLoad
}

// Record does nothing: the load is the fleet's to know.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets by load. The score is 1 at the least load and
// 1/(1+d) for d requests beyond it; where no load is known, the share of the
// greatest weight.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	sum := pick.Scan(targets)
	return pick.ExplainLeast(&p, targets, dst, reason(&sum))
}
