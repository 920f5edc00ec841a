//go:build libzmq

package zmqsub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pebbe/zmq4"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/zmtp"
	"github.com/warmroute/router/vllmtest"
)

func init() {
	publishers["libzmq publisher"] = newZPublisher
	networks["libzmq"] = newNetwork
}

// TestConnectionsEndAtAnyMoment: however connections end, of themselves or by us,
// libzmq's threads end too. They would not if one of them had an event to report to
// nobody.
func TestConnectionsEndAtAnyMoment(t *testing.T) {
	noLeak(t)
	p, err := vllmtest.NewPublisher(vllmtest.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	nw, err := newNetwork(egress.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 25 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				w, err := nw.dial(ctx, subscriber, strings.TrimPrefix(p.Endpoint(), "tcp://"), []string{""},
					limits{message: 1 << 20, queue: 10, handshake: 5 * time.Second})
				cancel()
				if err != nil {
					continue // it was broken on the way
				}
				if (g+i)%3 == 0 {
					p.Break()
				}
				if (g+i)%2 == 0 {
					time.AfterFunc(time.Duration(i)*100*time.Microsecond, w.interrupt)
					_, _ = w.recv()
				}
				w.close()
			}
		})
	}
	wg.Wait()
	ended := make(chan struct{})
	go func() { nw.close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("libzmq's context does not end")
	}
}

