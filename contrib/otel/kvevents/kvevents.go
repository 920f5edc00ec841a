// Package kvevents subscribes to engines' KV events, as package zmqsub does, and
// reports the streams to OpenTelemetry. It is apart from package otel so that a
// program without event streams does not build zmqsub.
package kvevents

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/warmroute/router/contrib/otel"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/observe/streams"
)

// Subscriber is a zmqsub.Subscriber with streams that are watched while Run runs.
// Make one with New.
type Subscriber struct {
	*zmqsub.Subscriber
	t       *otel.Telemetry
	fleet   string
	ids     []string
	running atomic.Bool
	// stream is set by Run. Its goroutines call the hooks.
	stream *otel.Stream
}

// New is zmqsub.New with hooks that count for t, for the fleet that it watches under
// this name, and call those of cfg.Trace.
func New(t *otel.Telemetry, fleet string, cfg zmqsub.Config) (*Subscriber, error) {
	s := &Subscriber{t: t, fleet: fleet}
	for _, target := range cfg.Targets {
		s.ids = append(s.ids, target.ID)
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
	s.stream = s.t.Stream(s.fleet, s.ids, func(id string) string { return s.State(id).String() })
	defer s.stream.Close()
	return s.Subscriber.Run(ctx)
}
