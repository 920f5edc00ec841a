package vllmtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/internal/zmtp"
)

// Events says how KV events are published. The zero Events is a default engine
// of today with a replay socket.
type Events struct {
	// Addr and ReplayAddr are the addresses to listen on; "" means "127.0.0.1:0".
	// With [Config.Ranks] they are those of the first rank, and each further rank
	// has the next port, as engines do it.
	Addr, ReplayAddr string
	// Shared publishes the events of all ranks over one socket, in one sequence, so
	// that only the rank in each batch says which rank's they are (as Dynamo does for
	// TensorRT-LLM).
	Shared bool
	// NoReplay leaves the replay socket out, as engines do by default.
	NoReplay bool
	// Topic is the topic of every message.
	Topic string
	// Arrays writes events as arrays, as vLLM before 0.24; else as maps.
	Arrays bool
	// ShortReplay leaves the topic out of replies, as vLLM before 0.26.
	ShortReplay bool
	// Bytes writes hashes as bytes, else as integers.
	Bytes bool
	// Rank is the data-parallel rank that batches name, that of the first rank
	// if there are several.
	Rank int
	// Buffer is the number of batches that can be replayed; 0 means 10,000.
	Buffer int
	// HighWater is the number of messages that wait for a slow subscriber; further
	// ones are lost to it. 0 means 100,000.
	HighWater int
}

func (e Events) check() error {
	switch {
	case e.Rank < 0 || e.Rank > 1<<20:
		return fmt.Errorf("vllmtest: Events.Rank: %d is not in 0..1048576", e.Rank)
	case e.Buffer < 0 || e.Buffer > 1<<20:
		return fmt.Errorf("vllmtest: Events.Buffer: %d is not in 0..1048576", e.Buffer)
	case e.HighWater < 0 || e.HighWater > 1<<20:
		return fmt.Errorf("vllmtest: Events.HighWater: %d is not in 0..1048576", e.HighWater)
	}
	return nil
}

// Publisher is an engine's event publisher: a PUB socket and a ROUTER for
// replays, over ZeroMQ's own protocol. A replica with [Config.Events] has one;
// alone it publishes the payloads that it is given. It is safe for concurrent use.
type Publisher struct {
	cfg         Events
	pub, router net.Listener
	conns       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	next   uint64
	buffer []published
	drop   func(seq uint64) bool
	subs   map[*subscription]struct{}
	open   map[net.Conn]struct{}
}

type published struct {
	seq     uint64
	payload []byte
}

// subscription is one connected SUB.
type subscription struct {
	topics [][]byte // guarded by Publisher.mu
	queue  chan [][]byte
}

// NewPublisher starts a publisher. The caller calls Close.
func NewPublisher(cfg Events) (*Publisher, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	for _, v := range []struct {
		v   *int
		def int
	}{{&cfg.Buffer, 10_000}, {&cfg.HighWater, 100_000}} {
		if *v.v == 0 {
			*v.v = v.def
		}
	}
	p := &Publisher{cfg: cfg, subs: make(map[*subscription]struct{}), open: make(map[net.Conn]struct{})}
	var err error
	if p.pub, err = p.listen(cfg.Addr, p.serveSub); err != nil {
		return nil, err
	}
	if !cfg.NoReplay {
		if p.router, err = p.listen(cfg.ReplayAddr, p.serveReplay); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// anyAddr is the address of a server that may listen on any port.
const anyAddr = "127.0.0.1:0"

func (p *Publisher) listen(addr string, serve func(net.Conn)) (net.Listener, error) {
	if addr == "" {
		addr = anyAddr
	}
	l, err := ports.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("vllmtest: Events: listen: %w", err)
	}
	p.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			if !p.add(c) {
				_ = c.Close()
				return
			}
			p.conns.Go(func() {
				defer p.remove(c)
				serve(c)
			})
		}
	})
	return l, nil
}

func (p *Publisher) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Publisher) remove(c net.Conn) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	_ = c.Close()
}

// Endpoint returns the address at which events are published, "tcp://127.0.0.1:5557".
func (p *Publisher) Endpoint() string { return "tcp://" + p.pub.Addr().String() }

// ReplayEndpoint returns the replay socket's address, "" if there is none.
func (p *Publisher) ReplayEndpoint() string {
	if p.router == nil {
		return ""
	}
	return "tcp://" + p.router.Addr().String()
}

// Publish sends a batch to every subscriber and keeps it for replays. It returns
// its sequence number.
func (p *Publisher) Publish(payload []byte) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	seq := p.next
	p.next++
	if len(p.buffer) >= p.cfg.Buffer {
		p.buffer = slices.Delete(p.buffer, 0, len(p.buffer)-p.cfg.Buffer+1)
	}
	p.buffer = append(p.buffer, published{seq, payload})
	if p.drop != nil && p.drop(seq) {
		return seq
	}
	msg := [][]byte{[]byte(p.cfg.Topic), binary.BigEndian.AppendUint64(nil, seq), payload}
	for s := range p.subs {
		if !slices.ContainsFunc(s.topics, func(t []byte) bool { return strings.HasPrefix(p.cfg.Topic, string(t)) }) {
			continue
		}
		select {
		case s.queue <- msg:
		default:
		}
	}
	return seq
}

