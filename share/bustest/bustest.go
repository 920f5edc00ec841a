// Package bustest holds an implementation of share.Bus to the promises of that interface. A transport's own tests
// call Run:
//
//	func TestBus(t *testing.T) {
//		bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus {
//			all := make([]share.Bus, n)
//			for i := range all {
//				all[i] = connect(t) // to one server, or each to another one of a cluster
//			}
//			return all
//		}})
//	}
package bustest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router/share"
)

// Config says how Run gets the buses that it tests.
type Config struct {
	// New returns n buses of one fleet, each as that of another gateway. They need not be connected yet. New ends them
	// by t.Cleanup.
	New func(t testing.TB, n int) []share.Bus
	// Outage returns a bus of its own, and functions that end its server and start it again at the same address. Both
	// return when that is done. nil leaves the tests of outages out: a bus inside one process has none.
	Outage func(t testing.TB) (bus share.Bus, down, up func())
}

// patience bounds each wait for a condition: a failing test takes that long, a passing one does not.
const patience = time.Minute

// Run runs all tests of the kit as subtests of t.
func Run(t *testing.T, cfg Config) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"Order", order}, {"Subjects", subjects}, {"Large", large}, {"Request", request}, {"Stop", stopped},
		{"Slow", slow}, {"Storm", storm}, {"Outage", outage},
	} {
		if test.name == "Outage" && cfg.Outage == nil {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(t, cfg) })
	}
}

func until(t testing.TB, condition string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", condition)
		}
	}
}

func fleet(t testing.TB, cfg Config, n int) []share.Bus {
	t.Helper()
	all := cfg.New(t, n)
	if len(all) != n {
		t.Fatalf("New returned %d buses, want %d", len(all), n)
	}
	for _, b := range all {
		until(t, "each bus is connected", func() bool { return b.State().Connected })
		if s := b.State(); s.Since.IsZero() {
			t.Errorf("it is connected since never: %+v", s)
		}
	}
	return all
}

// A reader keeps the numbers of the frames that came. Number 0 is a probe.
type reader struct {
	mu     sync.Mutex
	got    []uint64
	probes int
}

func (r *reader) receive(data []byte) {
	n := binary.BigEndian.Uint64(data)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == 0 {
		r.probes++
		return
	}
	r.got = append(r.got, n)
}

func (r *reader) numbers() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *reader) probed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probes > 0
}

