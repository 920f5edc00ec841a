package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex"
)

// engines is a subscriber to engines that hold one prompt's blocks each.
type engines struct {
	mu      sync.Mutex
	running map[string]int // endpoints
	fail    map[string]bool
	holds   map[string][]uint32 // by endpoint
}

type engine struct {
	*engines
	s Subscription
}

func (e *engines) subscribe(s Subscription) (Runner, error) { return engine{e, s}, nil }

func (e engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.running[e.s.Endpoint]++
	tokens, fail := e.holds[e.s.Endpoint], e.fail[e.s.Endpoint]
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.running[e.s.Endpoint]--
	}()
	if fail {
		return errors.New("no such engine")
	}
	var b kvindex.Batch
	if n := len(tokens) / 16; n > 0 {
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = uint64(i + 1)
		}
		b.Events = []kvindex.Event{{Kind: kvindex.Stored, Group: -1, BlockSize: 16, Hashes: hashes, Tokens: tokens[:n*16]}}
	}
	if err := e.s.Index.Apply(e.s.ID, 0, b); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (e *engines) live() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ends []string
	for end, n := range e.running {
		if n == 1 {
			ends = append(ends, end)
		} else if n != 0 {
			ends = append(ends, fmt.Sprint(end, " times ", n))
		}
	}
	slices.Sort(ends)
	return ends
}

func tokens(n int, seed uint32) []uint32 {
	ts := make([]uint32, n)
	for i := range ts {
		ts[i] = seed*1000 + uint32(i)
	}
	return ts
}

// Subscriptions come and go with the file, and the blocks that they reported with them.
func TestSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engines{running: make(map[string]int), fail: map[string]bool{"tcp://bad:5557": true},
			holds: map[string][]uint32{
				"tcp://a:5557": tokens(64, 1), "tcp://b:5558": tokens(64, 2),
			}}
		o := options()
		o.Subscribe = e.subscribe
		file := func(parts ...string) string {
			s, targets := "", ""
			for _, p := range parts {
				name, end, _ := strings.Cut(p, "=")
				ranks := 1 + strings.Count(name, "+")
				name = strings.TrimRight(name, "+")
				s += fmt.Sprintf("[[providers]]\nname=%q\napi_base='http://%s'\nranks=%d\n[providers.kv_events]\nendpoint=%q\n",
					name, name, ranks, end)
				targets += fmt.Sprintf("{provider=%q},", name)
			}
			return s + "[[routes]]\nmodel='m'\nstrategy='precise_cache_aware'\ntargets=[" + targets + "]\n"
		}
		g := mustBuild(t, file("a=tcp://a:5557", "b+=tcp://b:5557"), o)
		if len(e.live()) != 0 {
			t.Error("Build subscribed")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if err := g.Run(ctx); err == nil {
			t.Error("Run runs twice")
		}
		if d := cmp.Diff([]string{"tcp://a:5557", "tcp://b:5557", "tcp://b:5558"}, e.live()); d != "" {
			t.Error(d)
		}
		at := func(seed uint32) string {
			l, _ := mustRoute(t, g, "m", router.Prompt{Tokens: tokens(64, seed)})
			l.Done(router.Outcome{Stage: router.Failed, Status: 400}) // teaches nothing
			return fmt.Sprint(l.Decision().Target.ID, " ", l.Decision().Cached)
		}
		for range 4 {
			if got := []string{at(1), at(2)}; got[0] != "a 48" || got[1] != "b/1 48" {
				t.Error(got)
			}
		}
		index := g.Index()
		reload(t, g, file("a=tcp://elsewhere:5557", "c=tcp://c:5557", "b+=tcp://b:5557"))
		synctest.Wait()
		if d := cmp.Diff([]string{"tcp://b:5557", "tcp://b:5558", "tcp://c:5557", "tcp://elsewhere:5557"},
			e.live()); d != "" {
			t.Error(d)
		}
		if got := at(2); got != "b/1 48" || g.Index() != index {
			t.Error(got)
		}
		if got := index.Match(router.Prompt{Tokens: tokens(64, 1)}, []string{"a"}, nil); got[0] != 0 {
			t.Errorf("a holds %d after it had moved", got[0])
		}
		reload(t, g, file("c=tcp://c:5557", "bad=tcp://bad:5557"))
		time.Sleep(10 * time.Minute) // bad fails again and again, and holds up nobody
		synctest.Wait()
		if d := cmp.Diff([]string{"tcp://c:5557"}, e.live()); d != "" {
			t.Error(d)
		}
		if _, known := index.Target("b/1"); known {
			t.Error("b/1 is in the index still")
		}
		cancel()
		<-done
		if len(e.live()) != 0 {
			t.Errorf("%v outlived Run", e.live())
		}
		// Run can run again.
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if d := cmp.Diff([]string{"tcp://c:5557"}, e.live()); d != "" {
			t.Error(d)
		}
		cancel()
		<-done
	})
}

