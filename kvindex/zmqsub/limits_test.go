package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/warmroute/router/internal/zmtp"
	"github.com/warmroute/router/vllmtest"
)

// padded is batch with a member of so many bytes that no engine sends.
func padded(size int) []byte {
	b := batch(0)
	at := 11 // behind the time and the header of the events
	if b[at] != 0x87 {
		panic("not a map of seven members")
	}
	out := append([]byte(nil), b[:at]...)
	out = append(out, 0x88, 0xa3, 'p', 'a', 'd', 0xc6)
	out = binary.BigEndian.AppendUint32(out, uint32(size))
	return append(append(out, make([]byte, size)...), b[at+1:]...)
}

// TestRepliesWaitUnread: an engine with large replies without an end is read no
// further than the bytes that may wait.
func TestRepliesWaitUnread(t *testing.T) {
	noLeak(t)
	var sent atomic.Int64
	endpoint := hostile(t, func(c net.Conn) {
		z, err := zmtp.New(context.Background(), c, zmtp.Config{Socket: "ROUTER", MaxMessage: 1 << 10,
			Handshake: 5 * time.Second})
		if err != nil {
			return
		}
		if _, err := z.Recv(); err != nil {
			return
		}
		payload := padded(1 << 20)
		for seq := uint64(0); ; seq++ {
			if z.Send(nil, nil, binary.BigEndian.AppendUint64(nil, seq), payload) != nil {
				return
			}
			sent.Add(int64(len(payload)))
		}
	})
	pub := publishers["own publisher"](t, vllmtest.Events{})
	defer pub.Close()
	d := newDiary(t)
	d.block = make(chan struct{})
	const budget = 16 << 20
	start(t, networks["own"], Config{
		Endpoint: pub.Endpoint(), Targets: []Target{{ID: "a", Replay: endpoint}}, Index: d, QueueBytes: budget,
		ReplayTimeout: time.Minute,
	})
	eventually(t, "replies come", func() bool { return sent.Load() > 0 })
	// Until nothing more is read: 50 looks in a row. The system's buffers take a few.
	most := int64(budget/4 + 12<<20)
	for last, same := int64(0), 0; same < 50; time.Sleep(10 * time.Millisecond) {
		now := sent.Load()
		if now > most {
			t.Fatalf("%d MiB were read, %d may wait", now>>20, budget/4>>20)
		}
		if same++; now != last {
			last, same = now, 0
		}
	}
	close(d.block)
	d.mu.Lock()
	d.block = nil
	d.mu.Unlock()
	eventually(t, "it goes on", func() bool { return sent.Load() > most })
}

// TestPartsOfLargeMessages: peers that send parts of large messages, and no more,
// make it keep no more than the bytes that may wait, and are let go.
func TestPartsOfLargeMessages(t *testing.T) {
	noLeak(t)
	d := newDiary(t)
	const budget = 4 << 20
	s := start(t, nil, Config{Endpoint: "tcp://127.0.0.1:0", Bind: true, Index: d, Targets: []Target{{ID: "a"}},
		QueueBytes: budget, DialTimeout: 200 * time.Millisecond, ReplayTimeout: time.Second, Heartbeat: -1})
	eventually(t, "it listens", func() bool { return s.Addr() != "" })
	ended := make(chan int64)
	const peers = 20
	for range peers {
		go func() {
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Error(err)
				ended <- 0
				return
			}
			defer c.Close()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			asPeer(c, "PUB")
			_, _ = c.Write(append([]byte{zmtp.Long}, "\x00\x00\x00\x00\x00\xf0\x00\x00"...))
			var n int64
			for ; n < 15<<20; n += 1 << 10 {
				if _, err := c.Write(make([]byte, 1<<10)); err != nil {
					break
				}
			}
			ended <- n
		}()
	}
	for range peers {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a peer that sends a part of a message is not let go")
		}
	}
	// A good engine is served again.
	w := bindPeer(t, s)
	eventually(t, "an engine is heard", func() bool {
		_ = w.send(nil, make([]byte, 8), batch(0))
		return d.Trusted("a")
	})
}

func TestBudget(t *testing.T) {
	b := budget{most: 100}
	if !b.try(1000) || b.try(1) {
		t.Error("while nothing is kept one message of any size fits, and no other")
	}
	b.give(1000)
	if !b.try(60) || b.try(60) || !b.try(40) {
		t.Error("60 and 40 of 100 fit")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errNoBytes)
	if err := b.take(ctx, 1); !errors.Is(err, errNoBytes) {
		t.Error(err)
	}
	got := make(chan error)
	for range 10 {
		go func() { got <- b.take(t.Context(), 10) }()
	}
	b.give(60)
	b.give(40)
	for range 10 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if b.kept() != 100 {
		t.Errorf("%d are kept", b.kept())
	}
}

