package leastwork

import (
	"cmp"
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Explain lists the targets by cost, the least first. The score is the least cost
// divided by the target's. Where Config.Agree takes costs for equal, so does it.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	v := s.look(&p, targets, new(room))
	level := s.level(&v, targets)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	cost := make(map[string]float64, len(cs))
	reason := make(map[string]router.Reason, len(cs))
	for i := range cs {
		cs[i].Cached, cs[i].Length, cs[i].Unit = v.units(v.held[i]), v.units(v.size), v.unit()
		cost[targets[i].ID] = max(s.cost(&v, targets, i), level)
		reason[targets[i].ID] = v.reason(i)
	}
	strategy.Sort(cs, func(a, b *router.Candidate) int {
		c := cmp.Compare(cost[a.Target.ID], cost[b.Target.ID])
		if c == 0 && level == 0 {
			c = cmp.Compare(b.Cached, a.Cached)
		}
		return c
	})
	for i := range cs[:v.ready] {
		c := &cs[i]
		least, mine := cost[cs[0].Target.ID], cost[c.Target.ID]
		c.Score = 1
		if mine > 0 {
			c.Score = min(least/mine, 1)
		}
		switch {
		case i == 0:
			c.Reason = reason[c.Target.ID]
		case mine == least && (level > 0 || c.Cached == cs[0].Cached):
			c.Reason = router.ReasonTied
		case c.Cached < cs[0].Cached:
			c.Reason = router.ReasonColder
		default:
			c.Reason = router.ReasonBusier
		}
	}
	return dst
}
