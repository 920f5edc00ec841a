package loadgen_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/internal/workload"
)

// TestMain lets the test binary be a process of engines: see TestProcess.
func TestMain(m *testing.M) {
	if os.Getenv("LOADGEN_TEST_ENGINES") != "" {
		if err := loadgen.ServeEngines(2, loadgen.EngineConfig{}, os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func small() *workload.Workload {
	return workload.Chat(workload.ChatConfig{Conversations: 30, Systems: 3})
}

// TestClientThroughProxy drives engines through a proxy that goes round them.
func TestClientThroughProxy(t *testing.T) {
	engines, err := loadgen.StartEngines(3, loadgen.EngineConfig{Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	var turn atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			u, err := url.Parse(engines.URLs[turn.Add(1)%3])
			if err != nil {
				t.Error(err)
			}
			r.SetURL(u)
		},
	})
	defer proxy.Close()

	w := small()
	client := loadgen.NewClient(proxy.URL, w)
	defer client.Close()
	sent, err := loadgen.Run(t.Context(), w.Requests, 8, client.Send)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for _, s := range sent {
		if s.Took < time.Millisecond || s.First <= 0 || s.First > s.Took {
			t.Errorf("took %v, first byte after %v, of a delay of 1 ms", s.Took, s.First)
		}
		if s.Seq < 1 || s.Seq > uint64(len(sent)) || seen[s.Seq] {
			t.Errorf("order of receipt %d of %d, or twice", s.Seq, len(sent))
		}
		seen[s.Seq] = true
	}
	v := loadgen.Judge(w, sent, 3)
	if v.MaxOverMean > 1.02 {
		t.Errorf("requests %v, sent round robin", v.Requests)
	}
	if v.Cached >= v.Ideal || v.Cached < v.Ideal/2 {
		t.Errorf("round robin: cached %v of ideal %v", v.Cached, v.Ideal)
	}
}

func TestClientRefuses(t *testing.T) {
	w := small()
	for name, h := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `"bench-0-1"`, http.StatusServiceUnavailable)
		},
		"not ours": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data: [DONE]\n\n") },
		"cut":      func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `data: {"id":"bench-0-1"}`) },
		"a bad id": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\"bench-x-1\" data: [DONE]\n\n") },
		"aborted":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"aborted late": func(w http.ResponseWriter,
			_ *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			client := loadgen.NewClient(s.URL, w)
			defer client.Close()
			if reply, err := client.Send(t.Context(), w.Requests[0]); err == nil {
				t.Errorf("took %+v for a reply", reply)
			}
		})
	}
}

// TestEngine checks what an engine answers to a plain request and to paths that
// routers probe.
func TestEngine(t *testing.T) {
	engines, err := loadgen.StartEngines(1, loadgen.EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	w := small()
	resp, err := http.Post(engines.URLs[0]+"/v1/chat/completions", "application/json",
		strings.NewReader(string(w.AppendBody(nil, w.Requests[0], false))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), `"message":{"role":"assistant"`) ||
		strings.Contains(string(b), "data:") {
		t.Errorf("%s, %v", b, err)
	}
	for _, path := range []string{"/health", "/v1/models", "/metrics"} {
		resp, err := http.Get(engines.URLs[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// TestProcess starts engines as a process, drives one of them and ends it.
func TestProcess(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOADGEN_TEST_ENGINES", "1")
	p, urls, err := loadgen.StartEnginesProcess(2, exe)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Await(ctx, urls[1]+"/health"); err != nil {
		t.Fatal(err)
	}
	w := small()
	client := loadgen.NewClient(urls[1], w)
	defer client.Close()
	sent, err := loadgen.Run(ctx, w.Requests, 4, client.Send)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sent {
		if s.Engine != 1 {
			t.Fatalf("engine %d answered for engine 1", s.Engine)
		}
	}
	// Elsewhere than on Linux there is nothing to read, which must be an error.
	if _, statErr := os.Stat("/proc/self/stat"); statErr == nil {
		cpu, err := p.CPU()
		if err != nil || cpu < 0 || cpu > time.Minute {
			t.Errorf("CPU %v, %v", cpu, err)
		}
		rss, err := p.RSS()
		if err != nil || rss < 1<<20 || rss > 1<<33 {
			t.Errorf("RSS %d, %v", rss, err)
		}
	} else if _, err := p.CPU(); err == nil {
		t.Error("CPU without /proc")
	}
	p.Stop()
	if _, err := http.Get(urls[0] + "/health"); err == nil {
		t.Error("an engine answers after Stop")
	}
}

// TestAwaitTellsWhy holds the error to say what the program said.
func TestAwaitTellsWhy(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	p, err := loadgen.Start(sh, "-c", "echo no such flag >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	addr, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Await(ctx, "http://"+addr); err == nil || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error %v", err)
	}
}

// TestStopLeavesChildrenBehind: a program with a child that keeps its standard
// error open is stopped all the same.
func TestStopLeavesChildrenBehind(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	p, err := loadgen.Start(sh, "-c", "sleep 20 & wait")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p.Stop()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
