// Package kvevents subscribes to engines' KV events, as package zmqsub does, and
// reports the streams to Prometheus. It is apart from package prometheus so that a
// program without event streams does not build zmqsub.
package kvevents

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/observe/streams"
)

// Subscriber is a zmqsub.Subscriber with streams that are on the page while Run
// runs. Make one with New.
type Subscriber struct {
	*zmqsub.Subscriber
	c       *prometheus.Collector
	fleet   string
	ids     []string
	running atomic.Bool
	// stream is set by Run. Its goroutines call the hooks.
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
	cfg.Trace = streams.Trace(func() streams.Sink { return s.stream }, cfg.Trace)
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
