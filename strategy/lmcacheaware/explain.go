package lmcacheaware

import (
	"cmp"
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Explain lists the targets by their cost. The score is 1 at the least cost and
// 1/(1+d) for d requests beyond it. Of one that is passed over, the reason is the
// term that took it the farthest from the one to take.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	r := new(scratch)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	if !s.look(r, &p, targets) {
		strategy.Sort(dst[from:], nil)
		return dst
	}
	at := make([]int, len(targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return s.compare(r, targets, a, b) })
	cs := dst[from:]
	first := at[0]
	for k, i := range at {
		t := &targets[i]
		c := router.Candidate{Target: *t, Cached: s.cached(r, i), Length: r.length, Unit: r.unit}
		switch {
		case t.State != router.Ready:
			c.Reason = router.ReasonOf(t.State)
		case k == 0:
			c.Score, c.Reason = 1, r.reason()
		default:
			c.Score = 1 / (1 + max(s.cost(r, i, t)-s.cost(r, first, &targets[first]), 0))
			c.Reason = s.passedOver(r, targets, first, i)
		}
		cs[k] = c
	}
	strategy.Sharpen(cs)
	return dst
}

// compare is below 0 if targets[a] is better than targets[b]. If no load is
// known, the heavier of two tied ones is drawn more often.
func (s *Strategy) compare(r *scratch, targets []router.Target, a, b int) int {
	ta, tb := &targets[a], &targets[b]
	ra, rb := ta.State == router.Ready, tb.State == router.Ready
	switch {
	case ra != rb && ra:
		return -1
	case ra != rb:
		return 1
	case !ra:
		return cmp.Compare(ta.ID, tb.ID)
	}
	c := cmp.Or(cmp.Compare(s.cost(r, a, ta), s.cost(r, b, tb)), cmp.Compare(s.cached(r, b), s.cached(r, a)))
	if c == 0 && r.Known == 0 {
		c = cmp.Compare(strategy.Weight(tb), strategy.Weight(ta))
	}
	return cmp.Or(c, cmp.Compare(ta.ID, tb.ID))
}

// passedOver says why targets[i] is not the one to take.
func (s *Strategy) passedOver(r *scratch, targets []router.Target, taken, i int) router.Reason {
	load := r.Load(&targets[i]) - r.Load(&targets[taken])
	room := s.away(r, i) - s.away(r, taken)
	held := s.share(r, taken) - s.share(r, i)
	switch most := max(load, room, held); {
	case s.cost(r, i, &targets[i]) == s.cost(r, taken, &targets[taken]):
		if s.cached(r, i) < s.cached(r, taken) {
			return router.ReasonColder
		}
		return router.ReasonTied
	case most == load:
		return router.ReasonBusier
	case most == held:
		return router.ReasonColder
	}
	switch r.state(i) {
	case unavailable:
		return ReasonUnavailable
	case neutral:
		return ReasonNeutral
	}
	return ReasonFuller
}
