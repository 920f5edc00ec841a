package otel

import (
	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/attribute"
)

const keyRole = attribute.Key("warmroute.role")

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
// numbers. fleet is the name under which the route's fleet is watched; its targets are counted by their role then.
func (t *Telemetry) WatchDisagg(route, fleet string, s Splits) error {
	return watch(t, t.splits, route, split{observe.Named(fleet), s}, s == nil)
}

// observeDisagg adds the numbers of a route. The caller holds t.mu.
func (t *Telemetry) observeDisagg(s sums, route string, x split) {
	st, a := x.s.Stats(), keyRoute.String(route)
	s.add(t.prefills, int(st.Split), a, keyOutcome.String("finished"))
	s.add(t.prefills, int(st.PrefillFailed), a, keyOutcome.String("failed"))
	for why, n := range st.Skipped {
		s.add(t.prefillsSkipped, int(n), a, keyReason.String(string(why)))
	}
	s.add(t.blocksLost, int(st.Stranded), a, keyCause.String("stranded"))
	s.add(t.blocksLost, int(st.Expired), a, keyCause.String("expired"))
	s.add(t.prefillsReused, int(st.Reused), a)
	s.add(t.prefillsAgain, int(st.Again), a)
	s.add(t.decodesSilent, int(st.Silent), a)
	v := t.views[observe.Clean(x.fleet)]
	if v == nil {
		return
	}
	for _, role := range []disagg.Role{disagg.Both, disagg.Prefill, disagg.Decode} {
		s.add(t.targetsByRole, 0, a, keyRole.String(string(role)))
	}
	for _, m := range v.Snapshot() {
		s.add(t.targetsByRole, 1, a, keyRole.String(string(x.s.Place(m.Target).Role)))
	}
}
