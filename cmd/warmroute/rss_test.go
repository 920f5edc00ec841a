package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/zmtp"
)

// childArgs has the arguments of a gateway that the test binary is to be, in a process of its own.
const childArgs = "WARMROUTE_TEST_ARGS"

// TestChild is not a test: it is the gateway of TestMemoryOfProcess, which ends with its standard input.
func TestChild(t *testing.T) {
	var args []string
	if json.Unmarshal([]byte(os.Getenv(childArgs)), &args) != nil {
		t.Skip("only for TestMemoryOfProcess, which starts it")
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := run(ctx, args, os.Stdout, os.Stderr); err != nil {
		t.Log(err) // requests were cut off
	}
}

// child is a gateway in a process of its own.
type child struct {
	address string
	pid     int
}

func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childArgs+"="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, log)
		_ = cmd.Wait()
	})
	listens := regexp.MustCompile(`msg=listening address=(\S+)`)
	for lines.Scan() {
		if m := listens.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() {
				}
			}()
			return &child{m[1], cmd.Process.Pid}
		}
		t.Log(lines.Text())
	}
	t.Fatal("the gateway does not listen:", lines.Err())
	return nil
}

// peak returns the most memory that the process has had, in bytes.
func (c *child) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("%s", status)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// accounts returns a metric of each account.
func (c *child) accounts(t *testing.T, metric string) map[string]int64 {
	t.Helper()
	resp, err := http.Get("http://" + c.address + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int64)
	for _, m := range regexp.MustCompile(`(?m)^`+metric+`{account="(\w+)",memory="default"} (\S+)$`).FindAllSubmatch(page, -1) {
		v, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[string(m[1])] = int64(v)
	}
	return all
}

// send begins a POST of a body of which it sends all but the last missing bytes, and keeps the connection.
func (c *child) send(t *testing.T, path string, body []byte, missing int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// The gateway may refuse it before all of it has come.
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, len(body))
	_, _ = conn.Write(body[:len(body)-missing])
	return conn
}

// greedyEngine has endless answers of all kinds, and publishes more events than can be applied.
type greedyEngine struct {
	*httptest.Server
	events, replay net.Listener
}

func newGreedyEngine(t *testing.T) *greedyEngine {
	t.Helper()
	e := &greedyEngine{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/tokenize" && len(body) > 1000:
			_, _ = io.WriteString(w, `{"count":1,"tokens":[`)
			for range 31 << 4 {
				_, _ = io.WriteString(w, strings.Repeat("1,", 32<<10))
			}
		case r.URL.Path == "/tokenize":
			w.WriteHeader(http.StatusNotImplemented)
			return
		case bytes.Contains(body, []byte("replies")):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\ndata: "+strings.Repeat("x", 1<<20))
		}
		_ = http.NewResponseController(w).Flush()
		<-done
	}))
	listen := func(socket string, serve func(*zmtp.Conn)) net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					settings := zmtp.Config{Socket: socket, MaxMessage: 1 << 20, Handshake: time.Minute}
					w, err := zmtp.New(context.Background(), c, settings)
					if err != nil {
						return
					}
					defer w.Close()
					go func() { <-done; w.Interrupt() }()
					serve(w)
				})
			}
		})
		return ln
	}
	// A message that does not begin at 0 has those before it asked for, which never come.
	e.events = listen("PUB", func(w *zmtp.Conn) {
		for seq := uint64(1000); ; seq++ {
			if w.Send([]byte("t"), binary.BigEndian.AppendUint64(nil, seq), make([]byte, 200<<10)) != nil {
				return
			}
		}
	})
	e.replay = listen("ROUTER", func(w *zmtp.Conn) {
		for {
			if _, err := w.Recv(); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		_ = e.events.Close()
		_ = e.replay.Close()
		e.CloseClientConnections()
		e.Close()
		wg.Wait()
	})
	return e
}

// TestMemoryOfProcess drives every account of a gateway to its bound at the same time, each by the party that can, and
// measures the process: at most 1.3 times max_memory and its base.
func TestMemoryOfProcess(t *testing.T) {
	switch {
	case runtime.GOOS != "linux":
		t.Skip("reads /proc")
	case racetest.Enabled:
		t.Skip("the race detector takes several times the memory")
	}
	const limit, requests = 256 << 20, 600
	e := newGreedyEngine(t)
	path := filepath.Join(t.TempDir(), "router.toml")
	text := fmt.Sprintf(`max_memory = %d
[[providers]]
name = "a"
api_base = %q
[providers.kv_events]
endpoint = "tcp://%s"
replay_endpoint = "tcp://%s"
max_blocks = 1000
[[routes]]
model = "*"
strategy = "precise_cache_aware"
targets = [{ provider = "a" }]
[routes.precise_cache_aware]
max_bytes = 1_000_000
[routes.token_source]
kind = "tokenize"
timeout_secs = 60
`, limit, e.URL, e.events.Addr(), e.replay.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, must(newService(discard)).options())
	if err != nil {
		t.Fatal(err)
	}
	base := baseMemory(f, requests)
	c := startChild(t, "-listen", "127.0.0.1:0", "-config", path, "-max-requests", strconv.Itoa(requests),
		"-drain-delay", "0", "-grace", "1ms")
	idle := c.peak(t)

	const chats, completions = "/v1/chat/completions", "/v1/completions"
	chat := func(text string) []byte {
		return []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + text + `"}]}`)
	}
	ids := []byte(`{"model":"m","prompt":[` + strings.Repeat("1,", 256<<10) + `1]}`)
	drive := func(account string, more func(i int)) {
		t.Helper()
		for i := 0; ; i++ {
			if c.accounts(t, "warmroute_memory_shed_total")[account] > 0 {
				return
			}
			more(i)
			time.Sleep(time.Millisecond)
		}
	}
	drive("events", func(int) {}) // its engine does it
	drive("tokens", func(i int) {
		if i < 8 {
			c.send(t, chats, chat(strings.Repeat("y", 700<<10)), 0)
		}
	})
	drive("prompts", func(int) { c.send(t, completions, ids, 0) })
	drive("replies", func(int) { c.send(t, chats, chat("replies"), 0) })
	drive("bodies", func(int) { c.send(t, completions, make([]byte, 4<<20), 1) })

	limits, peaks := c.accounts(t, "warmroute_memory_limit_bytes"), c.accounts(t, "warmroute_memory_peak_bytes")
	for _, account := range []string{"bodies", "prompts", "replies", "events", "tokens"} {
		if peaks[account] < limits[account]/2 || peaks[account] > limits[account] || limits[account] == 0 {
			t.Errorf("%s: %d of %d bytes", account, peaks[account], limits[account])
		}
	}
	used := int64(0)
	for _, n := range c.accounts(t, "warmroute_memory_bytes") {
		used += n
	}
	peak := c.peak(t)
	t.Logf("max_memory %d MiB, base %d MiB, idle %d MiB; in use %d MiB, the process had %d MiB: %.2f times max_memory "+
		"beyond idle", limit>>20, base>>20, idle>>20, used>>20, peak>>20, float64(peak-idle)/limit)
	if most := int64(limit)*13/10 + base; peak > most {
		t.Errorf("the process had %d bytes; at most 1.3 times max_memory and its base are %d", peak, most)
	}
	if used < limit/2 {
		t.Errorf("only %d bytes are in use", used)
	}
}
