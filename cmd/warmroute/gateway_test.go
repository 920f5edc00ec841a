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
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/roundrobin"
)

// rig is a gateway under test in front of some upstreams.
type rig struct {
	url     string
	service *service
	options config.Options
	view    *loadview.View
	h       *Handler
	http    *http.Client

	mu       sync.Mutex
	outcomes []router.Outcome
	prompts  []router.Prompt
}

type rigConfig struct {
	Config
	strategy string // round_robin where empty
	options  router.Options
	health   string // the table [health]
	settings string // what comes after all else in the file, in the route

	events kvEvents // for each upstream: precise_cache_aware
	mode   string   // of tokens; header where empty
	memory int64    // max_memory; 0: the default
}

// flags returns the flags that stand for c.
func (c rigConfig) flags(t *testing.T, upstreams []string) *fleetFlags {
	t.Helper()
	f := &fleetFlags{strategy: c.strategy, failover: c.options, events: c.events, tokens: c.mode, maxMemory: c.memory}
	for _, u := range upstreams {
		if err := f.targets.Set(u); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case c.events != nil:
		f.strategy = precisecacheaware.Name
	case c.strategy == "":
		f.strategy = roundrobin.Name
	}
	return f
}

func newRig(t *testing.T, c rigConfig, upstreams ...string) *rig {
	t.Helper()
	leakCheck(t)
	file := c.flags(t, upstreams).file()
	if c.health != "" {
		file = "[health]\n" + c.health + "\n" + file
	}
	return serveFile(t, c.Config, file+c.settings)
}

// serveFile starts a gateway with a file's contents.
func serveFile(t *testing.T, c Config, file string) *rig {
	t.Helper()
	g := &rig{}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c.service = must(newService(c.Log))
	o := c.service.options()
	o.Trace = func(string) router.Trace {
		return router.Trace{Done: func(_ context.Context, d router.Decision, o router.Outcome) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.outcomes = append(g.outcomes, o)
			g.prompts = append(g.prompts, d.Prompt)
		}}
	}
	f, err := config.Parse([]byte(file), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if err := c.service.build(f, o); err != nil {
		t.Fatal(err)
	}
	g.options = o
	t.Cleanup(c.service.close)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.service.run(ctx, "", 0, nil)
	}()
	t.Cleanup(func() { stop(); <-ended })
	g.service, g.view = c.service, c.service.gateway.View()
	if c.Transport == nil {
		tr := NewTransport(f.Policy)
		t.Cleanup(tr.CloseIdleConnections)
		c.Transport = tr
	}
	if g.h, err = NewHandler(c); err != nil {
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

// tokens returns the only route's token source.
func (g *rig) tokens() *tokenSource { return g.service.state("*").tokens }

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
		for _, st := range *g.service.routes.Load() {
			if st.tokens != nil && st.tokens.reading.Load() != 0 {
				return false
			}
		}
		return g.h.Active() == 0 && g.h.bodies.Used() == 0
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
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

var checked sync.Map // the tests with a leakCheck

// leakCheck fails the test where, after its cleanups, there are more goroutines
// than before. It is called before anything else is started; a further call in the same
// test does nothing, because the gateways before it may still start goroutines.
func leakCheck(t *testing.T) {
	t.Helper()
	if _, again := checked.LoadOrStore(t, true); again {
		return
	}
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		checked.Delete(t)
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

// must returns v; a test that needs it ends with a panic if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
