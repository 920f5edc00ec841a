package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
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

// engine is a metrics page whose numbers a test sets.
type engine struct {
	*httptest.Server
	running, waiting atomic.Int64
	start            atomic.Int64
	scrapes          atomic.Int64
	hook             atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // answers instead, where it returns true
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
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\nvllm:kv_cache_usage_perc 0.5\n", e.running.Load(), e.waiting.Load())
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

// Every dialect by a running replica, with requests of this process and of
// others.
func TestScrapeDialects(t *testing.T) {
	for _, d := range []vllmtest.Dialect{
		vllmtest.VLLM, vllmtest.VLLM06, vllmtest.SGLang, vllmtest.TensorRT, vllmtest.Triton, vllmtest.TGI, vllmtest.LlamaCpp,
	} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := vllmtest.NewServer(vllmtest.Config{Dialect: d, MaxSeqs: 2})
			defer s.Close()
			v := newView(t, fast(), 0)
			set(t, v, Member{ID: "a", Metrics: s.MetricsURL()})
			run(t, v)
			eventually(t, "an idle page", func() bool { e, ok := v.Engine("a"); return ok && e.Running == 0 })

			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			for i := range 5 { // two run, three wait
				if i == 0 {
					defer send(t, v, "a").Done(ok)
				}
				wg.Go(func() {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions",
						strings.NewReader(`{"prompt":"hello","max_tokens":100000,"ignore_eos":true}`))
					if err != nil {
						t.Error(err)
						return
					}
					if resp, err := s.Client().Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				})
			}
			eventually(t, "two run and three wait, one is ours", func() bool {
				e, ok := v.Engine("a")
				return ok && e.Running == 2 && e.Waiting == 3 && queued(t, v, "a") == 4
			})
			if e, _ := v.Engine("a"); e.Dialect == noDialect || d != vllmtest.TGI && !(e.KVUsage > 0) || e.Asleep {
				t.Errorf("%+v", e)
			}
		})
	}
}

// The page is of an instant between the scrape's sending and its reply: whatever
// of ours was in flight at any instant between is not counted twice.
func TestOwnIsNotCountedTwice(t *testing.T) {
	e := newEngine(t)
	v := newView(t, fast(), 0)
	hold, asked := make(chan struct{}), make(chan struct{}, 100)
	e.answer(func(http.ResponseWriter, *http.Request) bool { asked <- struct{}{}; <-hold; return false })
	set(t, v, Member{ID: "a", Metrics: e.URL})
	first := []router.Flight{send(t, v, "a"), send(t, v, "a")}
	run(t, v)
	<-asked
	// The scrape is under way: two end, three begin, one of these ends.
	for _, f := range first {
		f.Done(ok)
	}
	later := []router.Flight{send(t, v, "a"), send(t, v, "a"), send(t, v, "a")}
	later[0].Done(ok)
	e.running.Store(7)
	close(hold)
	eventually(t, "the scrape ends", func() bool { return status(t, v, "a").QueuedKnown })
	// At most three of ours were there at one time. (A next scrape sees two.)
	if q := queued(t, v, "a"); q != 4 && q != 5 {
		t.Errorf("%d queued", q)
	}
	e.scraped(t)
	eventually(t, "the next one", func() bool { return queued(t, v, "a") == 5 })
	e.running.Store(1) // the engine has not seen all of ours yet
	e.scraped(t)
	eventually(t, "never below 0", func() bool { return queued(t, v, "a") == 0 })
	for _, f := range later {
		f.Done(ok)
	}
}

func TestScrapeFailures(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	text := func(s string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, s); return true }
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"500": {status(500), "status 500"},
		"401": {status(401), "status 401"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
			return true
		}, "redirects are not followed"},
		"no metrics": {text("python_info 1\n"), "neither"},
		"NaN":        {text("vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n"), "not a number"},
		"garbage":    {text("vllm:num_requests_running{{{ 1\n"), "text format parsing error"},
		"endless": {func(w http.ResponseWriter, r *http.Request) bool {
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat("# nothing\n", 1000))); err != nil {
					return true
				}
			}
			return true
		}, "MaxBody"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n")
			return true
		}, "EOF"},
		"hang": {func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, other := newEngine(t), newEngine(t)
			e.running.Store(9)
			other.running.Store(4)
			cfg := fast()
			cfg.Scrape.StaleAfter, cfg.Scrape.MaxBody = time.Second, 64<<10
			cfg.Scrape.Timeout = 10 * time.Second
			if name == "hang" {
				cfg.Scrape.Timeout = 500 * time.Millisecond
			}
			changes := make(chan error, 100)
			cfg.Trace.ScrapeChanged = func(id string, err error) { changes <- err }
			v := newView(t, cfg, 0)
			set(t, v, Member{ID: "a", Metrics: e.URL}, Member{ID: "b", Metrics: other.URL})
			run(t, v)
			eventually(t, "both are known", func() bool { return queued(t, v, "a") == 9 && queued(t, v, "b") == 4 })
			e.answer(c.answer)
			err := <-changes
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if got := stateOf(v, "a").ScrapeError; got == nil || !strings.Contains(got.Error(), c.want) {
				t.Errorf("Snapshot has %v", got)
			}
			eventually(t, "unknown: the mean of the others", func() bool {
				s := stateOf(v, "a")
				e, fresh := v.Engine("a") // a page with a NaN may say something else
				return !s.QueuedKnown && s.Target.Load.Queued == 4 && (!fresh || e.Running == -1)
			})
			if _, _, err := v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
				if ts[0].Load.Queued != 4 || ts[1].Load.Queued != 4 {
					t.Errorf("offered %+v", ts)
				}
				return router.Decision{}, errLook
			}); err != errLook {
				t.Error(err)
			}
			e.answer(nil)
			eventually(t, "known again", func() bool { return queued(t, v, "a") == 9 })
			if err := <-changes; err != nil || stateOf(v, "a").ScrapeError != nil {
				t.Errorf("it is well again: %v", err)
			}
			if n := len(changes); n > 0 {
				t.Errorf("%d more changes were told", n)
			}
		})
	}
}

