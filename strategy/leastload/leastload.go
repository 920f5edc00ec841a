// Package leastload sends each prompt to the target that has the least to do.
package leastload

import (
	"cmp"
	"context"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/strategy/random"
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
// If no load is known at all, one is drawn by Weight, as package random does.
//
// It keeps no state and is safe for concurrent use.
type Strategy struct {
	rand  func() uint64
	blind *random.Strategy // chooses if no load is known
}

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
func New(c Config) (*Strategy, error) {
	c = c.WithDefaults()
	blind, err := random.New(random.Config{Rand: c.Rand})
	if err != nil {
		return nil, err
	}
	return &Strategy{rand: c.Rand, blind: blind}, nil
}

// Pick chooses the least loaded target. It draws one random number a call if
// two or more are Ready.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := strategy.Scan(targets)
	switch {
	case sum.Ready == 0:
		return router.Decision{}, strategy.NoTarget(targets)
	case sum.Ready == 1:
		return strategy.NewDecision(p, &targets[sum.Only], router.ReasonOnly), nil
	case sum.Known == 0:
		return s.blind.Pick(ctx, p, targets)
	}
	tie := strategy.Tie{Seed: s.rand()}
	least := math.Inf(1)
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		switch l := sum.Load(t); {
		case l < least:
			least = l
			tie.Better(i)
		case l == least:
			tie.Equal(i, targets)
		}
	}
	return strategy.NewDecision(p, &targets[tie.Best()], router.ReasonLeastLoad), nil
}

// Record does nothing: the fleet counts the load.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets by load. The score is 1 at the least load and
// 1/(1+d) for d requests beyond it; if no load is known, the share of the
// greatest weight.
func (s *Strategy) Explain(ctx context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum := strategy.Scan(targets)
	if sum.Known == 0 {
		return s.blind.Explain(ctx, p, targets, dst)
	}
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	strategy.Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Compare(sum.Load(&a.Target), sum.Load(&b.Target))
	})
	for i := range cs[:sum.Ready] {
		c := &cs[i]
		c.Score = sum.LoadScore(&c.Target)
		switch {
		case i == 0:
			c.Reason = sum.OnlyOr(router.ReasonLeastLoad)
		case sum.Load(&c.Target) == sum.Load(&cs[0].Target):
			c.Reason = router.ReasonTied
		default:
			c.Reason = router.ReasonBusier
		}
	}
	return dst
}
