package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/workload"
)

func small() *workload.Workload {
	return workload.Chat(workload.ChatConfig{Conversations: 10, Systems: 2})
}

// TestEngines checks that replies are those that the load generator and its judge
// take, in one write and event by event.
func TestEngines(t *testing.T) {
	w := small()
	if w.Model != model {
		t.Errorf("requests are for %q, routers are told of %q", w.Model, model)
	}
	f := new(fleet)
	e := httptest.NewServer(f.handler(3))
	defer e.Close()
	for seq, gap := range []time.Duration{0, 5 * time.Millisecond} {
		if err := setMode(e.URL, 5*time.Millisecond, gap); err != nil {
			t.Fatal(err)
		}
		sender := loadgen.NewClient(e.URL, w)
		defer sender.Close()
		start := time.Now()
		r, err := sender.Send(t.Context(), w.Requests[0])
		if err != nil {
			t.Fatal(err)
		}
		if r.Engine != 3 || r.Seq != uint64(seq+1) {
			t.Errorf("engine %d, order %d, want 3 and %d", r.Engine, r.Seq, seq+1)
		}
		if took := time.Since(start); took < 5*time.Millisecond+events*gap {
			t.Errorf("gap %v: the reply took %v", gap, took)
		}
	}
	c := newClient(e.URL, true)
	defer c.close()
	r, err := c.send(t.Context(), w.AppendBody(nil, w.Requests[0], true))
	if err != nil || r.silence < 5*time.Millisecond || r.took < r.silence {
		t.Errorf("by events: %+v, %v", r, err)
	}
	if err := setMode(e.URL+"/elsewhere", 0, 0); err == nil {
		t.Error("a mode was set where there is no engine")
	}
}

// TestServeEngines runs engines until their input ends.
func TestServeEngines(t *testing.T) {
	in, hold := io.Pipe()
	lines, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serveEngines(2, in, out)
		out.Close()
	}()
	buf := make([]byte, 200)
	n, err := lines.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	urls := strings.Fields(string(buf[:n]))
	if len(urls) != 2 || setMode(urls[1], 0, 0) != nil {
		t.Errorf("engines %q", urls)
	}
	hold.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClientRefuses(t *testing.T) {
	f := new(fleet)
	e := httptest.NewServer(f.handler(0))
	defer e.Close()
	c := newClient(e.URL+"/no", false)
	defer c.close()
	if r, err := c.send(t.Context(), []byte("{}")); err == nil {
		t.Errorf("took a 404 for a reply: %+v", r)
	}
}

func TestRolterConfig(t *testing.T) {
	got, err := rolterConfig("127.0.0.1:4000", "cache_aware", []string{"http://127.0.0.1:1", "http://127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	want := `[server]
host = "127.0.0.1"
port = 4000
[[providers]]
name = "engine-0"
kind = "openai_compatible"
api_base = "http://127.0.0.1:1"
[[providers]]
name = "engine-1"
kind = "openai_compatible"
api_base = "http://127.0.0.1:2"
[[routes]]
model = "bench"
strategy = "cache_aware"
[[routes.targets]]
provider = "engine-0"
[[routes.targets]]
provider = "engine-1"
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := rolterConfig("nowhere", "", nil); err == nil {
		t.Error("an address without a port")
	}
}

// TestCommands holds every listener of every router to the loopback interface.
func TestCommands(t *testing.T) {
	e := &environment{bin: "/venv/bin", missing: map[string]error{"smg": errors.New("no wheel for this machine")}}
	const addr = "127.0.0.1:4000"
	broken := 0
	for _, p := range routers(e, "/built") {
		if p.broken != nil {
			broken++
		}
		dir := t.TempDir()
		argv, _, err := p.command(addr, []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, dir)
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		all := strings.Join(argv, " ")
		if config, err := os.ReadFile(filepath.Join(dir, "rolter.toml")); err == nil {
			all += string(config)
		}
		hosts := []string{addr}
		for i, a := range argv {
			if strings.HasSuffix(a, "-host") {
				hosts = append(hosts, argv[i+1]+":")
			}
		}
		for _, h := range hosts {
			if !strings.HasPrefix(h, "127.0.0.1:") {
				t.Errorf("%s listens on %s", p.name, h)
			}
		}
		if !strings.Contains(all, "4000") || !strings.Contains(all, "http://127.0.0.1:1") ||
			!strings.Contains(all, "http://127.0.0.1:2") {
			t.Errorf("%s is not told all: %s", p.name, all)
		}
	}
	if broken != 2 {
		t.Errorf("%d routers cannot start, want the two of the wheel that is missing", broken)
	}
}

func TestFindPython(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := findPython(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "PEERS_PYTHON") {
		t.Errorf("without Python: %v", err)
	}
	script := func(name, says string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+says+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old := script("old", "Python 3.1")
	if _, err := findPython(t.Context(), old); err == nil || !strings.Contains(err.Error(), "Python 3.1") {
		t.Errorf("another Python: %v", err)
	}
	right := script("python3.11", "Python 3.11.9")
	if got, err := findPython(t.Context(), ""); err != nil || got != right {
		t.Errorf("%s, %v, want %s", got, err, right)
	}
}

func TestParseStat(t *testing.T) {
	group, cpu, err := parseStat([]byte("12 (a) R 1 b) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 20 3 20 0 1 0 9 9"))
	if err != nil || group != 77 || cpu != 2230*time.Millisecond {
		t.Errorf("group %d, %v, %v, want 77 and 2.23s", group, cpu, err)
	}
	for _, s := range []string{"", "12 (a) S 1", "12 (a) S 1 x 77 0 -1 4194560 1 2 3 4 150 50 20 3",
		"12 (a) S 1 7 77 0 -1 4194560 1 2 3 4 150 x 20 3"} {
		if _, _, err := parseStat([]byte(s)); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestTables(t *testing.T) {
	run := func(round int, rate, share float64) figures {
		f := figures{round: round}
		for i := range f.values {
			f.values[i] = math.NaN()
		}
		f.values[mRate16], f.values[mCached] = rate, share
		return f
	}
	all := []peer{{name: "ours", version: "1"}, {name: "theirs", version: "2"}, {name: "no", broken: errors.New("no")}}
	results := []result{
		{runs: []figures{run(0, 100, .5), run(1, 200, .5), run(2, 400, .5)}},
		{runs: []figures{run(2, 200, math.NaN()), run(0, 300, .25)}}, // failed in round 1
		{},
	}
	var b bytes.Buffer
	printTables(&b, all, results)
	var got []string
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "requests/s, 16") || strings.Contains(line, "cached bytes") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	want := []string{
		"| requests/s, 16 clients | 200 | 250 | - |",
		"| cached bytes, share | 0.500 | 0.250 | - |",
		"| requests/s, 16 clients | 1.00 | 1.75 | - |", // of 200/400 and 300/100
		"| requests/s, 16 clients | 100 to 400 | 200 to 300 | - |",
		"| cached bytes, share | 0.500 to 0.500 | 0.250 to 0.250 | - |",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAwaitTellsWhy(t *testing.T) {
	p, err := startProcess([]string{"/bin/sh", "-c", "echo no such flag >&2; exit 3"}, nil, t.TempDir())
	if err != nil {
		t.Skip("no shell: ", err)
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = p.await(ctx, "http://127.0.0.1:1/health", "")
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
}
