// Package random sends each prompt to a target drawn by weight.
package random

import (
	"cmp"
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
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
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// New returns a Strategy. It does not fail today.
func New(c Config) (*Strategy, error) { return &Strategy{rand: c.WithDefaults().Rand}, nil }

// Pick draws a target. It draws one random number a call if two or more are
// Ready.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := strategy.Scan(targets)
	switch sum.Ready {
	case 0:
		return router.Decision{}, strategy.NoTarget(targets)
	case 1:
		return strategy.NewDecision(p, &targets[sum.Only], router.ReasonOnly), nil
	}
	l := strategy.Lottery{Seed: s.rand()}
	for i := range targets {
		if targets[i].State == router.Ready {
			l.Show(i, &targets[i])
		}
	}
	return strategy.NewDecision(p, &targets[l.First()], router.ReasonRandom), nil
}

// Record does nothing.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets, the heaviest first. The score is the share of the
// greatest weight: chances are in proportion to it.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum := strategy.Scan(targets)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	strategy.Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Compare(strategy.Weight(&b.Target), strategy.Weight(&a.Target))
	})
	for i := range cs[:sum.Ready] {
		c := &cs[i]
		c.Score = strategy.Weight(&c.Target) / strategy.Weight(&cs[0].Target)
		c.Reason = router.ReasonTied
		if i == 0 {
			c.Reason = sum.OnlyOr(router.ReasonRandom)
		}
	}
	return dst
}