// TestBytesAreGivenBack: whatever happened to messages, in the end none are charged.
func TestBytesAreGivenBack(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		publish(p, 0, 50)
		d := newDiary(t)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d,
			Queue: 20, QueueBytes: 2000})
		n := 50
		for round := range 5 {
			p.Drop(func(seq uint64) bool { return seq%7 == 0 })
			publish(p, n+1, n+60)
			n += 60
			if round == 2 {
				p.Break()
			}
			p.Drop(nil)
			n++
			eventually(t, "all is applied", func() bool {
				p.Publish(batch(n))
				n++
				return d.Trusted("a") && s.State("a") != Resyncing
			})
		}
		eventually(t, "no bytes are kept", func() bool { return s.Stats().Waiting == 0 })
	})
}

func bindPeer(t *testing.T, s *Subscriber) *conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newConn(context.Background(), c, role{"PUB", []string{"SUB"}}, nil, limits{message: 1 << 20,
		handshake: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	go func() {
		for { // answers heartbeats
			if _, err := w.recv(); err != nil {
				return
			}
		}
	}()
	return w
}

// TestTopicIsNotTakenOver: with Bind, a second engine that publishes under the topic
// of a target is ignored while the first one is connected, and reported.
func TestTopicIsNotTakenOver(t *testing.T) {
	noLeak(t)
	d := newDiary(t)
	contested := make(chan string, 1000)
	core, logs := observer.New(zap.InfoLevel)
	s := start(t, nil, Config{Endpoint: "tcp://127.0.0.1:0", Bind: true, Index: d, Targets: []Target{{ID: "a",
		Topic: "kv@a"}},
		Heartbeat: 50 * time.Millisecond, Logger: zap.New(core),
		Trace: Trace{Contested: func(id, topic string) { contested <- id + " " + topic }}})
	eventually(t, "it listens", func() bool { return s.Addr() != "" })
	tell := func(w *conn, seq uint64) {
		t.Helper()
		if err := w.send([]byte("kv@a@m"), binary.BigEndian.AppendUint64(nil, seq), batch(int(seq))); err != nil {
			t.Fatal(err)
		}
	}
	first := bindPeer(t, s)
	tell(first, 0)
	tell(first, 1)
	eventually(t, "the first engine is heard", func() bool { return d.holds("a", 0, 1) })
	second := bindPeer(t, s)
	for seq := range uint64(100) {
		tell(second, seq)
	}
	tell(first, 2)
	eventually(t, "the first engine is still heard", func() bool { return d.holds("a", 0, 2) && s.State("a") == Live })
	eventually(t, "the second one is reported", func() bool { return s.Stats().Contested == 100 })
	if got := <-contested; got != "a kv@a@m" || len(contested) != 99 {
		t.Errorf("%q and %d more", got, len(contested))
	}
	if n := logs.FilterMessageSnippet("second engine").Len(); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	first.close()
	eventually(t, "the first engine has left", is(s, "a", Down))
	tell(second, 0)
	eventually(t, "the second one takes its place", func() bool { return d.holds("a", 0, 0) && s.State("a") == Live })
}

// TestSilentPeerIsReplaced: an engine with a half-open connection does not keep
// its topic for ever, though nothing shows that it is gone.
func TestSilentPeerIsReplaced(t *testing.T) {
	noLeak(t)
	d := newDiary(t)
	s := start(t, nil, Config{Endpoint: "tcp://127.0.0.1:0", Bind: true, Index: d, Targets: []Target{{ID: "a"}},
		Heartbeat: -1, StaleAfter: time.Second})
	eventually(t, "it listens", func() bool { return s.Addr() != "" })
	first := bindPeer(t, s)
	_ = first.send(nil, make([]byte, 8), batch(0))
	eventually(t, "the first engine is heard", func() bool { return d.holds("a", 0, 0) })
	second := bindPeer(t, s)
	eventually(t, "the second one takes its place", func() bool {
		_ = second.send([]byte("second"), binary.BigEndian.AppendUint64(nil, 0), batch(0))
		return s.Stats().Transitions[Down] == 1 && s.State("a") == Live
	})
	if s.Stats().Contested == 0 {
		t.Error("it was believed at once")
	}
}

// TestLogOfFlapping: whatever an engine sends, the log has a few lines and a count.
func TestLogOfFlapping(t *testing.T) {
	noLeak(t)
	core, logs := observer.New(zap.DebugLevel)
	p := publishers["own publisher"](t, vllmtest.Events{NoReplay: true})
	defer p.Close()
	d := newDiary(t)
	s := start(t, networks["own"], Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d, Logger: zap.New(core)})
	n := 0
	eventually(t, "it flaps", func() bool {
		for range 100 {
			p.Publish(batch(n))
			p.Publish([]byte("malformed"))
			n++
		}
		return s.Stats().Malformed > 2000
	})
	if got := logs.Len(); got > logBurst+2 {
		t.Errorf("%d lines in the log", got)
	}
	var st stream
	st.run = &run{s: s}
	st.machine = newMachine(&st, false, 1, 1)
	before := logs.Len()
	for range 50 {
		st.log(Live, Cold, "why")
	}
	st.logRest()
	st.log(Cold, Live, "why")
	lines := logs.All()[before:]
	if len(lines) != logBurst+2 || fmt.Sprint(lines[logBurst].ContextMap()["count"]) != "40" ||
		!strings.Contains(lines[logBurst].Message, "not logged") {
		t.Errorf("%d lines, %v", len(lines), lines)
	}
}
