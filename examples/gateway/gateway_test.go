package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/roundrobin"
)

// rig is a gateway under test in front of some upstreams.
type rig struct {
	url  string
	view *loadview.View
	h    *Handler
	http *http.Client

	mu       sync.Mutex
	outcomes []router.Outcome
	prompts  []router.Prompt
}

type rigConfig struct {
	Config
	strategy string // round_robin where empty
	options  router.Options
	view     loadview.Config

	events    kvEvents // for each upstream: precise_cache_aware
	mode      string   // of tokens; tokensHeader where empty
	precisely precisecacheaware.Config
}

func newRig(t *testing.T, c rigConfig, upstreams ...string) *rig {
	t.Helper()
	leakCheck(t)
	g := &rig{}
	var ms []loadview.Member
	for _, u := range upstreams {
		m, err := parseTarget(u)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	if c.strategy == "" {
		c.strategy = roundrobin.Name
	}
	c.options.Trace = &router.Trace{Done: func(_ context.Context, d router.Decision, o router.Outcome) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.outcomes = append(g.outcomes, o)
		g.prompts = append(g.prompts, d.Prompt)
	}}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	chosen := choice{strategy: c.strategy}
	if c.events != nil {
		chosen.strategy = precisecacheaware.Name
		if c.mode != "" {
			c.precisely.Fallback = precisecacheaware.FallbackText
		}
		p, err := newPrecise(c.precisely, targets(ms).ids(), c.events, "", c.Log)
		if err != nil {
			t.Fatal(err)
		}
		chosen.precise, c.precise = p, p
	}
	r, v, err := newRouter(chosen, ms, c.view, c.options)
	if err != nil {
		t.Fatal(err)
	}
	if c.mode != "" {
		if c.tokens, err = newTokenSource(c.mode, 0, v, c.Log); err != nil {
			t.Fatal(err)
		}
		c.tokens.watch(c.precise)
		t.Cleanup(c.tokens.close)
	}
	if c.precise != nil {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.precise.run(ctx)
		}()
		t.Cleanup(func() { stop(); <-ended })
	}
	c.Router, g.view = r, v
	if c.Transport == nil {
		tr := NewTransport()
		t.Cleanup(tr.CloseIdleConnections)
		c.Transport = tr
	}
	if g.h, err = NewHandler(c.Config); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(g.h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.Config.MaxHeaderBytes = 64 << 10
	srv.Start()
	t.Cleanup(srv.Close)
	g.url, g.http = srv.URL, srv.Client()
	return g
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// settled waits until nothing is in flight and fails where that takes too long.
func (g *rig) settled(t *testing.T) {
	t.Helper()
	eventually(t, "all counts are 0", func() bool {
		for _, s := range g.view.Snapshot() {
			if l := s.Target.Load; l.InFlight != 0 || l.Prefill != 0 {
				return false
			}
		}
		if s := g.h.cfg.tokens; s != nil && s.reading.Load() != 0 {
			return false
		}
		return g.h.Active() == 0 && g.h.bodies.used.Load() == 0
	})
}

// ended returns how the requests ended, in order.
func (g *rig) ended() []router.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]router.Outcome(nil), g.outcomes...)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// leakCheck fails the test where, after its cleanups, there are more goroutines
// than before. It is called before anything else is started.
func leakCheck(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if runtime.NumGoroutine() <= before {
				return
			}
			if time.Now().After(deadline) {
				buf := make([]byte, 64<<10)
				t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// upstream starts a server of the test's own.
func upstream(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

const (
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`
)

func (g *rig) post(t *testing.T, path, body string) *http.Response {
	t.Helper()
	resp, err := g.http.Post(g.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// event writes one server-sent event and flushes it.
func event(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: "+data+"\n\n")
	w.(http.Flusher).Flush()
}

// nextData returns the data of the next event.
func nextData(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			return data
		}
	}
}
