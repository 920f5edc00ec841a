package prometheus

import (
	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/observe"
)

var (
	disaggPrefills = read(counter, "disagg_prefills_total",
		"Prompts computed by a prefill target, and attempts at it that failed.", "route", "outcome")
	disaggSkipped = read(counter, "disagg_skipped_total",
		"Requests with prompts that the decode target computed too, by the reason.", "route", "reason")
	disaggLost = read(counter, "disagg_blocks_lost_total",
		"Prompts computed by a prefill target that no decode target replied to (stranded), or that were kept too long "+
			"to be sent again (expired).", "route", "cause")
	disaggReused = read(counter, "disagg_reused_total",
		"Parameters of computed prompts that were sent to a further decode target.", "route")
	disaggAgain = read(counter, "disagg_again_total",
		"Prompts that a prefill target computed once more, because their blocks were gone or may be.", "route")
	disaggSilent = read(counter, "disagg_silent_total", "Decode targets that sent no token in time.", "route")
	targetRole   = read(gauge, "target_role", "1 for the role of a target: prefill, decode or both.", "fleet", "target",
		"role")
)

// split is a route with prefill and decode apart, as a *disagg.Splitter has it.
type split struct {
	fleet string
	s     Splits
}

// Splits are the numbers of a *disagg.Splitter.
type Splits interface {
	Stats() disagg.Stats
	Place(t router.Target) disagg.Place
}

// WatchDisagg is WatchFleet for a route with prefill and decode on different targets; a *disagg.Splitter has its
// numbers. fleet is the name under which the route's fleet is watched; its targets have a role then.
func (c *Collector) WatchDisagg(route, fleet string, s Splits) error {
	return watch(c, c.splits, route, split{observe.Named(fleet), s}, s == nil)
}

// collectDisagg adds the numbers of a route. The caller holds c.mu.
func (c *Collector) collectDisagg(p page, route string, x split) {
	st := x.s.Stats()
	p.add(disaggPrefills, float64(st.Split), route, "finished")
	p.add(disaggPrefills, float64(st.PrefillFailed), route, "failed")
	for why, n := range st.Skipped {
		p.add(disaggSkipped, float64(n), route, string(why))
	}
	p.add(disaggLost, float64(st.Stranded), route, "stranded")
	p.add(disaggLost, float64(st.Expired), route, "expired")
	p.add(disaggReused, float64(st.Reused), route)
	p.add(disaggAgain, float64(st.Again), route)
	p.add(disaggSilent, float64(st.Silent), route)
	v := c.views[observe.Clean(x.fleet)]
	if v == nil {
		return
	}
	fleet := c.fleets.Get(x.fleet)
	for _, m := range v.Snapshot() {
		p.set(targetRole, 1, fleet, c.targets.Get(fleet, m.Target.ID), string(x.s.Place(m.Target).Role))
	}
}
