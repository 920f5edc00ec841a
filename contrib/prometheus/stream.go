package prometheus

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router/observe"
)

type eventMetrics struct {
	gaps, missing, malformed, replays, overflows, transitions *prometheus.CounterVec
	lag                                                       *prometheus.GaugeVec
	lags                                                      *prometheus.HistogramVec
}

func (m *eventMetrics) init(c *Collector) {
	m.gaps = c.counter("event_gaps_total", "Times that messages of a target's KV event stream were missing.", "fleet",
		"target")
	m.missing = c.counter("event_missing_messages_total",
		"Messages of a target's KV event stream that were missing when a later one came.", "fleet", "target")
	m.malformed = c.counter("event_malformed_total", "Messages of a target's KV event stream that could not be read.",
		"fleet", "target")
	m.replays = c.counter("event_replays_total", "Replays that were asked for.", "fleet", "target")
	m.overflows = c.counter("event_overflows_total", "Messages that were dropped because the queue was full.", "fleet")
	m.transitions = c.counter("event_stream_transitions_total",
		"Changes of the states of KV event streams, by the state that was entered.", "fleet", "state")
	m.lag = c.gauge("event_stream_lag_seconds",
		"Age of the target's last live message when it was applied, by both clocks.", "fleet", "target")
	m.lags = c.histogram("event_lag_seconds", "Age of live messages when they were applied, by both clocks.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "fleet")
}

// Stream is the KV event streams that one subscriber follows. Most programs
// leave it to package kvevents. Its methods have the arguments of zmqsub.Trace; they are
// safe for concurrent use.
type Stream struct {
	c     *Collector
	fleet string
	ids   []string
	state func(id string) string
	lags  prometheus.Observer
}

// Stream begins to watch the streams with these ids, as those of the fleet with this
// name. state returns the state of one, a word in lower case; it is called when
// the page is asked for. Close ends it.
func (c *Collector) Stream(fleet string, ids []string, state func(id string) string) *Stream {
	fleet = c.fleets.Get(observe.Named(fleet))
	s := &Stream{c: c, fleet: fleet, ids: slices.Clone(ids), state: state, lags: c.lags.WithLabelValues(fleet)}
	c.overflows.WithLabelValues(fleet)
	c.malformed.WithLabelValues(fleet, observe.Other)
	for _, state := range observe.StreamStates() {
		c.transitions.WithLabelValues(fleet, state)
	}
	for _, id := range ids { // series that begin at 0, so that the first gap is an increase
		t := c.targets.Get(fleet, id)
		c.gaps.WithLabelValues(fleet, t)
		c.missing.WithLabelValues(fleet, t)
		c.malformed.WithLabelValues(fleet, t)
		c.replays.WithLabelValues(fleet, t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = struct{}{}
	return s
}

// Close ends it, and the series of the streams.
func (s *Stream) Close() {
	s.c.mu.Lock()
	delete(s.c.streams, s)
	kept := s.c.kept(s.fleet)
	s.c.mu.Unlock()
	s.c.drop(s.fleet, func(id string) bool { return !kept[id] && slices.Contains(s.ids, id) })
}

// Transition counts a stream's new state.
func (s *Stream) Transition(to string) {
	s.c.transitions.WithLabelValues(s.fleet, observe.StreamState(to)).Inc()
}

// Gap counts missing messages: seq came, and last was the one before.
func (s *Stream) Gap(id string, last, seq uint64) {
	t := s.c.targets.Get(s.fleet, id)
	s.c.gaps.WithLabelValues(s.fleet, t).Inc()
	s.c.missing.WithLabelValues(s.fleet, t).Add(float64(observe.Missing(last, seq)))
}

// Malformed counts a message that could not be read; id is "" if the target is not
// known, which counts as "other".
func (s *Stream) Malformed(id string) {
	t := observe.Other
	if id != "" {
		t = s.c.targets.Get(s.fleet, id)
	}
	s.c.malformed.WithLabelValues(s.fleet, t).Inc()
}

// Overflow counts a message that was dropped.
func (s *Stream) Overflow() { s.c.overflows.WithLabelValues(s.fleet).Inc() }

// Replay counts a replay that was asked for.
func (s *Stream) Replay(id string) {
	s.c.replays.WithLabelValues(s.fleet, s.c.targets.Get(s.fleet, id)).Inc()
}

// Lag records the age of a live message when it was applied. Less than 0 is
// from an engine with a clock that is ahead; the histogram counts it as 0.
func (s *Stream) Lag(id string, lag time.Duration) {
	s.lags.Observe(max(lag, 0).Seconds())
	s.c.lag.WithLabelValues(s.fleet, s.c.targets.Get(s.fleet, id)).Set(lag.Seconds())
}
