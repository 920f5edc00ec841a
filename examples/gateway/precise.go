package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// kvEvents are the values of -kv-events, one for each -target in the same order.
type kvEvents []kvEndpoint

type kvEndpoint struct{ events, replay string }

// String is for package flag.
func (k *kvEvents) String() string {
	var s []string
	for _, e := range *k {
		s = append(s, strings.TrimSuffix(e.events+","+e.replay, ","))
	}
	return strings.Join(s, " ")
}

// Set adds EVENTS or EVENTS,REPLAY.
func (k *kvEvents) Set(s string) error {
	events, replay, both := strings.Cut(s, ",")
	if events == "" || both && replay == "" {
		return errors.New("want tcp://host:port or tcp://host:port,tcp://host:port")
	}
	*k = append(*k, kvEndpoint{events, replay})
	return nil
}

// precise is what precise_cache_aware needs: an index, and what feeds it.
type precise struct {
	index    *kvindex.Index
	strategy *precisecacheaware.Strategy
	subs     []*zmqsub.Subscriber // in the order of ids
	ids      []string
	log      *slog.Logger
	// forget tells the strategy that a target's cache is gone.
	forget func(id string)

	restarts, over, under atomic.Int64
}

// newPrecise subscribes ids to their endpoints, when run runs. Of c it sets Index
// and Mismatch.
func newPrecise(c precisecacheaware.Config, ids []string, events kvEvents, topic string, log *slog.Logger) (*precise, error) {
	if len(events) != len(ids) {
		return nil, fmt.Errorf("there are %d -kv-events for %d -target; give one for each, in the same order", len(events), len(ids))
	}
	p := &precise{ids: ids, log: log, forget: func(string) {}}
	var err error
	if p.index, err = kvindex.New(kvindex.Config{}); err != nil {
		return nil, err
	}
	c.Index, c.Mismatch = p.index, p.mismatch
	if p.strategy, err = precisecacheaware.New(c); err != nil {
		return nil, err
	}
	for i, id := range ids {
		f := &feed{Index: p.index, p: p, replay: events[i].replay != ""}
		s, err := zmqsub.New(zmqsub.Config{
			Endpoint: events[i].events,
			Targets:  []zmqsub.Target{{ID: id, Topic: topic, Replay: events[i].replay}},
			Index:    f,
			Trace: zmqsub.Trace{
				Transition: func(id string, from, to zmqsub.State, why string) {
					log.Info("KV events", "target", id, "from", from.String(), "to", to.String(), "why", why)
				},
				Gap:       f.gap,
				Malformed: func(id string, err error) { log.Warn("KV events not understood", "target", id, "err", err) },
			},
		})
		if err != nil {
			return nil, fmt.Errorf("-kv-events of %s: %w", id, err)
		}
		p.subs = append(p.subs, s)
	}
	return p, nil
}

// run subscribes until ctx ends.
func (p *precise) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, s := range p.subs {
		wg.Go(func() {
			if err := s.Run(ctx); ctx.Err() == nil {
				p.log.Error("KV events ended", "target", p.ids[i], "err", err)
			}
		})
	}
	wg.Wait()
}

func (p *precise) mismatch(id string, predicted, reported int) {
	if predicted > reported {
		p.over.Add(1)
	} else {
		p.under.Add(1)
	}
	p.log.Debug("cached tokens", "target", id, "predicted", predicted, "reported", reported)
}

// feed passes a target's events on to the index and tells the strategy when the
// target's cache is gone.
type feed struct {
	*kvindex.Index
	p      *precise
	replay bool
	gapped bool // the next Reset is a gap's that nobody can fill, which says nothing of the cache
}

func (f *feed) gap(string, uint64, uint64) { f.gapped = !f.replay }

// Reset is zmqsub.Index's.
func (f *feed) Reset(id string) {
	t, _ := f.Index.Target(id)
	f.Index.Reset(id)
	if t.Begun && !f.gapped {
		f.p.restarts.Add(1)
		f.p.forget(id)
	}
	f.gapped = false
}

// preciseStats is what the page and the last log line say of it.
type preciseStats struct {
	Judged, Mismatched, MismatchedPresumed int64
	PredictedTooMuch, PredictedTooLittle   int64
	Restarts                               int64
	Index                                  kvindex.Stats
	Targets                                map[string]streamStats
}

type streamStats struct {
	State   string
	Trusted bool
	Blocks  int
	Stream  zmqsub.Stats
}

func (p *precise) stats() preciseStats {
	s := p.strategy.Stats()
	st := preciseStats{
		Judged: s.Judged, Mismatched: s.Mismatched, MismatchedPresumed: s.MismatchedPresumed,
		PredictedTooMuch: p.over.Load(), PredictedTooLittle: p.under.Load(), Restarts: p.restarts.Load(),
		Index: p.index.Stats(), Targets: make(map[string]streamStats),
	}
	for i, id := range p.ids {
		t, _ := p.index.Target(id)
		st.Targets[id] = streamStats{p.subs[i].State(id).String(), t.Trusted, t.Blocks, p.subs[i].Stats()}
	}
	return st
}

// tokenModes are the values of -tokens.
const (
	tokensHeader   = "header"
	tokensMemo     = "memo"
	tokensTokenize = "tokenize"
)

func checkTokenMode(s string) error {
	switch cmp.Or(s, tokensHeader) {
	case tokensHeader, tokensMemo, tokensTokenize:
		return nil
	}
	return fmt.Errorf("no token source %q; there are %s, %s and %s", s, tokensHeader, tokensMemo, tokensTokenize)
}
