package leastwork

import (
	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
)

// spread returns the index of the target to take if requests are unseen, -1 if the costs alone decide.
func (s *Strategy) spread(v *view, targets []router.Target) int {
	q := s.cache.Unseen()
	if q == 0 || v.ready < 2 {
		return -1
	}
	v.poured = v.poured[:0]
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		price := (v.asTokens(v.size-v.worth[i]) + s.cfg.ContextWeight*v.asTokens(v.size) + 1) / strategy.Weight(t)
		v.poured = append(v.poured, textcache.Glass{Index: i, Cost: s.cost(v, targets, i), Price: price})
	}
	return s.cache.Pour(&v.Targets, v.poured, q)
}
