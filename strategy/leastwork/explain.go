package leastwork

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Explain lists the targets by cost, the least first. The score is the least cost
// divided by the target's, less if the target is not the one to take of equal costs.
// Costs that Config.Agree takes for equal are equal here too.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	var v view
	s.look(&v, &p, targets, new(scratch))
	at := make([]int, len(targets))
	ranks := make([]rank, len(targets))
	for i := range at {
		at[i], ranks[i] = i, s.rank(&v, targets, i)
	}
	ready := func(i int) bool { return targets[i].State == router.Ready }
	slices.SortStableFunc(at, func(a, b int) int {
		switch {
		case ready(a) && ready(b):
			return cmp.Or(ranks[a].compare(&ranks[b]), s.compareWarmed(&v, targets, a, b),
				cmp.Compare(targets[a].ID, targets[b].ID))
		case ready(a):
			return -1
		case ready(b):
			return 1
		}
		return cmp.Compare(targets[a].ID, targets[b].ID)
	})
	from := len(dst)
	for n, i := range at {
		c := router.Candidate{
			Target: targets[i], Cached: v.units(v.held[i]), Length: v.units(v.size), Unit: v.unit(),
			Reason: router.ReasonOf(targets[i].State),
		}
		if ready(i) {
			c.Score = 1
			if cost := ranks[i].cost; cost > 0 {
				c.Score = min(ranks[at[0]].cost/cost, 1)
			}
			c.Reason = s.passedOver(&v, targets, ranks, at[0], i)
			if n == 0 {
				c.Reason = v.reason(i)
			}
		}
		dst = append(dst, c)
	}
	strategy.Sharpen(dst[from:])
	return dst
}

// passedOver returns why targets[i] is not the one to take.
func (s *Strategy) passedOver(v *view, targets []router.Target, ranks []rank, taken, i int) router.Reason {
	a, b := ranks[taken], ranks[i]
	switch {
	case b.worth > a.worth: // both are negative
		return router.ReasonColder
	case b.cost > a.cost:
		return router.ReasonBusier
	case a.compare(&b) == 0 && s.compareWarmed(v, targets, taken, i) == 0:
		return router.ReasonTied
	}
	return router.ReasonMoreWarmed
}
