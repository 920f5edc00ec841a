package loadview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/vllmtest"
)

const tick = 20 * time.Millisecond

// fast is a Config that scrapes and probes often.
func fast() Config {
	return Config{
		Scrape: Scrape{Interval: tick, Timeout: 500 * time.Millisecond},
		Probe:  Probe{Interval: tick, Timeout: 100 * time.Millisecond, SlowStart: -1},
	}
}

func run(t testing.TB, v *View) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// eventually waits until ok, which it asks again and again.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func set(t testing.TB, v *View, ms ...Member) {
	t.Helper()
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
}

// engine is a metrics page with numbers that a test sets.
type engine struct {
	*httptest.Server
	running, waiting atomic.Int64
	start            atomic.Int64
	scrapes          atomic.Int64
	hook             atomic.Pointer[func(http.ResponseWriter,
		*http.Request) bool] // answers instead, if it returns true
}

func newEngine(t testing.TB) *engine {
	e := &engine{}
	e.start.Store(1000)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.scrapes.Add(1)
		if h := e.hook.Load(); h != nil && (*h)(w, r) {
			return
		}
		if s := e.start.Load(); s > 0 {
			_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\n", s)
		}
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\nvllm:kv_cache_usage_perc 0.5\n",
			e.running.Load(), e.waiting.Load())
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *engine) answer(f func(http.ResponseWriter, *http.Request) bool) {
	if f == nil {
		e.hook.Store(nil)
	} else {
		e.hook.Store(&f)
	}
}

// scraped waits for two more scrapes: the second began after the call.
func (e *engine) scraped(t testing.TB) {
	t.Helper()
	n := e.scrapes.Load()
	eventually(t, "two scrapes", func() bool { return e.scrapes.Load() > n+2 })
}

func queued(t testing.TB, v *View, id string) int { return status(t, v, id).Target.Load.Queued }

func stateOf(v *View, id string) Status {
	for _, s := range v.Snapshot() {
		if s.Target.ID == id {
			return s
		}
	}
	return Status{}
}

func TestSetWhileRunning(t *testing.T) {
	e, f := newEngine(t), newEngine(t)
	e.running.Store(3)
	f.running.Store(5)
	var auth atomic.Pointer[string]
	f.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		a := r.Header.Get("Authorization")
		auth.Store(&a)
		return false
	})
	v := newView(t, fast(), 0)
	run(t, v)
	set(t, v, Member{ID: "a", Metrics: e.URL})
	eventually(t, "it is scraped", func() bool { return queued(t, v, "a") == 3 })
	if err := v.Run(t.Context()); !errors.Is(err, errRunning) {
		t.Errorf("a second Run: %v", err)
	}
	h := http.Header{"Authorization": {"Bearer secret"}}
	set(t, v, Member{ID: "a", Metrics: f.URL, Header: h})
	h.Set("Authorization", "changed") // it was copied
	eventually(t, "the new address is scraped", func() bool { return queued(t, v, "a") == 5 })
	if a := auth.Load(); a == nil || *a != "Bearer secret" {
		t.Errorf("Authorization: %v", a)
	}
	set(t, v, Member{ID: "a"})
	if queued(t, v, "a") != 0 {
		t.Error("it is still known")
	}
	set(t, v, Member{ID: "b", Metrics: e.URL})
	eventually(t, "another one", func() bool { return queued(t, v, "b") == 3 })
	n := f.scrapes.Load()
	e.scraped(t)
	e.scraped(t)
	if f.scrapes.Load() > n {
		t.Error("an address that nobody has any more is scraped")
	}
}

func TestDeniedURLs(t *testing.T) {
	v := newView(t, Config{}, 1)
	before := v.Snapshot()
	err := v.Set([]Member{
		{ID: "a", Metrics: "http://169.254.169.254/metrics"}, {ID: "b", Health: "http://0xa9fea9fe/"},
		{ID: "c", Metrics: "tcp://c:1"}, {ID: "d", Health: "d:8000"}, {ID: "e", Metrics: "http://e/metrics"},
	})
	for _, want := range []string{
		`member "a": Members[0].Metrics`, `member "b": Members[1].Health`, `member "c": Members[2].Metrics`,
		`member "d": Members[3].Health`, "link-local",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"e"`) {
		t.Error(err)
	}
	if diff := cmp.Diff(before, v.Snapshot()); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
	// A name passes and is checked when it is dialled.
	e := newEngine(t)
	_, port, err := net.SplitHostPort(e.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg := fast()
	cfg.Egress = egress.Policy{BlockLoopback: true, AllowHosts: []string{"somewhere.else"}}
	v = newView(t, cfg, 0)
	if err := v.Set([]Member{{ID: "a", Metrics: "http://localhost:" + port}}); err == nil {
		t.Error("localhost is loopback")
	}
	forgiving := cfg
	forgiving.Egress = egress.Policy{} // as if the name had meant something else then
	if err := v.SetConfig(forgiving); err != nil {
		t.Fatal(err)
	}
	set(t, v, Member{ID: "a", Metrics: "http://localhost:" + port})
	if err := v.SetConfig(cfg); err != nil {
		t.Fatal(err)
	}
	run(t, v)
	var denied *egress.DeniedError
	eventually(t, "it is denied", func() bool { return errors.As(stateOf(v, "a").ScrapeError, &denied) })
	if n := e.scrapes.Load(); n > 0 {
		t.Errorf("%d requests got through", n)
	}
}

func TestBadRunConfig(t *testing.T) {
	_, err := New(Config{
		Scrape: Scrape{Interval: -1, Timeout: -1, StaleAfter: -1, MaxBody: -1, Parallel: -1},
		Probe:  Probe{Interval: -1, Timeout: -1, Failures: -1, Successes: -1, Parallel: -1},
		Egress: egress.Policy{AllowHosts: []string{"http://x"}},
	})
	for _, field := range []string{
		"Scrape.Interval", "Scrape.Timeout", "Scrape.StaleAfter", "Scrape.MaxBody", "Scrape.Parallel",
		"Probe.Interval", "Probe.Timeout", "Probe.Failures", "Probe.Successes", "Probe.Parallel", "Egress",
	} {
		if err == nil || !strings.Contains(err.Error(), "loadview: "+field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

// An engine that hangs delays nobody: not the others' scrapes, and no Choose.
func TestHangingEngine(t *testing.T) {
	hanging := vllmtest.NewServer(vllmtest.Config{})
	defer hanging.Close()
	if err := hanging.SetFaults(vllmtest.Faults{HangMetrics: true}); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	cfg := fast()
	cfg.Scrape.Timeout = 30 * time.Second
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: "hangs", Metrics: hanging.MetricsURL()}, Member{ID: "a", Metrics: e.URL})
	run(t, v)
	e.scraped(t)
	var worst time.Duration
	for range 2000 {
		begin := time.Now()
		send(t, v, "hangs").Done(ok)
		worst = max(worst, time.Since(begin))
	}
	if worst > 5*time.Second {
		t.Errorf("a Choose took %v", worst)
	}
	for i := range 5 {
		e.running.Store(int64(i + 1))
		eventually(t, "the other is scraped", func() bool { return queued(t, v, "a") == i+1 })
	}
	set(t, v, Member{ID: "a", Metrics: e.URL}) // its scrape ends with it, and Run does not wait 30 s
}
