// Package kvevents subscribes to engines' KV events, as package zmqsub does, and
// tells Prometheus of the streams. It is apart from package prometheus because
// it needs ZeroMQ, as zmqsub explains.
package kvevents

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/kvindex/zmqsub"
)

// Subscriber is a zmqsub.Subscriber whose streams are on the page while Run runs.
// Make one with New.
type Subscriber struct {
	*zmqsub.Subscriber
	c       *prometheus.Collector
	fleet   string
	ids     []string
	running atomic.Bool
	// stream is set by Run, whose goroutines call the hooks.
	stream *prometheus.Stream
}

// New is zmqsub.New with hooks that count for c, for the fleet that it watches under
// this name, and call those of cfg.Trace. The IDs of cfg.Targets are best those of the
// fleet's members; c then has one name for both.
func New(c *prometheus.Collector, fleet string, cfg zmqsub.Config) (*Subscriber, error) {
	s := &Subscriber{c: c, fleet: fleet}
	for _, t := range cfg.Targets {
		s.ids = append(s.ids, t.ID)
	}
	cfg.Trace = s.trace(cfg.Trace)
	sub, err := zmqsub.New(cfg)
	if err != nil {
		return nil, err
	}
	s.Subscriber = sub
	return s, nil
}

// Run is that of zmqsub.Subscriber.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("kvevents: Run is running already")
	}
	defer s.running.Store(false)
	s.stream = s.c.Stream(s.fleet, s.ids, func(id string) string { return s.State(id).String() })
	defer s.stream.Close()
	return s.Subscriber.Run(ctx)
}

func (s *Subscriber) trace(next zmqsub.Trace) zmqsub.Trace {
	t := next
	t.Transition = func(id string, from, to zmqsub.State, why string) {
		s.stream.Transition(to.String())
		if next.Transition != nil {
			next.Transition(id, from, to, why)
		}
	}
	t.Gap = func(id string, last, seq uint64) {
		s.stream.Gap(id, last, seq)
		if next.Gap != nil {
			next.Gap(id, last, seq)
		}
	}
	t.Malformed = func(id string, err error) {
		s.stream.Malformed(id)
		if next.Malformed != nil {
			next.Malformed(id, err)
		}
	}
	t.Overflow = func(topic string) {
		s.stream.Overflow()
		if next.Overflow != nil {
			next.Overflow(topic)
		}
	}
	t.Replay = func(id string, start uint64) {
		s.stream.Replay(id)
		if next.Replay != nil {
			next.Replay(id, start)
		}
	}
	t.Lag = func(id string, lag time.Duration) {
		s.stream.Lag(id, lag)
		if next.Lag != nil {
			next.Lag(id, lag)
		}
	}
	return t
}