func frame(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func subscribe(t testing.TB, b share.Bus, subject string, receive func([]byte)) (stop func()) {
	t.Helper()
	stop, err := b.Subscribe(subject, receive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

// ready publishes probes by from until each reader got one: frames of a time before that may be lost.
func ready(t testing.TB, from share.Bus, subject string, readers ...*reader) {
	t.Helper()
	for _, r := range readers {
		until(t, "the subscription is known", func() bool {
			_ = from.Publish(subject, frame(0)) // until it succeeds
			return r.probed()
		})
	}
}

// order: each subscriber gets the frames of a publisher in its order, also the publisher's own ones, as they were when
// Publish was called.
func order(t *testing.T, cfg Config) {
	all := fleet(t, cfg, 3)
	readers := make([]*reader, len(all))
	for i, b := range all {
		readers[i] = &reader{}
		subscribe(t, b, "order", readers[i].receive)
	}
	for _, b := range all {
		for _, r := range readers {
			r.mu.Lock()
			r.probes = 0
			r.mu.Unlock()
		}
		ready(t, b, "order", readers...)
	}
	const each = 300
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() {
			data := make([]byte, 8)
			for n := range uint64(each) {
				binary.BigEndian.PutUint64(data, uint64(i+1)<<32|n)
				if err := b.Publish("order", data); err != nil {
					t.Errorf("frame %d of %d: %v", n, i, err)
				}
			}
		})
	}
	wg.Wait()
	for i, r := range readers {
		until(t, fmt.Sprint("all frames come to ", i), func() bool { return len(r.numbers()) >= each*len(all) })
		next := map[uint64]uint64{}
		for _, n := range r.numbers() {
			from, seq := n>>32, n&(1<<32-1)
			if next[from] != seq {
				t.Fatalf("subscriber %d got frame %d of publisher %d, want %d", i, seq, from-1, next[from])
			}
			next[from]++
		}
	}
	for i, b := range all {
		if s := b.State(); s.Sent < each || s.Received < each*3 || s.Dropped != 0 {
			t.Errorf("bus %d: %+v", i, s)
		}
	}
}

// subjects: a subscriber gets the frames of its subject alone.
func subjects(t *testing.T, cfg Config) {
	b := fleet(t, cfg, 1)[0]
	var a, other reader
	subscribe(t, b, "one.a-1", a.receive)
	subscribe(t, b, "one.a-1.x", other.receive)
	ready(t, b, "one.a-1", &a)
	ready(t, b, "one.a-1.x", &other)
	for n := range uint64(20) {
		for i, subject := range []string{"one.a-1", "one.a-1.x", "one"} {
			if err := b.Publish(subject, frame(n*3+uint64(i)+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "all frames come", func() bool { return len(a.numbers()) >= 20 && len(other.numbers()) >= 20 })
	for i, r := range []*reader{&a, &other} {
		for n, got := range r.numbers() {
			if want := uint64(n*3 + i + 1); got != want {
				t.Fatalf("subscriber %d got %d, want %d", i, got, want)
			}
		}
	}
}

// large: MaxFrame bytes pass, and more do not.
func large(t *testing.T, cfg Config) {
	all := fleet(t, cfg, 2)
	var probe reader
	var got atomic.Int64
	subscribe(t, all[1], "large", func(data []byte) {
		got.Store(max(got.Load(), int64(len(data))))
		probe.receive(data)
	})
	ready(t, all[0], "large", &probe)
	if err := all[0].Publish("large", make([]byte, share.MaxFrame)); err != nil {
		t.Error(err)
	}
	until(t, "the largest frame comes", func() bool { return got.Load() == share.MaxFrame })
	before := all[0].State().Dropped
	if err := all[0].Publish("large", make([]byte, share.MaxFrame+1)); !errors.Is(err, share.ErrDropped) {
		t.Errorf("too large a frame: %v", err)
	}
	if s := all[0].State(); s.Dropped != before+1 || !s.Connected {
		t.Errorf("after too large a frame: %+v", s)
	}
	if _, err := all[0].Request(t.Context(), "large", make([]byte, share.MaxFrame+1)); err == nil {
		t.Error("too large a request is no error")
	}
}

func ask(ctx context.Context, b share.Bus, subject, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	reply, err := b.Request(ctx, subject, []byte(text))
	return string(reply), err
}

func request(t *testing.T, cfg Config) {
	all := fleet(t, cfg, 2)
	if _, err := all[0].Request(t.Context(), "ask", nil); !errors.Is(err, share.ErrNoPeer) {
		t.Errorf("nobody serves: %v", err)
	}
	full := string(slices.Repeat([]byte{'x'}, share.MaxFrame))
	stop, err := all[1].Serve("ask", func(r []byte) []byte {
		switch string(r) {
		case "nothing":
			return nil
		case "full":
			return []byte(full)
		case "too much":
			return []byte(full + "x")
		}
		return append([]byte("you said "), r...)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for i, b := range all { // by another gateway and by its own
		until(t, fmt.Sprint("the service answers ", i), func() bool {
			r, err := ask(t.Context(), b, "ask", "hello")
			return err == nil && r == "you said hello"
		})
	}
	if r, err := ask(t.Context(), all[0], "ask", ""); err != nil || r != "you said " {
		t.Errorf("an empty request: %q, %v", r, err)
	}
	if r, err := ask(t.Context(), all[0], "ask", "full"); err != nil || r != full {
		t.Errorf("a full reply: %d bytes, %v", len(r), err)
	}
	for _, text := range []string{"too much", "nothing"} { // the bus may say so at once, or let ctx end
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if r, err := all[0].Request(ctx, "ask", []byte(text)); err == nil {
			t.Errorf("%s: %d bytes, and no error", text, len(r))
		}
		cancel()
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all[0].Request(done, "ask", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx is done: %v", err)
	}
	var wg sync.WaitGroup // replies go to those who asked
	for i := range 40 {
		wg.Go(func() {
			text := fmt.Sprint("number ", i)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if r, err := all[i%2].Request(ctx, "ask", []byte(text)); err != nil || string(r) != "you said "+text {
				t.Errorf("%q: %q, %v", text, r, err)
			}
		})
	}
	wg.Wait()
	stop()
	until(t, "nobody serves any more", func() bool {
		_, err := ask(t.Context(), all[0], "ask", "hello")
		return errors.Is(err, share.ErrNoPeer)
	})
}

// stopped: after stop, which may be called twice, a subscriber gets nothing, and another of the same subject goes on.
func stopped(t *testing.T, cfg Config) {
	b := fleet(t, cfg, 1)[0]
	var gone, stays reader
	stop := subscribe(t, b, "stop", gone.receive)
	subscribe(t, b, "stop", stays.receive)
	ready(t, b, "stop", &gone, &stays)
	stop()
	stop()
	for n := range uint64(100) {
		if err := b.Publish("stop", frame(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the other subscriber gets all", func() bool { return len(stays.numbers()) == 100 })
	if got := gone.numbers(); len(got) > 0 {
		t.Errorf("%d frames came after stop", len(got))
	}
	var again reader
	subscribe(t, b, "stop", again.receive)
	ready(t, b, "stop", &again)
}

// slow: frames that a subscriber is too slow for are dropped and counted while it stands still, and nobody else waits.
func slow(t *testing.T, cfg Config) {
	all := fleet(t, cfg, 2)
	leave := make(chan struct{})
	var slow, quick reader
	subscribe(t, all[1], "slow", func(data []byte) {
		slow.receive(data[:8])
		<-leave
	})
	defer close(leave)
	subscribe(t, all[1], "slow", func(data []byte) { quick.receive(data[:8]) })
	data := make([]byte, 8<<10)
	until(t, "both subscriptions are known", func() bool {
		_ = all[0].Publish("slow", data)
		return slow.probed() && quick.probed()
	})
	before := all[1].State().Dropped
	n := uint64(0)
	until(t, "a frame is dropped", func() bool {
		for range 16 {
			n++
			binary.BigEndian.PutUint64(data, n)
			_ = all[0].Publish("slow", data) // it may be that the memory's publisher hears of it
		}
		return all[1].State().Dropped > before
	})
	quiet := len(quick.numbers())
	until(t, "the quick one gets on", func() bool {
		n++
		binary.BigEndian.PutUint64(data, n)
		_ = all[0].Publish("slow", data)
		return len(quick.numbers()) > quiet
	})
	if !all[1].State().Connected {
		t.Errorf("a slow subscriber ended the connection: %+v", all[1].State())
	}
}

// storm: all methods at once, subscribers and services that come and go. It is for the race detector.
func storm(t *testing.T, cfg Config) {
	all := fleet(t, cfg, 3)
	var wg sync.WaitGroup
	for i := range 9 {
		b := all[i%len(all)]
		wg.Go(func() {
			for n := range 30 {
				stop, err := b.Subscribe(fmt.Sprint("storm.", n%5), func([]byte) {})
				if err != nil {
					t.Error(err)
					return
				}
				_ = b.Publish(fmt.Sprint("storm.", i%5), frame(uint64(n)+1)) // some subject has no subscriber
				stopServe, err := b.Serve("storm.q", func(r []byte) []byte { return r })
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				_, _ = b.Request(ctx, "storm.q", []byte("x")) // its server may be gone
				cancel()
				b.State()
				stopServe()
				stop()
			}
		})
	}
	wg.Wait()
	var r reader
	subscribe(t, all[0], "storm.end", r.receive)
	ready(t, all[1], "storm.end", &r)
}

// outage: Publish drops at once while there is no server, and all that was subscribed and served is there again when
// the server is.
func outage(t *testing.T, cfg Config) {
	b, down, up := cfg.Outage(t)
	until(t, "it is connected", func() bool { return b.State().Connected })
	var r reader
	subscribe(t, b, "outage", r.receive)
	stop, err := b.Serve("outage.q", func(r []byte) []byte { return r })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	ready(t, b, "outage", &r)
	for round := range 2 {
		down()
		until(t, "the outage is seen", func() bool { s := b.State(); return !s.Connected && s.Err != nil })
		before := b.State().Dropped
		if err := b.Publish("outage", frame(1)); !errors.Is(err, share.ErrDropped) {
			t.Errorf("in an outage: %v", err)
		}
		if s := b.State(); s.Dropped <= before {
			t.Errorf("in an outage: %+v", s)
		}
		var late reader
		subscribe(t, b, fmt.Sprint("late.", round), late.receive)
		up()
		until(t, "it is connected again", func() bool { s := b.State(); return s.Connected && s.Err == nil })
		r.mu.Lock()
		r.probes = 0
		r.mu.Unlock()
		ready(t, b, "outage", &r)
		ready(t, b, fmt.Sprint("late.", round), &late)
		until(t, "the service answers again", func() bool {
			reply, err := ask(t.Context(), b, "outage.q", "x")
			return err == nil && reply == "x"
		})
	}
	if got := r.numbers(); len(got) > 0 {
		t.Errorf("frames of an outage came: %v", got)
	}
}
