package precisecacheaware

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
)

// Explain lists the targets as Pick ranks them. With v for the difference that
// Strategy tells of, the score is (1+v)/2 from 0 on and 1/(2-2v) below: 1/2 for the
// least loaded target that holds nothing, 1 for one that holds all. The fallbacks
// give the scores of least_load and of cache_aware.
func (s *Strategy) Explain(ctx context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	v := s.look(&p, targets, new(room))
	if len(targets) == 0 {
		return dst
	}
	if v.mode == byLoad {
		return s.explainLoad(ctx, &v, p, targets, dst)
	}
	at := make([]int, len(targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return s.order(&v, targets, a, b) })
	length, unit := v.length(&p)
	for n, i := range at {
		c := router.Candidate{
			Target: targets[i], Cached: v.cached(i), Length: length, Unit: unit, Score: s.score(&v, targets, i),
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
	return dst
}

func (s *Strategy) explainLoad(ctx context.Context, v *view, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	from := len(dst)
	why := v.reason(s, 0)
	dst = s.leastLoad.Explain(ctx, p, targets, dst)
	if first := dst[from:]; first[0].Target.State == router.Ready {
		first[0].Reason = why // a single Ready target's too
	}
	return dst
}

func (s *Strategy) score(v *view, targets []router.Target, i int) float64 {
	if v.mode == byText {
		return v.share(v.text.Cached[i], v.size)
	}
	x := -s.rankTokens(v, targets, i).cost
	if x < 0 {
		return 1 / (2 - 2*x)
	}
	return (1 + x) / 2
}

// order puts first what Pick chooses from, by rank; then what cache_aware's rules
// leave out, by what it holds; then what is not Ready. Ties go by ID, so that
// Explain says the same twice.
func (s *Strategy) order(v *view, targets []router.Target, a, b int) int {
	g, h := s.group(v, targets, a), s.group(v, targets, b)
	if g != h {
		return g - h
	}
	if g == 1 && v.text.Cached[a] != v.text.Cached[b] {
		return v.text.Cached[b] - v.text.Cached[a]
	}
	if g < 2 {
		x, y := s.rank(v, targets, a), s.rank(v, targets, b)
		if c := x.compare(&y); c != 0 {
			return c
		}
	}
	return cmp.Compare(targets[a].ID, targets[b].ID)
}

// passedOver says why targets[i], which is Ready, is not the one to take.
func (s *Strategy) passedOver(v *view, targets []router.Target, taken, i int) router.Reason {
	a, b := s.rank(v, targets, taken), s.rank(v, targets, i)
	if v.mode == byText {
		switch {
		case v.warm && v.text.Cached[i] == v.best && v.overloaded(&targets[i]):
			return router.ReasonOverloaded
		case v.pin && v.text.Cached[i] < v.best:
			return router.ReasonColder
		case a.cost != b.cost && !v.pin && v.Known == 0:
			return router.ReasonMoreWarmed
		}
	}
	switch {
	case a.cost != b.cost && v.mode == byTokens && v.waits(&targets[i]) <= v.waits(&targets[taken]):
		// Not by its load, so by what it holds, or counts as holding.
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
