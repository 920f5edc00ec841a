package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
)

// arrival is something that an engine's stream said.
type arrival struct {
	at    time.Time
	reset bool // the earlier state is void
	event kvindex.Event
}

// maxArrivals bounds the messages that a witness keeps.
const maxArrivals = 200_000

// witness subscribes to one engine's events, independently of the gateway, and
// keeps them with their times of arrival, which show later what was known when.
type witness struct {
	id   string
	name string // of the engine
	sub  *zmqsub.Subscriber

	mu   sync.Mutex
	log  []arrival
	last time.Time // of the latest message
	seq  uint64
	any  bool // seq is one
	full bool
}

func newWitness(e *engine) (*witness, error) {
	w := &witness{id: e.url(), name: e.name}
	var err error
	w.sub, err = zmqsub.New(zmqsub.Config{
		Endpoint: "tcp://" + e.events,
		Targets:  []zmqsub.Target{{ID: w.id, Topic: e.topic, Replay: "tcp://" + e.replay}},
		Index:    w,
	})
	return w, err
}

// Apply keeps the events, as zmqsub.Index wants it.
func (w *witness) Apply(_ string, seq uint64, b kvindex.Batch) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.any && seq > w.seq+1:
		return kvindex.ErrGap
	case w.any && seq <= w.seq:
		w.add(arrival{at: now, reset: true}) // it started over
	}
	w.seq, w.any, w.last = seq, true, now
	for _, e := range b.Events {
		w.add(arrival{at: now, event: clone(e)})
	}
	return nil
}

// Reset forgets, as zmqsub.Index wants it.
func (w *witness) Reset(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.any = false
	w.add(arrival{at: time.Now(), reset: true})
}

// Suspend is for who trusts.
func (w *witness) Suspend(string, bool) {}

func (w *witness) add(a arrival) {
	if len(w.log) < maxArrivals {
		w.log = append(w.log, a)
	} else {
		w.full = true
	}
}

// clone copies the buffers that the subscriber reuses.
func clone(e kvindex.Event) kvindex.Event {
	e.Hashes, e.Sums, e.Left = slices.Clone(e.Hashes), slices.Clone(e.Sums), slices.Clone(e.Left)
	e.Tokens, e.Extra = slices.Clone(e.Tokens), slices.Clone(e.Extra)
	return e
}

// arrivals returns the messages so far; they do not change.
func (w *witness) arrivals() []arrival {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log[:len(w.log):len(w.log)]
}

func (w *witness) lastMessage() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// witnesses are those of the engines.
type witnesses []*witness

func (ws witnesses) of(id string) *witness {
	for _, w := range ws {
		if w.id == id {
			return w
		}
	}
	return nil
}

func (ws witnesses) err() error {
	for _, w := range ws {
		w.mu.Lock()
		full := w.full
		w.mu.Unlock()
		if full {
			return errors.New(w.id + ": more events than are kept")
		}
	}
	return nil
}

// quiet waits until for d neither a message has come nor since has passed; at most
// ten times as long.
func (ws witnesses) quiet(ctx context.Context, since time.Time, d time.Duration) error {
	limit := since.Add(10 * d)
	for {
		last := since
		for _, w := range ws {
			if t := w.lastMessage(); t.After(last) {
				last = t
			}
		}
		wait := min(time.Until(last.Add(d)), time.Until(limit))
		if wait <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// replica has the blocks that an engine holds, built from arrivals.
type replica struct {
	id    string
	index *kvindex.Index
	seq   uint64
}

func newReplica(id string) (*replica, error) {
	x, err := kvindex.New(kvindex.Config{})
	r := &replica{id: id, index: x}
	if err == nil {
		err = r.apply(arrival{reset: true})
	}
	return r, err
}

func (r *replica) apply(a arrival) error {
	b := kvindex.Batch{Rank: -1}
	if a.reset {
		r.index.Reset(r.id)
	} else {
		b.Events = []kvindex.Event{a.event}
	}
	r.seq++
	return r.index.Apply(r.id, r.seq, b)
}

// holds returns how many of the leading tokens can be reused.
func (r *replica) holds(tokens []uint32) int {
	return r.index.Match(router.Prompt{Tokens: tokens}, []string{r.id}, nil)[0]
}
