package precisecacheaware

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Explain lists the targets as Pick ranks them. With v for the difference that
// Strategy documents, the score is (1+v)/2 from 0 on and 1/(2-2v) below: 1/2 for the
// least loaded target that holds nothing, 1 for one that holds all. Of equal ones, a
// lower rank has a lower score. If the fallback decides, the list is the fallback's.
func (s *Strategy) Explain(ctx context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	v, exact := s.look(&p, targets, new(scratch))
	if !exact {
		return s.fallback.explain(ctx, p, targets, dst)
	}
	at := make([]int, len(targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return s.order(&v, targets, a, b) })
	from := len(dst)
	for n, i := range at {
		c := router.Candidate{
			Target: targets[i], Cached: v.exact.Held[i], Length: v.size, Unit: router.Tokens, Score: s.score(&v, targets, i),
		}
		switch {
		case targets[i].State != router.Ready:
			c.Reason = router.ReasonOf(targets[i].State)
		case n == 0:
			c.Reason = v.reason(s, i)
		default:
			c.Reason = s.passedOver(&v, targets, at[0], i)
		}
		dst = append(dst, c)
	}
	strategy.Sharpen(dst[from:])
	return dst
}

func (s *Strategy) score(v *view, targets []router.Target, i int) float64 {
	x := -s.rank(v, targets, i).cost
	if x < 0 {
		return 1 / (2 - 2*x)
	}
	return (1 + x) / 2
}

// order puts the Ready ones first, by rank, then the others. Ties go by ID, so that Explain says the same twice.
func (s *Strategy) order(v *view, targets []router.Target, a, b int) int {
	ra, rb := targets[a].State == router.Ready, targets[b].State == router.Ready
	switch {
	case ra && !rb:
		return -1
	case rb && !ra:
		return 1
	case !ra:
		return cmp.Compare(targets[a].ID, targets[b].ID)
	}
	x, y := s.rank(v, targets, a), s.rank(v, targets, b)
	return cmp.Or(x.compare(&y), cmp.Compare(targets[a].ID, targets[b].ID))
}

// passedOver returns why targets[i], which is Ready, is not the one to take.
func (s *Strategy) passedOver(v *view, targets []router.Target, taken, i int) router.Reason {
	a, b := s.rank(v, targets, taken), s.rank(v, targets, i)
	switch {
	case a.cost != b.cost && v.waits(&targets[i]) <= v.waits(&targets[taken]):
		// Not by its load, so by its cached part, known or estimated.
		if v.untrusted(i) {
			return ReasonNeutral
		}
		return router.ReasonColder
	case a.cost != b.cost:
		return router.ReasonBusier
	case a.held != b.held:
		return router.ReasonColder
	case a.warmed != b.warmed:
		return router.ReasonMoreWarmed
	case a.cached != b.cached:
		return router.ReasonColder
	}
	return router.ReasonTied
}