func stateOf(v *View, id string) Status {
	for _, s := range v.Snapshot() {
		if s.Target.ID == id {
			return s
		}
	}
	return Status{}
}

// What a page said stands until the stated age, to the instant.
func TestStaleAge(t *testing.T) {
	now := time.Unix(1000, 0)
	v, err := New(Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	set(t, v, Member{ID: "a", Metrics: "http://a/metrics"}, Member{ID: "b"}, Member{ID: "c"})
	if err := v.SetQueued("b", 2); err != nil {
		t.Fatal(err)
	}
	report := func(n int) {
		p := page{Engine: Engine{Dialect: VLLM, Running: n}}
		if !v.report(v.byID["a"].source, &p, nil) {
			t.Fatal("not taken")
		}
	}
	look := func() (qs []int) {
		var snap []int
		for _, s := range v.Snapshot() { // before the Choose: it does not wait for one
			snap = append(snap, s.Target.Load.Queued)
		}
		_, _, _ = v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
			for _, x := range ts {
				qs = append(qs, x.Load.Queued)
			}
			return router.Decision{}, errLook
		})
		if diff := cmp.Diff(qs, snap); diff != "" {
			t.Errorf("Snapshot is not what is offered (-offered +Snapshot):\n%s", diff)
		}
		return qs
	}
	report(8)
	want := func(want ...int) {
		t.Helper()
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want(8, 2, 5)
	now = now.Add(15*time.Second - 1) // three intervals of 5 s
	want(8, 2, 5)
	if e, ok := v.Engine("a"); !ok || e.Age != 15*time.Second-1 {
		t.Errorf("%+v, %v", e, ok)
	}
	now = now.Add(1)
	want(2, 2, 2)
	if _, ok := v.Engine("a"); ok {
		t.Error("a stale page is known")
	}
	report(4)
	want(4, 2, 3)
	set(t, v, Member{ID: "a"}, Member{ID: "b"}, Member{ID: "c"}) // nobody scrapes it any more
	want(2, 2, 2)
	if _, ok := v.Engine("nobody"); ok {
		t.Error("nobody is known")
	}
}

func TestRestarts(t *testing.T) {
	e := newEngine(t)
	var forgot atomic.Int64
	cfg := fast()
	cfg.Trace.Forget = func(id string) {
		if id == "a" {
			forgot.Add(1)
		}
	}
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: "a", Metrics: e.URL})
	run(t, v)
	e.scraped(t)
	for i := range 3 {
		if n := forgot.Load(); n != int64(i) {
			t.Errorf("forgot %d times after %d restarts", n, i)
		}
		e.start.Add(100)
		eventually(t, "it is told", func() bool { return forgot.Load() > int64(i) })
		e.scraped(t)
	}
	// Two servers under one address answer by turns: one new start, no more.
	var n atomic.Int64
	e.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\n", 1300+n.Add(1)%2)
		return true
	})
	for range 4 {
		e.scraped(t)
	}
	if got := forgot.Load(); got != 4 {
		t.Errorf("forgot %d times, want 4", got)
	}
}

// Pages without a start time: a counter tells, after a time away.
func TestRestartByCounter(t *testing.T) {
	h := &history{count: -1}
	read := func(n float64) *page { return &page{start: -1, count: n} }
	step := func(p *page, failedBefore, want bool) {
		t.Helper()
		h.failed = failedBefore
		if got := h.restarted(p); got != want {
			t.Errorf("count %v: %v", p.count, got)
		}
	}
	step(read(5), false, false)
	step(read(7), true, false)
	step(read(3), false, false) // two servers under one address
	step(read(1), true, true)
	step(read(-1), true, true) // not there before its first request
	step(read(-1), true, false)
	step(read(2), true, false)
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
	for _, want := range []string{`Metrics of member "a"`, `Health of member "b"`, `Metrics of member "c"`, `Health of member "d"`, "link-local"} {
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
	v.cfg.Egress = egress.Policy{} // as if the name had meant something else then
	set(t, v, Member{ID: "a", Metrics: "http://localhost:" + port})
	v.cfg.Egress = cfg.Egress
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
		if err == nil || !strings.Contains(err.Error(), "Config."+field+":") {
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
