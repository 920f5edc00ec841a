package otel

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// sums adds up values of equal attributes, of which only one may be observed.
type sums map[metric.Int64Observable]map[attribute.Distinct]*sum

type sum struct {
	set attribute.Set
	n   int64
}

func (s sums) add(i metric.Int64Observable, n int, kv ...attribute.KeyValue) {
	set := attribute.NewSet(kv...)
	if s[i] == nil {
		s[i] = make(map[attribute.Distinct]*sum)
	}
	v := s[i][set.Equivalent()]
	if v == nil {
		v = &sum{set: set}
		s[i][set.Equivalent()] = v
	}
	v.n += int64(n)
}

// observe is the callback.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	s := make(sums)
	t.mu.Lock()
	for name, v := range t.views {
		t.observeFleet(s, t.fleets.Get(name), v)
	}
	for st := range t.streams {
		for _, id := range st.ids {
			s.add(t.streamsByState, 1, keyFleet.String(st.fleet), keyState.String(observe.StreamState(st.state(id))))
		}
	}
	for name, x := range t.indexes {
		st, a := x.Stats(), keyIndex.String(t.indexNames.Get(name))
		s.add(t.indexTargets, st.Targets, a)
		s.add(t.indexTrusted, st.Trusted, a)
		s.add(t.indexBlocks, st.Blocks, a)
		s.add(t.indexStored, st.Stored, a)
		s.add(t.indexRemoved, st.Removed, a)
		s.add(t.indexEvicted, st.Evicted, a)
	}
	for name, stats := range t.tries {
		st, a := stats(), keyTrie.String(t.trieNames.Get(name))
		s.add(t.trieBytes, st.Bytes, a)
		s.add(t.triePrompts, st.Prompts, a)
		s.add(t.trieEvicted, st.Evicted, a)
	}
	for name, q := range t.queues {
		st, a := q.Stats(), keyQueue.String(t.queueNames.Get(name))
		s.add(t.queueWaiting, st.Waiting, a)
		s.add(t.queueBytes, int(st.Bytes), a)
	}
	for name, b := range t.memories {
		t.observeMemory(s, t.memoryNames.Get(name), b)
	}
	for name, sh := range t.shares {
		t.observeShare(s, t.shareNames.Get(name), sh)
	}
	for name, x := range t.splits {
		t.observeDisagg(s, t.routes.Get(name), x)
	}
	t.mu.Unlock()
	for i, values := range s {
		for _, v := range values {
			o.ObserveInt64(i, v.n, metric.WithAttributeSet(v.set))
		}
	}
	return nil
}

func (t *Telemetry) observeFleet(s sums, fleet string, v *loadview.View) {
	named := t.targets.IDs(fleet) // before the members: a target that joins meanwhile stays
	members := v.Snapshot()
	kept := make(map[string]bool, len(members))
	for name, other := range t.views {
		if t.fleets.Get(name) == fleet {
			for _, m := range other.Snapshot() {
				kept[m.Target.ID] = true
			}
		}
	}
	t.targets.Drop(fleet, func(id string) bool { return named[id] && !kept[id] })

	f := keyFleet.String(fleet)
	for st := router.Ready; st <= router.Asleep; st++ {
		s.add(t.targetsByState, 0, f, keyState.String(st.String()))
	}
	s.add(t.scrapeFailing, 0, f)
	for _, m := range members {
		target := keyTarget.String(t.targets.Get(fleet, m.Target.ID))
		s.add(t.targetsByState, 1, f, keyState.String(observe.State(m.Target.State)))
		s.add(t.inFlight, m.Target.Load.InFlight, f, target)
		s.add(t.queued, m.Target.Load.Queued, f, target)
		s.add(t.prefill, m.Target.Load.Prefill, f, target)
		if m.Limit > 0 {
			s.add(t.limit, m.Limit, f, target)
		}
		if a := m.Adapters; a != nil {
			s.add(t.adapterSlots, a.Slots, f, target)
			s.add(t.adaptersLoaded, a.Loaded(), f, target)
		}
		if len(m.Lacking) > 0 {
			s.add(t.namesLacking, len(m.Lacking), f, target)
		}
		if m.ScrapeError != nil {
			s.add(t.scrapeFailing, 1, f)
		}
	}
}
