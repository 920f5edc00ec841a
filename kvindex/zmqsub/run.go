package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/armon/go-radix"
	"github.com/warmroute/router/kvindex"
	"go.uber.org/zap"
)

// happening is what the connections tell the one goroutine that owns the machines.
type happening struct {
	kind  kind
	peer  uint64 // the connection
	topic string
	msg   message
	why   string

	stream *stream // of a replay
	ask    uint64  // which one
	end    ending
}

type kind uint8

const (
	connected kind = iota
	disconnected
	arrived
	replayArrived
	replayEnded
)

// run is one Run.
type run struct {
	s       *Subscriber
	ctx     context.Context
	seed    maphash.Seed
	streams []*stream
	byTopic *radix.Tree
	live    chan happening
	replies chan happening
	queued  atomic.Int64  // bytes of payloads in live
	again   chan struct{} // asks for a new connection
	net     network
	wg      sync.WaitGroup
	rearm   bool        // a time has been set
	lost    atomic.Bool // some stream's lost is set
}

// stream is one target. It belongs to the goroutine of run.loop.
type stream struct {
	*machine
	run    *run
	i      int
	target Target
	ids    []string // in the index
	batch  kvindex.Batch

	rank      int // of the messages, where ranked
	ranked    bool
	mixed     bool   // and they are of several ranks, which target does not tell apart
	topic     string // of the messages that are applied
	named     bool   // topic is set
	peer      uint64
	hasPeer   bool
	staleAt   time.Time // zero: no time is running
	confirmAt time.Time

	rejoin bool
	lost   atomic.Bool // messages were dropped because the queue was full
	asked  uint64
	cancel context.CancelFunc
}

// Run subscribes until ctx ends, and returns its error when every connection is
// closed. It connects again whenever it has to and never gives up; only with Bind
// it returns an error where it cannot listen. It may run once at a time. When it
// returns, all targets are as when their connection is lost.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("zmqsub: Run is running already")
	}
	defer s.running.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	nw, err := s.network(s.cfg.Egress)
	if err != nil {
		cancel()
		return err
	}
	defer nw.close()
	r := &run{
		s: s, ctx: ctx, seed: maphash.MakeSeed(), byTopic: radix.New(), net: nw,
		live: make(chan happening, s.cfg.Queue), replies: make(chan happening, 256), again: make(chan struct{}, 1),
	}
	defer r.wg.Wait()
	defer cancel()
	for i, t := range s.cfg.Targets {
		st := &stream{run: r, i: i, target: t, ids: t.names()}
		st.machine = newMachine(st, t.Replay != "", s.cfg.Queue, s.cfg.QueueBytes)
		s.states[i].Store(uint32(Cold))
		// What an earlier Run left behind is nobody's now.
		st.reset()
		r.streams = append(r.streams, st)
		r.byTopic.Insert(t.Topic, st)
	}
	failed := make(chan error, 1)
	if s.cfg.Bind {
		l, err := r.listen()
		if err != nil {
			return err
		}
		r.wg.Go(func() { failed <- r.accept(l) })
	} else {
		r.wg.Go(r.connect)
	}
	return r.loop(failed)
}

func (r *run) loop(failed <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer func() {
		for _, st := range r.streams {
			st.down("stopped")
			if !st.staleAt.IsZero() {
				st.stale()
			}
		}
	}()
	for {
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case err := <-failed:
			if r.ctx.Err() == nil {
				return err
			}
		case h := <-r.live:
			r.queued.Add(-int64(len(h.msg.payload)))
			r.rejoin(r.happened(h))
		case h := <-r.replies:
			r.rejoin(r.happened(h))
		case <-timer.C:
			r.rearm = true
		}
		if len(r.live) == 0 && r.lost.Load() {
			r.recover()
		}
		if r.rearm {
			r.rearm = false
			r.expire(timer)
		}
	}
}

// expire ends the trust in what has been down for long, and sets the timer for
// the next.
func (r *run) expire(timer *time.Timer) {
	next := time.Hour
	for _, st := range r.streams {
		for _, at := range [...]struct {
			time *time.Time
			do   func()
		}{{&st.staleAt, st.stale}, {&st.confirmAt, st.confirm}} {
			if at.time.IsZero() {
				continue
			}
			left := time.Until(*at.time)
			if left <= 0 {
				*at.time = time.Time{}
				at.do()
				continue
			}
			next = min(next, left)
		}
	}
	timer.Reset(next)
}

// recover deals with what was dropped. A stream that waits for a replay has its
// turn when that has ended.
func (r *run) recover() {
	r.lost.Store(false)
	for _, st := range r.streams {
		if !st.lost.Load() {
			continue
		}
		if st.state == Resyncing {
			r.lost.Store(true)
			continue
		}
		st.lost.Store(false)
		st.missed()
	}
}

