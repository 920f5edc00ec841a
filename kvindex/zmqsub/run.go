package zmqsub

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/armon/go-radix"
)

// event is sent by a connection or a replay to the goroutine that owns the streams.
type event struct {
	kind  kind
	peer  *peer
	topic string
	msg   message
	why   string

	stream *stream // of a replay
	ask    uint64  // which one
	end    ending
}

// size returns the bytes that are kept of a message.
func (e *event) size() int { return len(e.topic) + len(e.msg.payload) }

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
	again   chan struct{} // asks for a new connection
	net     network
	wg      sync.WaitGroup
	rearm   bool        // a time has been set
	lost    atomic.Bool // some stream's lost is set

	live       chan event
	replies    chan event
	liveBytes  *budget // of messages in live, and of those that streams keep
	replyBytes *budget // of messages in replies
}

// Run subscribes until ctx ends, and returns its error when every connection is
// closed. It connects again whenever it has to and never gives up; only with Bind
// it returns an error if it cannot listen. It may run once at a time. When it
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
		live: make(chan event, s.cfg.Queue), replies: make(chan event, 256), again: make(chan struct{}, 1),
	}
	r.liveBytes, r.replyBytes = &s.liveBytes, &s.replyBytes
	r.liveBytes.memory, r.replyBytes.memory = s.cfg.Memory, s.cfg.Memory
	r.replyBytes.begin(s.cfg.QueueBytes / 4)
	r.liveBytes.begin(s.cfg.QueueBytes - s.cfg.QueueBytes/4)
	defer func() { // nothing waits any more
		r.liveBytes.begin(0)
		r.replyBytes.begin(0)
	}()
	defer r.wg.Wait()
	defer cancel()
	for i, t := range s.cfg.Targets {
		st := &stream{run: r, i: i, target: t, ids: t.names()}
		st.machine = newMachine(st, t.Replay != "", s.cfg.Queue, s.cfg.QueueBytes)
		s.states[i].Store(uint32(Cold))
		st.reset() // blocks that an earlier Run left behind
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
		case e := <-r.live:
			r.handle(e)
			r.liveBytes.give(e.size())
		case e := <-r.replies:
			r.handle(e)
			r.replyBytes.give(e.size())
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

// expire does the due work, and sets the timer for the next.
func (r *run) expire(timer *time.Timer) {
	next := time.Hour
	for _, st := range r.streams {
		for _, at := range [...]struct {
			time *time.Time
			do   func()
		}{{&st.staleAt, st.stale}, {&st.confirmAt, st.confirm}, {&st.logAt, st.logRest}} {
			if at.time.IsZero() {
				continue
			}
			left := time.Until(*at.time)
			if left <= 0 {
				*at.time = time.Time{}
				at.do()
				st.account()
				continue
			}
			next = min(next, left)
		}
	}
	timer.Reset(next)
}

// recover begins again for streams of which messages were dropped. A stream that waits for a
// replay comes to it when that has ended.
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

// handle gives an event to the streams that it is about.
func (r *run) handle(e event) {
	switch e.kind {
	case connected:
		r.s.n.connects.Add(1)
		if r.s.cfg.Bind {
			break // its messages identify the connection
		}
		for _, st := range r.streams {
			st.join(e.peer)
			st.account()
		}
	case disconnected:
		r.s.n.disconnects.Add(1)
		for _, st := range r.streams {
			if st.peer == e.peer {
				st.leave(e.why)
				st.account()
			}
		}
	case arrived:
		r.s.n.messages.Add(1)
		_, v, ok := r.byTopic.LongestPrefix(e.topic)
		if !ok {
			r.s.n.unknown.Add(1)
			break
		}
		st := v.(*stream)
		st.arrived(e)
		st.after()
	case replayArrived:
		if e.ask == e.stream.asked {
			r.s.n.replayed.Add(1)
			e.stream.replayed(e.msg)
		}
		e.stream.after()
	case replayEnded:
		if e.ask == e.stream.asked {
			e.stream.ended(e.end)
		}
		e.stream.after()
	}
}

// notify queues an event that must not be lost. It returns false when the run
// has ended.
func (r *run) notify(ch chan<- event, e event) bool {
	select {
	case ch <- e:
		return true
	case <-r.ctx.Done():
		return false
	}
}
