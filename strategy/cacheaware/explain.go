package cacheaware

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
)

// Explain lists the targets as Pick ranks them. The score is the share of the
// prompt that a target has been sent before.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	v := s.look(&p, targets, new(textcache.Targets))
	at := make([]int, len(targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return s.order(&v, targets, a, b) })
	for n, i := range at {
		c := router.Candidate{
			Target: targets[i],
			Cached: v.key.Units(v.Cached[i]),
			Length: v.key.Units(v.key.Size()),
			Unit:   v.key.Unit(),
			Score:  v.share(v.Cached[i]),
		}
		switch {
		case targets[i].State != router.Ready:
			c.Reason = router.ReasonOf(targets[i].State)
		case n == 0:
			c.Reason = v.reason()
		default:
			c.Reason = s.passedOver(&v, targets, at[0], i)
		}
		dst = append(dst, c)
	}
	return dst
}

// order puts first what Pick would take first, then the rest by what they hold
// where one is pinned, else by rank; ties by ID, so that Explain says the same
// twice.
func (s *Strategy) order(v *view, targets []router.Target, a, b int) int {
	if ra, rb := targets[a].State == router.Ready, targets[b].State == router.Ready; ra != rb {
		return sign(ra)
	} else if ra && v.pin {
		if pa, pb := s.pinned(v, targets, a), s.pinned(v, targets, b); pa != pb {
			return sign(pa)
		}
		if c := cmp.Or(cmp.Compare(v.Cached[b], v.Cached[a]), cmp.Compare(v.Load(&targets[a]), v.Load(&targets[b]))); c != 0 {
			return c
		}
	} else if ra {
		if c := s.rank(v, targets, a).compare(s.rank(v, targets, b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(targets[a].ID, targets[b].ID)
}

// passedOver says why targets[i], which is Ready, is not the one to take.
func (s *Strategy) passedOver(v *view, targets []router.Target, taken, i int) router.Reason {
	if v.warm && v.Cached[i] == v.best && s.overloaded(v, &targets[i]) {
		return router.ReasonOverloaded
	}
	if v.pin {
		switch {
		case v.Cached[i] < v.best:
			return router.ReasonColder
		case v.Load(&targets[i]) > v.Load(&targets[taken]):
			return router.ReasonBusier
		}
		return router.ReasonTied
	}
	a, b := s.rank(v, targets, taken), s.rank(v, targets, i)
	switch {
	case a.load != b.load && v.Known > 0:
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
