package main

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/contrib/prometheus/kvevents"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/membudget"
)

// streams are the engines' KV events that are followed. The zero value, with its
// fields set, is ready.
type streams struct {
	log     *slog.Logger
	live    *livePage // gets the events too; nil: there is none
	metrics *metrics
	memory  *membudget.Account
	// forget is called when a target's cache is gone.
	forget func(id string)

	restarts atomic.Int64

	mu      sync.Mutex
	running map[string]*stream // by target
}

// stream is one of them: a subscriber and its targets.
type stream struct {
	*kvevents.Subscriber
	id      string // of the stream
	targets []string
	streams *streams
}

// subscribe is config.Options.Subscribe.
func (s *streams) subscribe(c config.Subscription) (config.Runner, error) {
	st := &stream{id: c.ID, targets: c.Ranks, streams: s}
	if len(st.targets) == 0 {
		st.targets = []string{c.ID}
	}
	f := &feed{Index: c.Index, stream: st, replay: c.Replay != "", gapped: make(map[string]bool)}
	var err error
	st.Subscriber, err = kvevents.New(s.metrics.Collector, fleetName, zmqsub.Config{
		Endpoint:   c.Endpoint,
		Targets:    []zmqsub.Target{{ID: c.ID, Ranks: c.Ranks, Topic: c.Topic, Replay: c.Replay}},
		Index:      f,
		Egress:     c.Egress,
		StaleAfter: c.StaleAfter,
		Memory:     s.memory,
		Trace: zmqsub.Trace{
			Transition: func(id string, from, to zmqsub.State, why string) {
				s.log.Info("KV events", "target", id, "from", from.String(), "to", to.String(), "why", why)
				if s.live != nil {
					s.live.StreamChanged(id, from.String(), to.String(), why)
				}
			},
			Gap:       f.gap,
			Malformed: func(id string, err error) { s.log.Warn("KV events not understood", "target", id, "err", err) },
		},
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Run is config.Runner's.
func (st *stream) Run(ctx context.Context) error {
	s := st.streams
	s.mu.Lock()
	if s.running == nil {
		s.running = make(map[string]*stream)
	}
	for _, id := range st.targets {
		s.running[id] = st
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.running, func(_ string, r *stream) bool { return r == st })
	}()
	return st.Subscriber.Run(ctx)
}

// of returns the stream of a target, nil if there is none.
func (s *streams) of(id string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[id]
}

// all returns the streams by target.
func (s *streams) all() map[string]*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.running)
}

// feed passes a stream's events on to the index and reports when a target's cache is
// gone.
type feed struct {
	*kvindex.Index
	stream *stream
	replay bool
	// gapped are targets with a gap that cannot be filled: their next Reset says nothing
	// of the cache.
	gapped map[string]bool
}

func (f *feed) gap(id string, last, seq uint64) {
	if l := f.stream.streams.live; l != nil {
		l.Gap(id, last, seq)
	}
	for _, id := range f.stream.targets {
		f.gapped[id] = !f.replay
	}
}

// Reset is zmqsub.Index's.
func (f *feed) Reset(id string) {
	t, _ := f.Index.Target(id)
	f.Index.Reset(id)
	if t.Begun && !f.gapped[id] {
		f.stream.streams.forget(id)
		f.stream.streams.restarts.Add(1)
	}
	f.gapped[id] = false
}
