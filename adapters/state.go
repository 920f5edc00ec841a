package adapters

import (
	"slices"
	"time"
)

// State is the model of one target, for pages and metrics.
type State struct {
	// Slots is the number of slots, Reported whether a page reported it.
	Slots    int
	Reported bool
	// Adapters are those that are loaded, or that requests wait for, the most recently used one first.
	Adapters []Adapter
	// Loads is how many loads were seen.
	Loads uint64
}

// Adapter is an adapter at a target.
type Adapter struct {
	Name string
	// Loaded is false while requests wait for it.
	Loaded bool
	// InFlight are the requests of this process.
	InFlight int
	// Idle is the time since it was last used, as far as is known.
	Idle time.Duration
}

// Loaded returns the number of adapters that are loaded.
func (s State) Loaded() (n int) {
	for _, a := range s.Adapters {
		if a.Loaded {
			n++
		}
	}
	return n
}

// State returns the model of a target. ok is false if nothing is known of it.
func (s *Slots) State(id string) (st State, ok bool) {
	if s == nil {
		return State{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[id]
	if t == nil {
		return State{}, false
	}
	now := s.cfg.Now()
	st = State{Slots: t.slots, Reported: t.reported, Loads: t.loads}
	for _, e := range slices.Backward(t.entries) {
		st.Adapters = append(st.Adapters, Adapter{
			Name: e.adapter.name, Loaded: e.loaded, InFlight: e.inFlight, Idle: max(now.Sub(e.used), 0),
		})
	}
	return st, true
}

// Stats is the state of the whole model.
type Stats struct {
	// LoadTokens is the cost of a load, in tokens that wait for prefill; Measured whether first uses were timed.
	LoadTokens float64
	Measured   bool
	// Targets and Adapters are those that are remembered, Requests those with an adapter, of all gateways.
	Targets, Adapters int
	Requests          uint64
}

// Stats returns the state of the whole model.
func (s *Slots) Stats() Stats {
	if s == nil {
		return Stats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		LoadTokens: s.loadTokens(), Measured: s.timing.loads.n >= leastLoads, Targets: len(s.targets),
		Adapters: len(s.names), Requests: s.requests,
	}
}

// Homes returns the IDs of the adapter's homes among ids: it is loaded there rather than elsewhere. The first one comes
// first.
func (s *Slots) Homes(name string, ids []string) []string {
	if !s.follows(name) || len(ids) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return ranked(name, ids)[:homes(s.shareOf(s.names[name]), len(ids))]
}
