// Package zone is a strategy of one's own, written with the kit of package strategy. It sends each prompt to the least
// loaded target, and counts every target of another zone as if it had a few requests more.
package zone

import (
	"cmp"
	"context"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Strategy reads the zone of a target from its Ref, which is a string. It is safe for concurrent use.
type Strategy struct {
	Zone     string        // of this gateway
	Distance float64       // the cost of another zone, in requests
	Rand     func() uint64 // breaks ties; nil means math/rand/v2
}

func (s Strategy) cost(sum *strategy.Summary, t *router.Target) float64 {
	if zone, _ := t.Ref.(string); zone == s.Zone {
		return sum.Load(t)
	}
	return sum.Load(t) + s.Distance
}

// Pick chooses the target of the least cost.
func (s Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := strategy.Scan(targets)
	if sum.Ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	tie, least := strategy.Tie{Seed: strategy.Rand(s.Rand)()}, math.Inf(1)
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		switch c := s.cost(&sum, &targets[i]); {
		case c < least:
			least = c
			tie.Better(i)
		case c == least:
			tie.Equal(i, targets)
		}
	}
	return strategy.NewDecision(p, &targets[tie.Best()], "nearest"), nil
}

// Record does nothing: the fleet counts the load.
func (s Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets by cost. It is optional: pages that show why a target was chosen use it.
func (s Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum, from := strategy.Scan(targets), len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	strategy.Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Compare(s.cost(&sum, &a.Target), s.cost(&sum, &b.Target))
	})
	for i := range cs[:sum.Ready] {
		more := s.cost(&sum, &cs[i].Target) - s.cost(&sum, &cs[0].Target)
		cs[i].Score = 1 / (1 + more)
		switch {
		case i == 0:
			cs[i].Reason = "nearest"
		case more == 0:
			cs[i].Reason = router.ReasonTied
		default:
			cs[i].Reason = router.ReasonBusier
		}
	}
	return dst
}