// TestMessageWithoutAnEnd measures what SECURITY.md says of libzmq: it keeps the
// parts of a message before anybody can count them, 64 bytes for each empty one of
// two bytes. Our own reader ends the connection at the ninth.
func TestMessageWithoutAnEnd(t *testing.T) {
	const sent = 4 << 20
	parts := bytes.Repeat(zmtp.AppendFrame(nil, zmtp.More, nil), 32<<10)
	endpoint := hostile(t, func(c net.Conn) {
		z, err := zmtp.New(context.Background(), c, zmtp.Config{Socket: "PUB", MaxMessage: 1 << 10,
			Handshake: 5 * time.Second})
		if err != nil {
			return
		}
		for range sent / len(parts) {
			if _, err := c.Write(parts); err != nil {
				return
			}
		}
		_, _ = z.Recv() // the subscription
		_, _ = z.Recv()
	})
	grown := map[string]int{}
	for name, open := range networks {
		nw, err := open(egress.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		before := resident(t)
		lim := limits{message: 1 << 20, queue: 10, handshake: 5 * time.Second, heartbeat: time.Second,
			timeout: 3 * time.Second}
		w, err := nw.dial(ctx, subscriber, strings.TrimPrefix(endpoint, "tcp://"), []string{""}, lim)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		stop := time.AfterFunc(2*time.Second, w.interrupt)
		_, err = w.recv()
		stop.Stop()
		if name == "own" && !errors.Is(err, zmtp.ErrTooLong) {
			t.Errorf("our own reader: %v", err)
		}
		grown[name] = (resident(t) - before) >> 20
		w.close()
		nw.close()
	}
	t.Logf("MiB after %d MiB of empty parts: %v", sent>>20, grown)
	if grown["own"] > 32 {
		t.Errorf("our own reader took %d MiB", grown["own"])
	}
	if grown["libzmq"] < 32 {
		t.Errorf("libzmq took %d MiB only: SECURITY.md says otherwise", grown["libzmq"])
	}
}

// resident returns the bytes of memory that the process has.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("no /proc to measure with: %v", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// zpublisher publishes as engines do: with libzmq, both sockets in one thread.
type zpublisher struct {
	t       testing.TB
	cfg     vllmtest.Events
	do      chan func()
	stop    chan struct{}
	stopped sync.WaitGroup

	ctx         *zmq4.Context
	pub, router *zmq4.Socket
	at, replay  string
	next        uint64
	buffer      [][2][]byte
	drop        func(uint64) bool
}

func newZPublisher(t testing.TB, cfg vllmtest.Events) publisher {
	p := &zpublisher{t: t, cfg: cfg, do: make(chan func()), stop: make(chan struct{}), at: "tcp://127.0.0.1:*",
		replay: "tcp://127.0.0.1:*"}
	if p.cfg.Buffer == 0 {
		p.cfg.Buffer = 10_000
	}
	p.open()
	p.stopped.Go(p.run)
	return p
}

func (p *zpublisher) must(err error) {
	if err != nil {
		p.t.Errorf("libzmq: %v", err)
	}
}

func (p *zpublisher) open() {
	var err error
	p.ctx, err = zmq4.NewContext()
	p.must(err)
	p.pub, err = p.ctx.NewSocket(zmq4.PUB)
	p.must(err)
	p.must(p.pub.SetLinger(0))
	bind := func(s *zmq4.Socket, at *string) {
		for range 200 { // a port that was closed just now may need a moment
			if err = s.Bind(*at); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		p.must(err)
		*at, err = s.GetLastEndpoint()
		p.must(err)
	}
	bind(p.pub, &p.at)
	p.router, err = p.ctx.NewSocket(zmq4.ROUTER)
	p.must(err)
	p.must(p.router.SetLinger(0))
	bind(p.router, &p.replay)
}

func (p *zpublisher) shut() {
	_ = p.pub.Close()
	_ = p.router.Close()
	p.must(p.ctx.Term())
}

func (p *zpublisher) run() {
	defer p.shut()
	for {
		select {
		case f := <-p.do:
			f()
		case <-p.stop:
			return
		case <-time.After(time.Millisecond):
		}
		for {
			req, err := p.router.RecvMessageBytes(zmq4.DONTWAIT)
			if err != nil {
				break
			}
			if len(req) != 3 || len(req[1]) != 0 || len(req[2]) != 8 || p.cfg.NoReplay {
				continue
			}
			p.answer(req[0], binary.BigEndian.Uint64(req[2]))
		}
	}
}

func (p *zpublisher) answer(id []byte, from uint64) {
	send := func(topic string, seq, payload []byte) {
		frames := [][]byte{id, {}, []byte(topic), seq, payload}
		if p.cfg.ShortReplay {
			frames = [][]byte{id, {}, seq, payload}
		}
		_, err := p.router.SendMessage(frames)
		p.must(err)
	}
	for _, b := range p.buffer {
		if binary.BigEndian.Uint64(b[0]) >= from {
			send(p.cfg.Topic, b[0], b[1])
		}
	}
	send("", binary.BigEndian.AppendUint64(nil, 1<<64-1), []byte{})
}

// in runs f in the publisher's own goroutine.
func (p *zpublisher) in(f func()) {
	done := make(chan struct{})
	p.do <- func() { f(); close(done) }
	<-done
}

func (p *zpublisher) Endpoint() string { return p.at }

func (p *zpublisher) ReplayEndpoint() string {
	if p.cfg.NoReplay {
		return ""
	}
	return p.replay
}

func (p *zpublisher) Publish(payload []byte) (seq uint64) {
	p.in(func() {
		seq = p.next
		p.next++
		number := binary.BigEndian.AppendUint64(nil, seq)
		p.buffer = append(p.buffer, [2][]byte{number, payload})
		if len(p.buffer) > p.cfg.Buffer {
			p.buffer = p.buffer[1:]
		}
		if p.drop == nil || !p.drop(seq) {
			_, err := p.pub.SendMessage([]byte(p.cfg.Topic), number, payload)
			p.must(err)
		}
	})
	return seq
}

func (p *zpublisher) SetNext(seq uint64)          { p.in(func() { p.next = seq }) }
func (p *zpublisher) Drop(drop func(uint64) bool) { p.in(func() { p.drop = drop }) }
func (p *zpublisher) Break()                      { p.in(func() { p.shut(); p.open() }) }
func (p *zpublisher) Restart()                    { p.in(func() { p.next, p.buffer = 0, nil; p.shut(); p.open() }) }
func (p *zpublisher) Close()                      { close(p.stop); p.stopped.Wait() }
