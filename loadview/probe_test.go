package loadview

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/vllmtest"
)

func TestProbes(t *testing.T) {
	var code, asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(code.Load()))
	}))
	defer s.Close()
	code.Store(200)
	type change struct {
		to    router.State
		asked int64
	}
	changes := make(chan change, 100)
	cfg := fast()
	cfg.Trace.StateChanged = func(_ string, _, to router.State) { changes <- change{to, asked.Load()} }
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: "a", Health: s.URL + "/health"})
	run(t, v)
	eventually(t, "probes", func() bool { return asked.Load() > 3 })
	wait := func(c int64, want router.State, min int64) {
		t.Helper()
		code.Store(c)
		before := asked.Load()
		if got := <-changes; got.to != want || got.asked < before+min-1 { // one may have been under way
			t.Errorf("status %d: %v after %d probes, want %v after %d", c, got.to, got.asked-before, want, min)
		}
	}
	wait(503, router.Unhealthy, DefaultProbeFailures)
	wait(204, router.Ready, DefaultProbeSuccesses)
	wait(302, router.Unhealthy, DefaultProbeFailures)
	wait(200, router.Ready, DefaultProbeSuccesses)

	// One success between failures is enough for the member to stay.
	flaky := asked.Load()
	code.Store(500)
	for asked.Load() < flaky+30 {
		if asked.Load()%3 == 2 {
			code.Store(200)
		} else {
			code.Store(500)
		}
		time.Sleep(time.Millisecond)
	}
	code.Store(200)
	// The results of probes and of outcomes both apply.
	code.Store(503)
	eventually(t, "unhealthy", func() bool { return stateOf(v, "a").Target.State == router.Unhealthy })
	for range DefaultCoolAfter {
		send(t, v, "a").Done(refused)
	}
	code.Store(200)
	eventually(t, "cooling comes out", func() bool { return stateOf(v, "a").Target.State == router.Cooling })
	set(t, v, Member{ID: "a"})
	code.Store(503)
	n := asked.Load()
	time.Sleep(5 * tick)
	if asked.Load() > n+1 || stateOf(v, "a").Target.State != router.Cooling {
		t.Error("it is still probed")
	}
}

// A replica that refuses, hangs and comes back, by its own /health.
func TestProbeReplica(t *testing.T) {
	s := vllmtest.NewServer(vllmtest.Config{})
	defer s.Close()
	v := newView(t, fast(), 0)
	set(t, v, Member{ID: "a", Health: s.URL + "/health", Metrics: s.MetricsURL()})
	run(t, v)
	for _, f := range []vllmtest.Faults{{Refuse: true}, {Probes: true, Hang: true}, {Probes: true, Status: 503}} {
		if err := s.SetFaults(f); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("%+v", f), func() bool { return stateOf(v, "a").Target.State == router.Unhealthy })
		if err := s.SetFaults(vllmtest.Faults{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is back", func() bool { return stateOf(v, "a").Target.State == router.Ready })
	}
}

func TestParallelIsBounded(t *testing.T) {
	var now, most, asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(time.Millisecond) // long enough to overlap; nothing depends on it
		now.Add(-1)
		asked.Add(1)
	}))
	defer s.Close()
	cfg := fast()
	cfg.Probe.Parallel = 3
	v := newView(t, cfg, 0)
	var ms []Member
	for i := range 40 {
		ms = append(ms, Member{ID: fmt.Sprint(i), Health: s.URL})
	}
	set(t, v, ms...)
	run(t, v)
	eventually(t, "300 probes", func() bool { return asked.Load() > 300 })
	if m := most.Load(); m > 3 || m < 2 {
		t.Errorf("%d at once", m)
	}
}

// leastTotal picks by in flight and queued, a random one among equals.
func leastTotal(ts []router.Target) (router.Decision, error) {
	best, load := -1, 0
	for i, x := range ts {
		if l := x.Load.InFlight + x.Load.Queued; x.State == router.Ready && (best < 0 || l < load) {
			best, load = i, l
		}
	}
	if best < 0 {
		return router.Decision{}, errors.New("none")
	}
	return router.Decision{Target: ts[best]}, nil
}