// One file, and the work of Run over real sockets: scrapes, probes and polls, each
// with its headers.
func TestRunReadsTheEngines(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]http.Header)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path] = r.Header.Clone()
		mu.Unlock()
		switch r.URL.Path {
		case "/a/m":
			_, _ = io.WriteString(w,
				"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 7\n# TYPE "+
					"vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\"} 2\n")
		case "/full":
			_, _ = io.WriteString(w, `{"occupancy": 0.9}`)
		case "/free":
			_, _ = io.WriteString(w, `{"occupancy": 0.1}`)
		case "/b/h":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	text := strings.ReplaceAll(`
[metrics_scrape]
enabled = true
path = "/m"
[health_probe]
enabled = true
path = "/h"
failures = 1
interval_secs = 0.1
[[providers]]
name = "a"
api_base = "URL/a/v1"
api_key_env = "KEY"
[providers.lmcache]
endpoint = "URL/full"
headers_env = { "X-LM" = "LMC" }
[[providers]]
name = "b"
api_base = "URL/b"
[providers.lmcache]
endpoint = "URL/free"
[[providers]]
name = "c"
api_base = "URL/c"
[[routes]]
model = "m"
strategy = "lmcache_aware"
targets = [{ provider = "a" }, { provider = "b" }, { provider = "c" }]
`, "URL", s.URL)
	g := mustBuild(t, text, options())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	defer func() { cancel(); <-done }()
	waitFor(t, func() bool {
		st := make(map[string]router.Target)
		for _, s := range g.View().Snapshot() {
			st[s.Target.ID] = s.Target
		}
		return st["a"].Load.Queued == 9 && st["b"].State == router.Unhealthy && st["c"].State == router.Ready &&
			!g.LMCache().Status("a").State.Neutral() && !g.LMCache().Status("b").State.Neutral()
	})
	if free := g.LMCache().Status("b").Free; free < 0.89 || free > 0.91 {
		t.Errorf("b has %v free", free)
	}
	mu.Lock()
	defer mu.Unlock()
	for path, want := range map[string][2]string{"/a/m": {"Bearer sk-1", ""}, "/a/h": {"Bearer sk-1", ""},
		"/full": {"", "lm"}, "/free": {"", ""}} {
		if h := asked[path]; h.Get("Authorization") != want[0] || h.Get("X-LM") != want[1] {
			t.Errorf("%s was asked with %v; all: %v", path, h, slices.Collect(maps.Keys(asked)))
		}
	}
}

// The page of ranks behind one address is read once for all, and each takes its own part.
func TestRunReadsTheRanks(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w,
			"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} "+
				"7\nvllm:num_requests_running{engine=\"1\"} 3\n"+
				"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\"} "+
				"2\nvllm:num_requests_waiting{engine=\"1\"} 0\n")
	}))
	defer s.Close()
	g := mustBuild(t, `
[metrics_scrape]
enabled = true
[[providers]]
name = "a"
ranks = 2
api_base = "`+s.URL+`"
[[routes]]
model = "m"
targets = [{ provider = "a" }]
`, options())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	defer func() { cancel(); <-done }()
	waitFor(t, func() bool {
		queued := make(map[string]int)
		for _, s := range g.View().Snapshot() {
			queued[s.Target.ID] = s.Target.Load.Queued
		}
		return queued["a/0"] == 9 && queued["a/1"] == 3
	})
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that in a minute")
		}
	}
}

// Watch sees a file that is written, renamed over and swapped behind a link, as a
// ConfigMap is; a bad one and one that is gone are reported once.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("one/router.toml", fileOf("random", "", "a"))
	write("two/router.toml", fileOf("random", "", "a", "b"))
	link("one")
	if err := os.Symlink("data/router.toml", filepath.Join(dir, "router.toml")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "router.toml")
	told := make(chan error, 100)
	o := options()
	o.Reloaded = func(_ *file.File, err error) { told <- err }
	f, err := Load(path, o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Build(f, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Watch(ctx, path, 2*time.Millisecond) }()
	expect := func(what string, ok bool, members int) {
		t.Helper()
		select {
		case err := <-told:
			if (err == nil) != ok || len(g.File().Providers) != members {
				t.Errorf("%s: %v, %d providers", what, err, len(g.File().Providers))
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was not seen", what)
		}
	}
	link("two")
	expect("a swapped link", true, 2)
	write("new", fileOf("random", "", "a", "b", "c"))
	if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
		t.Fatal(err)
	}
	expect("a rename", true, 3)
	write("bad", "oops")
	if err := os.Rename(filepath.Join(dir, "bad"), path); err != nil {
		t.Fatal(err)
	}
	expect("a bad file", false, 3)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("a file that is gone", false, 3)
	write("new", fileOf("random", "", "a"))
	if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
		t.Fatal(err)
	}
	expect("a file that is back", true, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case err := <-told:
		t.Errorf("one more: %v", err)
	default:
	}
}

// Watch puts back a file that was in place before another one, which somebody else
// had put in place before Watch was sure of it.
func TestWatchSeesAFileAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "router.toml")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		one, two := fileOf("random", "", "a"), fileOf("random", "", "a", "b")
		write(one)
		o := options()
		told := 0
		o.Reloaded = func(*file.File, error) { told++ }
		f, err := Load(path, o)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Build(f, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = g.Watch(ctx, path, time.Second) }()
		time.Sleep(500 * time.Millisecond)
		write(two)
		if err := g.ReloadFile(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // seen once
		write(one)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(g.File().Providers); n != 1 || told != 2 {
			t.Errorf("%d providers, told %d times", n, told)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if told != 2 {
			t.Errorf("told %d times", told)
		}
	})
}
