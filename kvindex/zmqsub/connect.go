package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net"
	"time"
)

func (r *run) limits() limits {
	c := &r.s.cfg
	lim := limits{message: c.MaxMessage + maxTopic + 8, queue: c.Queue, handshake: c.DialTimeout}
	if c.Heartbeat > 0 {
		lim.heartbeat, lim.timeout = c.Heartbeat, 3*c.Heartbeat
	}
	return lim
}

func (r *run) topics() []string {
	topics := make([]string, len(r.streams))
	for i, st := range r.streams {
		topics[i] = st.target.Topic
	}
	return topics
}

// connect keeps a connection to the endpoint.
func (r *run) connect() {
	address, _ := address(r.s.cfg.Endpoint, false)
	var peer uint64
	wait := r.s.cfg.MinBackoff
	for r.ctx.Err() == nil {
		began := time.Now()
		peer++
		why := r.session(address, peer)
		if r.ctx.Err() != nil {
			return
		}
		if why == nil {
			wait = r.s.cfg.MinBackoff
			continue
		}
		// One that held for a while was a good one.
		if time.Since(began) > r.s.cfg.MaxBackoff {
			wait = r.s.cfg.MinBackoff
		}
		if !sleep(r.ctx, wait/2+rand.N(wait/2+1)) {
			return
		}
		wait = min(2*wait, r.s.cfg.MaxBackoff)
	}
}

// session is one connection, from its beginning to its end. It returns nil where
// a new one was asked for.
func (r *run) session(address string, peer uint64) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.s.cfg.DialTimeout)
	w, err := r.net.dial(ctx, subscriber, address, r.topics(), r.limits())
	cancel()
	if err != nil {
		return err
	}
	defer w.close()
	select {
	case <-r.again: // was about the one before
	default:
	}
	done := make(chan struct{})
	var asked bool
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		select {
		case <-r.again:
			asked = true
		case <-r.ctx.Done():
		case <-done:
			return
		}
		w.interrupt()
	}()
	err = r.pump(w, peer)
	close(done)
	<-watch
	if asked {
		return nil
	}
	return err
}

func (r *run) pump(w wire, peer uint64) error {
	if !r.tell(r.live, happening{kind: connected, peer: peer}) {
		return r.ctx.Err()
	}
	err := r.receive(w, peer)
	r.tell(r.live, happening{kind: disconnected, peer: peer, why: err.Error()})
	return err
}

func (r *run) receive(w wire, peer uint64) error {
	for {
		frames, err := w.recv()
		if err != nil {
			return err
		}
		r.deliver(peer, frames)
	}
}

// listen opens the socket that engines connect to.
func (r *run) listen() (net.Listener, error) {
	address, err := address(r.s.cfg.Endpoint, true)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(r.ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("zmqsub: Endpoint: %w", err)
	}
	a := l.Addr().String()
	r.s.addr.Store(&a)
	return l, nil
}

// accept takes the engines that connect.
func (r *run) accept(l net.Listener) error {
	defer context.AfterFunc(r.ctx, func() { _ = l.Close() })()
	defer l.Close()
	slots := make(chan struct{}, r.s.cfg.MaxPeers)
	var peer uint64
	for {
		c, err := l.Accept()
		if err != nil {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("zmqsub: Endpoint: %w", err)
			}
			if !sleep(r.ctx, r.s.cfg.MinBackoff) { // out of descriptors, mostly
				return r.ctx.Err()
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		peer++
		id := peer
		r.wg.Go(func() {
			defer func() { <-slots }()
			w, err := newConn(r.ctx, c, subscriber, r.topics(), r.limits())
			if err != nil {
				return
			}
			defer w.close()
			defer context.AfterFunc(r.ctx, w.interrupt)()
			_ = r.pump(w, id)
		})
	}
}

// ask begins a replay, and makes an earlier one void.
func (st *stream) ask(start uint64, attempt int) {
	st.hangUp()
	st.asked++
	ctx, cancel := context.WithCancel(st.run.ctx)
	st.cancel = cancel
	r, n := st.run, st.asked
	r.s.n.replays.Add(1)
	if f := r.s.cfg.Trace.Replay; f != nil {
		f(st.target.ID, start)
	}
	r.wg.Go(func() {
		defer cancel()
		end := endEarly
		// Not at once where the last one brought nothing.
		if attempt <= 1 || sleep(ctx, r.s.cfg.MinBackoff<<min(attempt-1, 4)) {
			end = r.replay(ctx, st, n, start)
		}
		if ctx.Err() == nil {
			r.tell(r.replies, happening{kind: replayEnded, stream: st, ask: n, end: end})
		}
	})
}

func (st *stream) hangUp() {
	if st.cancel != nil {
		st.cancel()
		st.cancel = nil
		st.asked++ // what is under way is of an older one now
	}
}

// replay asks for all messages from start on and hands them over. A connection is
// used once, so that no reply can be taken for one to another question.
func (r *run) replay(ctx context.Context, st *stream, n, start uint64) ending {
	address, _ := address(st.target.Replay, false)
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.ReplayTimeout)
	defer cancel()
	dctx, dcancel := context.WithTimeout(ctx, r.s.cfg.DialTimeout)
	w, err := r.net.dial(dctx, asker, address, nil, r.limits())
	dcancel()
	if err != nil {
		return endEarly
	}
	defer w.close()
	defer context.AfterFunc(ctx, w.interrupt)()
	if w.send(nil, binary.BigEndian.AppendUint64(nil, start)) != nil {
		return endEarly
	}
	quiet := time.AfterFunc(r.s.cfg.ReplayQuiet, w.interrupt)
	defer quiet.Stop()
	for {
		frames, err := w.recv()
		if err != nil {
			return endEarly
		}
		quiet.Reset(r.s.cfg.ReplayQuiet)
		seq, payload, err := reply(frames)
		if err != nil {
			r.malformed(st.target.ID, err)
			return endEarly
		}
		if seq == 1<<64-1 {
			return endMarker
		}
		m := message{seq: seq, time: clock(payload), sum: maphash.Bytes(r.seed, payload), payload: payload}
		select {
		case r.replies <- happening{kind: replayArrived, stream: st, ask: n, msg: m}:
		case <-ctx.Done():
			return endEarly
		}
	}
}

// reply reads a reply: an empty frame, in newer engines the topic, the sequence
// number, the payload.
func reply(frames [][]byte) (seq uint64, payload []byte, err error) {
	if len(frames) > 0 && len(frames[0]) == 0 {
		frames = frames[1:]
	}
	if len(frames) == 3 {
		frames = frames[1:]
	}
	if len(frames) != 2 || len(frames[0]) != 8 {
		return 0, nil, errors.New("zmqsub: a reply that is not sequence number and payload")
	}
	return binary.BigEndian.Uint64(frames[0]), frames[1], nil
}

// sleep returns false where ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
