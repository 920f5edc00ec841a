package loadview

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview/enginepage"
	"github.com/warmroute/router/vllmtest"
)

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
			if e, _ := v.Engine("a"); e.Dialect == "" || d != vllmtest.TGI && !(e.KVUsage > 0) || e.Asleep {
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
		"garbage":    {text("vllm:num_requests_running{{{ 1\n"), "vllm:num_requests_running: a label has no name"},
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
		"hang": {func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, "timed out"},
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
		p := page{State: enginepage.State{Dialect: enginepage.VLLM, Running: n}}
		v.report(v.byID["a"].source, p, nil)
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
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\n",
			1300+n.Add(1)%2)
		return true
	})
	for range 4 {
		e.scraped(t)
	}
	if got := forgot.Load(); got != 4 {
		t.Errorf("forgot %d times, want 4", got)
	}
}

// Pages without a start time: a counter shows it, after a time away.
func TestRestartByCounter(t *testing.T) {
	h := &history{}
	read := func(n float64) *page { return &page{State: enginepage.State{Start: -1, Total: n}} }
	step := func(p *page, failedBefore, want bool) {
		t.Helper()
		h.failed = failedBefore
		if got := h.restarted(p); got != want {
			t.Errorf("count %v: %v", p.Total, got)
		}
	}
	step(read(5), false, false)
	step(read(7), true, false)
	step(read(3), false, true) // a restart, or a second server under the address
	step(read(8), false, false)
	step(read(3), false, false) // both
	step(read(9), false, false)
	step(read(4), true, false)
	step(read(1), true, true)
	step(read(-1), false, false)
	step(read(-1), true, true) // not there before its first request
	step(read(-1), true, false)
	step(read(2), true, false)
}
