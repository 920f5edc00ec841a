package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/errclass"
)

// peer is a connection as the streams see it.
type peer struct {
	number uint64               // connections are counted
	gone   atomic.Bool          // its messages are queued, and no more will come
	quiet  func() time.Duration // how long ago bytes of it came last; nil: not known
}

func (r *run) limits(grow func(int) error) limits {
	c := &r.s.cfg
	lim := limits{
		message: c.MaxMessage + maxTopic + 8, queue: c.Queue, handshake: c.DialTimeout, whole: c.ReplayTimeout, grow: grow,
	}
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
	var number uint64
	wait := r.s.cfg.MinBackoff
	for r.ctx.Err() == nil {
		began := time.Now()
		number++
		err := r.session(address, number)
		if r.ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = r.s.cfg.MinBackoff
			continue
		}
		// One that lasted for a while was a good one.
		if time.Since(began) > r.s.cfg.MaxBackoff {
			wait = r.s.cfg.MinBackoff
		}
		if !sleep(r.ctx, wait/2+rand.N(wait/2+1)) {
			return
		}
		wait = min(2*wait, r.s.cfg.MaxBackoff)
	}
}

// session is one connection, from its beginning to its end. It returns nil if a
// new one was asked for.
func (r *run) session(address string, number uint64) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.s.cfg.DialTimeout)
	in := inbox{run: r}
	w, err := r.net.dial(ctx, subscriber, address, r.topics(), r.limits(in.grow))
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
	err = in.receive(w, &peer{number: number})
	close(done)
	<-watch
	if asked {
		return nil
	}
	return err
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
	var number uint64
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
		number++
		from := &peer{number: number}
		r.wg.Go(func() {
			defer func() { <-slots }()
			in := inbox{run: r}
			w, err := newConn(r.ctx, c, subscriber, r.topics(), r.limits(in.grow))
			if err != nil {
				return
			}
			defer w.close()
			defer context.AfterFunc(r.ctx, w.interrupt)()
			from.quiet = w.Quiet
			_ = in.receive(w, from)
		})
	}
}

// inbox receives the messages of one connection and queues them.
type inbox struct {
	run   *run
	taken int // bytes of r.liveBytes for the message that is being read
}

// grow takes bytes for a large message as it comes. While there are none the
// connection is not read; if that lasts, it is closed.
func (in *inbox) grow(n int) error {
	ctx, cancel := context.WithTimeoutCause(in.run.ctx, in.run.s.cfg.DialTimeout, errNoBytes)
	defer cancel()
	if err := in.run.liveBytes.take(ctx, n); err != nil {
		return err
	}
	in.taken += n
	return nil
}

var errNoBytes = errors.New("zmqsub: too many bytes of messages wait to be applied")

func (in *inbox) release() {
	in.run.liveBytes.give(in.taken)
	in.taken = 0
}

// receive queues the messages of a connection until it ends.
func (in *inbox) receive(w wire, from *peer) error {
	r := in.run
	if !r.notify(r.live, event{kind: connected, peer: from}) {
		return r.ctx.Err()
	}
	defer in.release()
	for {
		frames, err := w.recv()
		in.release()
		if err != nil {
			from.gone.Store(true)
			r.notify(r.live, event{kind: disconnected, peer: from, why: reason(err)})
			return err
		}
		in.deliver(from, frames)
	}
}

// reason returns why a connection ended, in our own words.
func reason(err error) string {
	if class := errclass.Of(err); class != errclass.Failed {
		return class
	}
	return err.Error() // of zmtp or of this package
}

// deliver queues a live message, or drops it if the queue is full.
func (in *inbox) deliver(from *peer, frames [][]byte) {
	r := in.run
	topic, m, err := r.read(frames)
	if err != nil {
		r.malformed("", err)
		return
	}
	e := event{kind: arrived, peer: from, topic: topic, msg: m}
	if r.liveBytes.try(e.size()) {
		select {
		case r.live <- e:
			return
		default:
		}
		r.liveBytes.give(e.size())
	}
	r.s.n.overflows.Add(1)
	if _, v, ok := r.byTopic.LongestPrefix(topic); ok {
		v.(*stream).lost.Store(true)
		r.lost.Store(true)
	}
	if f := r.s.cfg.Trace.Overflow; f != nil {
		f(topic)
	}
}

// read reads the frames of a live message.
func (r *run) read(frames [][]byte) (topic string, m message, err error) {
	if len(frames) != 3 || len(frames[1]) != 8 || len(frames[0]) > maxTopic {
		return "", message{}, errors.New("zmqsub: a message that is not topic, sequence number and payload")
	}
	seq := binary.BigEndian.Uint64(frames[1])
	if seq == 1<<64-1 {
		return "", message{}, errors.New("zmqsub: a live message with the sequence number that ends a replay")
	}
	return string(frames[0]), r.message(seq, frames[2]), nil
}

func (r *run) message(seq uint64, payload []byte) message {
	return message{seq: seq, time: clock(payload), sum: maphash.Bytes(r.seed, payload), payload: payload}
}

// clock returns the time at which a batch was made, from an array that begins with
// a float64, as every engine writes it; else 0.
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

// sleep returns false if ctx ends first.
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
