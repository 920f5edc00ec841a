// Package poweroftwo draws two targets and sends the prompt to the less loaded
// one, so that many gateways with old news of the load do not all run to the
// same target. (Mitzenmacher, "The power of two choices in randomized load
// balancing", IEEE TPDS 2001.)
package poweroftwo

import (
	"cmp"
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Name is the strategy's name in configuration files.
const Name = "power_of_two"

// Config is how the strategy works. The zero Config is the default.
type Config struct {
	// Rand is drawn from. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// Strategy draws two different Ready targets by Weight and picks the one of the
// lower load, which is (InFlight + Queued) / (Weight / the smallest Ready
// Weight); at equal loads the one drawn first. A target of unknown load counts
// at the mean of the others.
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
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// New returns a Strategy. It does not fail today.
func New(c Config) (*Strategy, error) { return &Strategy{rand: c.WithDefaults().Rand}, nil }

// Pick draws two and takes the less loaded. It draws one random number a call
// if two or more are Ready, and looks at every target: a draw that does not
// depend on their order has to.
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
	t, other := &targets[l.First()], &targets[l.Second()]
	if sum.Load(other) < sum.Load(t) {
		t = other
	}
	return strategy.NewDecision(p, t, router.ReasonPowerOfTwo), nil
}

// Record does nothing: the load is the fleet's to know.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets by load. The draw decides between all but the one
// that is busier than every other, which cannot win. The score is 1 at the least
// load and 1/(1+d) for d requests beyond it.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum := strategy.Scan(targets)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	strategy.Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Or(
			cmp.Compare(sum.Load(&a.Target), sum.Load(&b.Target)),
			cmp.Compare(strategy.Weight(&b.Target), strategy.Weight(&a.Target)))
	})
	last := sum.Ready - 1
	for i := range cs[:sum.Ready] {
		c := &cs[i]
		c.Score = sum.LoadScore(&c.Target)
		switch {
		case i == 0:
			c.Reason = sum.OnlyOr(router.ReasonPowerOfTwo)
		case i == last && sum.Load(&c.Target) > sum.Load(&cs[i-1].Target):
			c.Reason = router.ReasonBusier
		default:
			c.Reason = router.ReasonTied
		}
	}
	return dst
}