// happened returns the stream that it was about, where it was about one.
func (r *run) happened(h happening) *stream {
	switch h.kind {
	case connected:
		r.s.n.connects.Add(1)
		if r.s.cfg.Bind {
			break // whose peer it is, its messages tell
		}
		for _, st := range r.streams {
			st.join(h.peer)
		}
	case disconnected:
		r.s.n.disconnects.Add(1)
		for _, st := range r.streams {
			if st.hasPeer && st.peer == h.peer {
				st.leave(h.why)
			}
		}
	case arrived:
		r.s.n.messages.Add(1)
		_, v, ok := r.byTopic.LongestPrefix(h.topic)
		if !ok {
			r.s.n.unknown.Add(1)
			break
		}
		st := v.(*stream)
		if !st.hasPeer || st.peer != h.peer {
			if !r.s.cfg.Bind || st.hasPeer && st.peer > h.peer {
				break // of a connection that has been replaced
			}
			st.leave("another engine came")
			st.join(h.peer)
		}
		other := st.named && st.topic != h.topic
		st.topic, st.named = h.topic, true
		if other {
			st.liveBegun, st.lastLive = true, h.msg.seq
			st.restart([]message{h.msg}, "another topic")
			return st
		}
		st.machine.live(h.msg)
		return st
	case replayArrived:
		if h.ask == h.stream.asked {
			r.s.n.replayed.Add(1)
			h.stream.replayed(h.msg)
		}
		return h.stream
	case replayEnded:
		if h.ask == h.stream.asked {
			h.stream.ended(h.end)
		}
		return h.stream
	}
	return nil
}

func (r *run) rejoin(st *stream) {
	if st != nil && st.rejoin {
		st.rejoin = false
		st.up()
	}
}

// confirmAfter is how long an engine may take to see a subscription: its publisher
// looks at least ten times a second.
const confirmAfter = time.Second

func (st *stream) join(peer uint64) {
	st.peer, st.hasPeer, st.staleAt = peer, true, time.Time{}
	st.ranked, st.mixed = false, false
	st.confirmAt, st.run.rearm = time.Now().Add(confirmAfter), true
	st.up()
}

func (st *stream) leave(why string) {
	st.hasPeer = false
	st.down(why)
}

// message reads the frames of a live message.
func (r *run) message(frames [][]byte) (topic string, m message, err error) {
	if len(frames) != 3 || len(frames[1]) != 8 || len(frames[0]) > maxTopic {
		return "", message{}, errors.New("zmqsub: a message that is not topic, sequence number and payload")
	}
	seq := binary.BigEndian.Uint64(frames[1])
	if seq == 1<<64-1 {
		return "", message{}, errors.New("zmqsub: a live message with the sequence number that ends a replay")
	}
	return string(frames[0]), message{seq: seq, time: clock(frames[2]), sum: maphash.Bytes(r.seed, frames[2]), payload: frames[2]}, nil
}

// clock returns when a batch was made: an array that begins with a float64, as
// every engine writes it; else 0.
func clock(payload []byte) float64 {
	if len(payload) < 10 || payload[0]&0xf0 != 0x90 || payload[1] != 0xcb {
		return 0
	}
	t := math.Float64frombits(binary.BigEndian.Uint64(payload[2:]))
	if math.IsNaN(t) {
		return 0
	}
	return t
}

// deliver queues a live message, or drops it where the queue is full.
func (r *run) deliver(peer uint64, frames [][]byte) {
	topic, m, err := r.message(frames)
	if err != nil {
		r.malformed("", err)
		return
	}
	if r.queued.Add(int64(len(m.payload))) <= int64(r.s.cfg.QueueBytes) {
		select {
		case r.live <- happening{kind: arrived, peer: peer, topic: topic, msg: m}:
			return
		default:
		}
	}
	r.queued.Add(-int64(len(m.payload)))
	r.s.n.overflows.Add(1)
	if _, v, ok := r.byTopic.LongestPrefix(topic); ok {
		v.(*stream).lost.Store(true)
		r.lost.Store(true)
	}
	if f := r.s.cfg.Trace.Overflow; f != nil {
		f(topic)
	}
}

// tell queues what must not be lost. It returns false when the run has ended.
func (r *run) tell(ch chan<- happening, h happening) bool {
	select {
	case ch <- h:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *run) malformed(id string, err error) {
	if r.s.n.malformed.Add(1) == 1 {
		r.s.log.Warn("malformed KV event message; further ones are counted only",
			zap.String("target", id), zap.String("endpoint", redact(r.s.cfg.Endpoint)), zap.Error(err))
	}
	if f := r.s.cfg.Trace.Malformed; f != nil {
		f(id, err)
	}
}