// A member that is back among busy ones gets its share bit by bit.
func TestSlowStart(t *testing.T) {
	for _, c := range []struct {
		slow        time.Duration
		first, half int // requests on the one that is back, after 30 at once and after 30 more at half time
		weight      float64
	}{
		{0, 8, 26, 0},  // x + 30 = (120 - x) / 3; x + 15 = (150 - x) / 3
		{0, 12, 42, 2}, // (x + 60) / 2 = (120 - x) / 3; (x + 30) / 2 = (150 - x) / 3
		{-1, 30, 30, 0},
	} {
		now := time.Unix(1000, 0)
		v, err := New(Config{Now: func() time.Time { return now }, Probe: Probe{SlowStart: c.slow}})
		if err != nil {
			t.Fatal(err)
		}
		set(t, v, Member{ID: "back", Health: "http://a/health", Weight: c.weight}, Member{ID: "b"}, Member{ID: "c"},
			Member{ID: "d"})
		src := v.byID["back"].source
		v.probed(src, errNoPick)
		pick := func(ts []router.Target) (router.Decision, error) {
			s := append([]router.Target(nil), ts...)
			if c.weight > 0 {
				s[0].Load.InFlight, s[0].Load.Queued = 0, (s[0].Load.InFlight+s[0].Load.Queued)/int(c.weight)
			}
			return leastTotal(s)
		}
		choose := func(n int) {
			t.Helper()
			for range n {
				if _, _, err := v.Choose(t.Context(), pick); err != nil {
					t.Fatal(err)
				}
			}
		}
		choose(90) // 30 on each of three
		v.probed(src, nil)
		if s, q := stateOf(v, "back"), 30*int(max(c.weight, 1)); c.slow == 0 && s.Target.Load.Queued != q {
			t.Errorf("offered with %d, want %d", s.Target.Load.Queued, q)
		}
		choose(30)
		got := stateOf(v, "back").Target.Load.InFlight
		if d := got - c.first; d < -1 || d > 1 {
			t.Errorf("slow start %v, weight %v: %d of the first 30, want %d", c.slow, c.weight, got, c.first)
		}
		if c.slow < 0 {
			continue
		}
		now = now.Add(DefaultSlowStart / 2)
		choose(30)
		got = stateOf(v, "back").Target.Load.InFlight
		if d := got - c.half; d < -2 || d > 2 {
			t.Errorf("weight %v: %d at half time, want %d", c.weight, got, c.half)
		}
		now = now.Add(DefaultSlowStart / 2)
		if q := stateOf(v, "back").Target.Load.Queued; q != 0 {
			t.Errorf("the handicap is still %d", q)
		}
		choose(60)
		if len(v.warming) != 0 || v.byID["back"].extra.Load() != 0 {
			t.Error("it is still warming up")
		}
		got = stateOf(v, "back").Target.Load.InFlight
		if want := int(210 * max(c.weight, 1) / (3 + max(c.weight, 1))); got < want-2 || got > want+2 {
			t.Errorf("weight %v: %d in the end, want %d", c.weight, got, want)
		}
	}
}

// With nobody to compare with there is nothing to be slow about.
func TestSlowStartAlone(t *testing.T) {
	v := newView(t, Config{}, 0)
	set(t, v, Member{ID: "a", Health: "http://a/"}, Member{ID: "b"})
	defer send(t, v, "a").Done(ok)
	src := v.byID["a"].source
	v.probed(src, errNoPick)
	v.probed(src, nil) // b is idle
	if q := queued(t, v, "a"); q != 0 {
		t.Errorf("%d", q)
	}
	set(t, v, Member{ID: "b"})
	v.probed(src, errNoPick) // it left
	if s := stateOf(v, "b"); s.Target.State != router.Ready {
		t.Errorf("%+v", s)
	}
}
