package otel

import (
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/metric"
)

// Fleet returns hooks for loadview.Config.Trace that count the changes of the
// members of the fleet with this name and call those of next.
func (t *Telemetry) Fleet(fleet string, next loadview.Trace) loadview.Trace {
	fleet = t.fleets.Get(observe.Named(fleet))
	f := attrs(keyFleet.String(fleet))
	t.losses.Add(background, 0, f) // counters that begin at 0, so that the first one is an increase
	t.panics.Add(background, 0, f)
	for _, state := range observe.States() {
		t.stateChanges.Add(background, 0, attrs(keyFleet.String(fleet), keyState.String(state)))
	}
	h := next
	h.StateChanged = func(id string, from, to router.State) {
		t.stateChanges.Add(background, 1, attrs(keyFleet.String(fleet), keyState.String(observe.State(to))))
		if next.StateChanged != nil {
			next.StateChanged(id, from, to)
		}
	}
	h.PanicChanged = func(v *loadview.View, on bool) {
		n := int64(-1)
		if on {
			n = 1
		}
		t.panics.Add(background, n, f)
		if next.PanicChanged != nil {
			next.PanicChanged(v, on)
		}
	}
	h.Left = func(id string, inFlight int) {
		t.targets.Drop(fleet, func(other string) bool { return other == id })
		if next.Left != nil {
			next.Left(id, inFlight)
		}
	}
	h.Forget = func(id string) {
		t.losses.Add(background, 1, f)
		if next.Forget != nil {
			next.Forget(id)
		}
	}
	return h
}

// Stream is the KV event streams that one subscriber follows. Most programs
// leave it to package kvevents. Its methods have the arguments of zmqsub.Trace; they are
// safe for concurrent use. The counts are those of all streams of a fleet together: a
// counter for each could not end when its target leaves.
type Stream struct {
	t     *Telemetry
	fleet string
	attrs metric.MeasurementOption
	ids   []string
	state func(id string) string
}

// Stream begins to watch the streams with these ids, as those of the fleet with this
// name. state returns the state of one, a word in lower case; it is called when
// metrics are collected. Close ends it.
func (t *Telemetry) Stream(fleet string, ids []string, state func(id string) string) *Stream {
	fleet = t.fleets.Get(observe.Named(fleet))
	s := &Stream{t: t, fleet: fleet, attrs: attrs(keyFleet.String(fleet)), ids: slices.Clone(ids), state: state}
	for _, c := range []metric.Int64Counter{t.gaps, t.missing, t.malformed, t.overflows, t.replays} {
		c.Add(background, 0, s.attrs)
	}
	for _, state := range observe.StreamStates() {
		t.transitions.Add(background, 0, attrs(keyFleet.String(fleet), keyState.String(state)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams[s] = struct{}{}
	return s
}

// Close ends it.
func (s *Stream) Close() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	delete(s.t.streams, s)
}

// Transition counts a stream's new state.
func (s *Stream) Transition(to string) {
	s.t.transitions.Add(background, 1, attrs(keyFleet.String(s.fleet), keyState.String(observe.StreamState(to))))
}

// Gap counts missing messages: seq came, and last was the one before.
func (s *Stream) Gap(_ string, last, seq uint64) {
	s.t.gaps.Add(background, 1, s.attrs)
	if n := observe.Missing(last, seq); n > 0 {
		s.t.missing.Add(background, int64(n), s.attrs)
	}
}

// Malformed counts a message that could not be read.
func (s *Stream) Malformed(string) { s.t.malformed.Add(background, 1, s.attrs) }

// Overflow counts a message that was dropped.
func (s *Stream) Overflow() { s.t.overflows.Add(background, 1, s.attrs) }

// Replay counts a replay that was asked for.
func (s *Stream) Replay(string) { s.t.replays.Add(background, 1, s.attrs) }

// Lag records the age of a live message when it was applied. Less than 0, from
// an engine with a clock that is ahead, counts as 0.
func (s *Stream) Lag(_ string, lag time.Duration) {
	s.t.lag.Record(background, max(lag, 0).Seconds(), s.attrs)
}
