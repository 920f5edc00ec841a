package zmqsub

import (
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/vllmtest"
)

type (
	dialing    = func(egress.Policy) (network, error)
	publishing = func(testing.TB, vllmtest.Events) publisher
)

func TestLateJoinGapsAndRestart(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		for _, short := range []bool{false, true} {
			p := pub(t, vllmtest.Events{Topic: "kv@a@m", ShortReplay: short})
			publish(p, 0, 99)
			d := newDiary(t)
			s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
			eventually(t, "the past is replayed", func() bool {
				return d.holds("a", 0, 99) && s.State("a") == Live &&
					d.Trusted("a")
			})

			publish(p, 100, 110)
			eventually(t, "live messages come", func() bool { return d.holds("a", 0, 110) })

			p.Drop(func(seq uint64) bool { return seq%7 == 0 })
			publish(p, 111, 300)
			p.Drop(nil)
			publish(p, 301, 301)
			eventually(t, "every gap is filled", func() bool {
				return d.holds("a", 0, 301) && s.State("a") == Live &&
					d.Trusted("a")
			})
			if n := d.resets("a"); n != 1 {
				t.Errorf("%d resets; only the first one is due", n)
			}
			if st := s.Stats(); st.Gaps == 0 || st.Replays < 2 || st.Replayed < 100 {
				t.Errorf("%+v", st)
			}

			p.Restart()
			eventually(t, "it is connected again", func() bool { return s.Stats().Connects >= 2 && s.State("a") == Cold })
			publish(p, 1000, 1009)
			eventually(t, "the new life is applied", func() bool {
				return d.holds("a", 0, 9) && s.State("a") == Live &&
					d.Trusted("a")
			})
			p.Close()
			eventually(t, "it is down", is(s, "a", Down))
			if !d.Trusted("a") {
				t.Errorf("not trusted though the connection has just been lost")
			}
		}
	})
}

func TestConnectionLostSameEngine(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		publish(p, 0, 9)
		d := newDiary(t)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
		eventually(t, "it is live", is(s, "a", Live))
		for i := range 3 {
			before := s.Stats().Connects
			p.Break()
			publish(p, 10+10*i, 19+10*i)
			eventually(t, "it is live again", func() bool {
				return s.Stats().Connects > before && d.holds("a", 0, uint64(19+10*i)) && s.State("a") == Live
			})
		}
		if n := d.resets("a"); n != 1 {
			t.Errorf("%d resets; the engine was the same", n)
		}
	})
}

func TestWithoutReplay(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{NoReplay: true})
		defer p.Close()
		publish(p, 0, 4)
		d := newDiary(t)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
		eventually(t, "it is connected", func() bool { return s.Stats().Connects == 1 })
		n := 5
		eventually(t, "it knows a part", func() bool {
			publish(p, n, n) // a PUB loses what it sends before it knows of the subscription
			n++
			return s.State("a") == Partial && d.Trusted("a")
		})
		p.Drop(func(seq uint64) bool { return true })
		publish(p, n, n)
		p.Drop(nil)
		publish(p, n+1, n+2)
		eventually(t, "it goes on after the gap", func() bool {
			return d.holds("a", uint64(n+1), uint64(n+2)) &&
				s.State("a") == Partial
		})
		if s.Stats().Gaps == 0 {
			t.Errorf("no gap is counted")
		}
		resets := d.resets("a")
		p.Break()
		eventually(t, "nothing is believed of what may be another engine", func() bool {
			return d.resets("a") > resets &&
				!d.Trusted("a")
		})
	})
}

func TestReplayIsShort(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{Buffer: 10})
		defer p.Close()
		publish(p, 0, 49)
		d := newDiary(t)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
		eventually(t, "it knows what the engine keeps", func() bool {
			return d.holds("a", 40, 49) &&
				s.State("a") == Partial
		})
		p.Drop(func(uint64) bool { return true })
		publish(p, 50, 99)
		p.Drop(nil)
		publish(p, 100, 100)
		eventually(t, "what cannot be filled is forgotten", func() bool {
			return d.holds("a", 91, 100) &&
				s.State("a") == Partial && d.Trusted("a")
		})
	})
}

func TestOverflowIsAGap(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		d := newDiary(t)
		publish(p, 0, 0)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d, Queue: 16})
		eventually(t, "it is live", is(s, "a", Live))
		// A replay alone may have made it so: a publisher drops what it sends before
		// it has heard of the subscription.
		last := 0
		eventually(t, "messages come live", func() bool {
			last++
			publish(p, last, last)
			return s.Stats().Messages > 0
		})
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		d.mu.Lock()
		d.block = gate
		d.mu.Unlock()
		publish(p, last+1, last+400)
		eventually(t, "the queue overflows", func() bool { return s.Stats().Overflows > 0 })
		before := len(d.applied("a"))
		open()
		eventually(t, "what is left of the queue has been applied", func() bool { return len(d.applied("a")) > before })
		last += 401
		publish(p, last, last)
		eventually(t, "it has caught up", func() bool { return d.holds("a", 0, uint64(last)) && s.State("a") == Live })
	})
}

func TestStale(t *testing.T) {
	noLeak(t)
	p, err := vllmtest.NewPublisher(vllmtest.Events{})
	if err != nil {
		t.Fatal(err)
	}
	publish(p, 0, 3)
	d := newDiary(t)
	s := start(t, nil, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d, StaleAfter: 200 * time.Millisecond})
	eventually(t, "it is live", is(s, "a", Live))
	p.Close()
	eventually(t, "it is down", is(s, "a", Down))
	eventually(t, "it is stale", func() bool { return !d.Trusted("a") })
}

func TestMalformedPayload(t *testing.T) {
	noLeak(t)
	p, err := vllmtest.NewPublisher(vllmtest.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	publish(p, 0, 3)
	d := newDiary(t)
	s := start(t, nil, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
	eventually(t, "it is live", is(s, "a", Live))
	p.Publish([]byte("\xc1 no msgpack"))
	eventually(t, "nothing is believed", func() bool { return s.State("a") == Cold && !d.Trusted("a") })
	publish(p, 5, 6)
	eventually(t, "it goes on", func() bool { return d.holds("a", 5, 6) && s.State("a") == Partial && d.Trusted("a") })
	if s.Stats().Malformed != 1 {
		t.Errorf("%+v", s.Stats())
	}
}
