package cacheaware

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
)

// Explain lists the targets as Pick ranks them, and the scores agree with that. If a
// warm target is to be taken, the score is the share of the prompt that a target has
// been sent before; else it is 1/(1+d) with d the requests, or if no load is known
// the recorded prompts, beyond those of the first. Of equal ones, a rank below the
// first has a lower score. An empty prompt has score 0 everywhere.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	v := s.look(&p, targets, new(textcache.Targets))
	at := make([]int, len(targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return s.order(&v, targets, a, b) })
	from := len(dst)
	for n, i := range at {
		c := router.Candidate{
			Target: targets[i],
			Cached: v.key.Units(v.Cached[i]),
			Length: v.key.Units(v.key.Size()),
			Unit:   v.key.Unit(),
		}
		switch {
		case targets[i].State != router.Ready:
			c.Reason = router.ReasonOf(targets[i].State)
		case n == 0:
			c.Reason = v.reason()
		default:
			c.Reason = s.passedOver(&v, targets, at[0], i)
		}
		if targets[i].State == router.Ready {
			c.Score = s.score(&v, targets, at[0], i)
		}
		dst = append(dst, c)
	}
	strategy.Sharpen(dst[from:])
	return dst
}

func (s *Strategy) score(v *view, targets []router.Target, taken, i int) float64 {
	switch {
	case v.key.Size() == 0:
		return 0
	case v.pin:
		return v.share(v.Cached[i])
	}
	a, b := s.rank(v, targets, taken), s.rank(v, targets, i)
	return 1 / (1 + max(b.load-a.load, 0))
}

// order puts the targets that Pick chooses from first, by rank; then those that
// rule 2 excludes, by their cached part; then those that are not Ready. Ties are
// ordered by ID, so that Explain is deterministic.
func (s *Strategy) order(v *view, targets []router.Target, a, b int) int {
	group := func(i int) int {
		switch {
		case targets[i].State != router.Ready:
			return 2
		case v.pin && !s.pinned(v, targets, i):
			return 1
		}
		return 0
	}
	g, h := group(a), group(b)
	if g != h {
		return g - h
	}
	if g == 1 && v.Cached[a] != v.Cached[b] {
		return v.Cached[b] - v.Cached[a]
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
	switch {
	case v.warm && v.Cached[i] == v.best && s.overloaded(v, &targets[i]):
		return router.ReasonOverloaded
	case v.pin && v.Cached[i] < v.best:
		return router.ReasonColder
	case a.load != b.load && (v.pin || v.Known > 0):
		return router.ReasonBusier
	case a.load != b.load:
		return router.ReasonMoreWarmed
	case a.held != b.held:
		return router.ReasonColder
	case a.warmed != b.warmed:
		return router.ReasonMoreWarmed
	}
	return router.ReasonTied
}
