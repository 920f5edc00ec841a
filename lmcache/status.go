package lmcache

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/warmroute/router"
)

// State is the state of a target's cache. The zero State is Unknown.
type State uint8

// The states. All but Available and Unavailable are neutral.
const (
	Unknown     State = iota // not polled yet, or not a target
	Available                // it can be used
	Unavailable              // it reports that it cannot be used
	Failed                   // the last poll failed
	Stale                    // the last answer is too old
)

// Neutral reports whether nothing is known in state s.
func (s State) Neutral() bool { return s != Available && s != Unavailable }

// String returns the state's name in snake case, fit for a metric label.
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Available:
		return "available"
	case Unavailable:
		return "unavailable"
	case Failed:
		return "failed"
	case Stale:
		return "stale"
	}
	return "state_" + strconv.Itoa(int(s))
}

// Status is a Poller's knowledge of one target's cache.
type Status struct {
	ID       string
	Endpoint string // without a password and a query
	State    State
	// Free is the share of the cache that is free, 0..1; 0 if the State is
	// Unavailable, NaN if it is neutral.
	Free float64
	// Occupancy is that of the last good answer, clamped to 0..1, and Kind the kind
	// of that answer. NaN and "" if there was none.
	Occupancy float64
	Kind      Kind
	// At is the time of that answer, zero if there was none, and Age the time since
	// then.
	At  time.Time
	Age time.Duration
	// Err is the reason why the last poll failed, nil if it did not. Failures is the
	// number of polls that failed since the last good one.
	Err      error
	Failures int
}

// status is the published state of a source. It is not changed afterwards.
type status struct {
	state     State
	kind      Kind
	occupancy float64
	at        time.Time // zero: there was no good answer
	err       error
	failures  int
}

// free returns the free share of a cache of kind k.
func free(k Kind, occupancy, watermark float64) float64 {
	if k == KindOccupancy {
		return 1 - occupancy
	}
	return max(0, 1-occupancy/watermark)
}

// now returns the status at the given time, and its State and free share for the
// strategy.
func (s *source) now(at time.Time) (*status, State, float64) {
	st := s.status.Load()
	switch {
	case st.state.Neutral():
		return st, st.state, math.NaN()
	case at.Sub(st.at) >= s.Stale:
		return st, Stale, math.NaN()
	case st.state == Unavailable:
		return st, Unavailable, -1
	}
	return st, Available, free(st.kind, st.occupancy, s.Watermark)
}

// Free sets dst[i] to the free share of the cache of targets[i], by its ID: 0..1;
// less than 0 if the cache reports that it cannot be used; NaN if nothing is known.
// dst is at least as long as targets. Free does not allocate, wait or do I/O.
func (p *Poller) Free(targets []router.Target, dst []float64) {
	t, at := p.table.Load(), time.Now()
	next := 0 // in t.list: most often targets come in the order of the table
	for i := range targets {
		id := targets[i].ID
		if next >= len(t.list) || t.list[next].ID != id {
			k, ok := t.byID[id]
			if !ok {
				dst[i] = math.NaN()
				continue
			}
			next = k
		}
		_, _, dst[i] = t.list[next].now(at)
		next++
	}
}

// Status returns the status of the target with this ID, an Unknown one if it is not
// polled.
func (p *Poller) Status(id string) Status {
	if s := p.table.Load().find(id); s != nil {
		return s.at(time.Now())
	}
	return Status{ID: id, Free: math.NaN(), Occupancy: math.NaN()}
}

// Snapshot returns the status of every target, by ID.
func (p *Poller) Snapshot() []Status {
	t, at := p.table.Load(), time.Now()
	all := make([]Status, len(t.list))
	for i, s := range t.list {
		all[i] = s.at(at)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (s *source) at(at time.Time) Status {
	st, state, free := s.now(at)
	out := Status{
		ID: s.ID, Endpoint: redacted(s.Endpoint), State: state, Free: free,
		Occupancy: math.NaN(), Kind: st.kind, At: st.at, Err: st.err, Failures: st.failures,
	}
	if state == Unavailable {
		out.Free = 0
	}
	if !st.at.IsZero() {
		out.Occupancy, out.Age = st.occupancy, max(at.Sub(st.at), 0)
	}
	return out
}

// redacted returns endpoint as it may be shown.
func redacted(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "" // Set did not take it
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}
