// Package random sends each prompt to a target drawn by weight.
package random

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/pick"
)

// Name is the strategy's name in configuration files.
const Name = "random"

// Config is how the strategy works. The zero Config is the default.
type Config struct {
	// Rand is drawn from. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// Strategy draws one of the Ready targets, each with a chance in proportion to
// its Weight. It keeps no state and is safe for concurrent use.
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

// Pick draws a target. It draws one random number a call where two or more are
// Ready.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := pick.Scan(targets)
	switch sum.Ready {
	case 0:
		return router.Decision{}, pick.NoTarget(targets)
	case 1:
		return pick.Decision(p, &targets[sum.Only], router.ReasonOnly), nil
	}
	return pick.Decision(p, &targets[pick.ByWeight(targets, s.rand())], router.ReasonRandom), nil
}

// Record does nothing.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets, the heaviest first. The score is the share of the
// greatest weight: chances are in proportion to it.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	return pick.ExplainByWeight(&p, targets, dst, router.ReasonRandom)
}