// Next returns the sequence number of the next batch, which is the number of those
// published since the start.
func (p *Publisher) Next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// SetNext sets the sequence number of the next batch, as if those before had been
// published and were lost.
func (p *Publisher) SetNext(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = seq
}

// Drop sets which batches no subscriber gets; they can be replayed. nil: none.
// drop must not call the Publisher.
func (p *Publisher) Drop(drop func(seq uint64) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = drop
}

// Subscribers returns the number of sockets that have subscribed to something.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.subs {
		if len(s.topics) > 0 {
			n++
		}
	}
	return n
}

// Break breaks every connection.
func (p *Publisher) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

// Restart acts as the engine does when it ends and starts again: connections
// break, the sequence starts over, and the buffer for replays is empty.
func (p *Publisher) Restart() {
	p.mu.Lock()
	p.next, p.buffer = 0, nil
	p.subs = make(map[*subscription]struct{})
	p.mu.Unlock()
	p.Break()
}

// Close ends the publisher and all its goroutines.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.pub.Close()
	if p.router != nil {
		_ = p.router.Close()
	}
	p.Break()
	p.conns.Wait()
}

// handshake performs the serving side's handshake of version 3.1, in which libzmq
// subscribes by commands.
func handshake(c net.Conn, socket string, command func(name string, data []byte)) (*zmtp.Conn, error) {
	return zmtp.New(context.Background(), c, zmtp.Config{
		Socket: socket, Minor: 1, MaxMessage: 8 << 20, Handshake: 5 * time.Second, Command: command,
	})
}

// serveSub serves one SUB.
func (p *Publisher) serveSub(c net.Conn) {
	s := &subscription{queue: make(chan [][]byte, p.cfg.HighWater)}
	z, err := handshake(c, "PUB", func(name string, topic []byte) {
		if name == "SUBSCRIBE" || name == "CANCEL" {
			p.subscribe(s, name == "SUBSCRIBE", topic)
		}
	})
	if err != nil {
		return
	}
	defer z.Close()
	p.mu.Lock()
	p.subs[s] = struct{}{}
	p.mu.Unlock()
	gone := make(chan struct{})
	p.conns.Go(func() {
		defer z.Interrupt()
		for {
			select {
			case msg := <-s.queue:
				if z.Send(msg...) != nil {
					return
				}
			case <-gone:
				return
			}
		}
	})
	for {
		frames, err := z.Recv()
		if err != nil {
			break
		}
		if f := frames[0]; len(frames) == 1 && len(f) > 0 && f[0] <= 1 {
			p.subscribe(s, f[0] == 1, f[1:])
		}
	}
	close(gone)
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
}

const maxSubscriptions = 1 << 12

func (p *Publisher) subscribe(s *subscription, on bool, topic []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		if len(s.topics) < maxSubscriptions {
			s.topics = append(s.topics, slices.Clone(topic))
		}
		return
	}
	if i := slices.IndexFunc(s.topics, func(t []byte) bool { return string(t) == string(topic) }); i >= 0 {
		s.topics = slices.Delete(s.topics, i, i+1)
	}
}

// serveReplay serves one peer of the replay socket. As the engine's, it says
// nothing to a request that is not an empty frame and a number.
func (p *Publisher) serveReplay(c net.Conn) {
	z, err := handshake(c, "ROUTER", nil)
	if err != nil {
		return
	}
	defer z.Close()
	end := binary.BigEndian.AppendUint64(nil, 1<<64-1)
	for {
		frames, err := z.Recv()
		if err != nil {
			return
		}
		if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) > 8 {
			continue
		}
		var start [8]byte
		copy(start[8-len(frames[1]):], frames[1])
		from := binary.BigEndian.Uint64(start[:])
		p.mu.Lock()
		batches := slices.Clone(p.buffer)
		p.mu.Unlock()
		for _, b := range batches {
			if b.seq < from {
				continue
			}
			if z.Send(p.reply(p.cfg.Topic, binary.BigEndian.AppendUint64(nil, b.seq), b.payload)...) != nil {
				return
			}
		}
		if z.Send(p.reply("", end, nil)...) != nil {
			return
		}
	}
}

func (p *Publisher) reply(topic string, seq, payload []byte) [][]byte {
	if p.cfg.ShortReplay {
		return [][]byte{nil, seq, payload}
	}
	return [][]byte{nil, []byte(topic), seq, payload}
}
