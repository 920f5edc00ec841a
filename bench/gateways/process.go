package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
)

// gateway is a process of the gateway's program.
type gateway struct {
	url, page string
	program   string
	args      []string
	cmd       *exec.Cmd
	exited    chan struct{}
	tail      loadgen.Tail
}

// secretVar names the variable with the fleet's secret.
const secretVar = "WARMROUTE_BENCH_SECRET"

// config is the file of gateway i of a fleet.
func config(i int, engines []string, s *busSpec) string {
	var b strings.Builder
	quoted := func(all []string, before string) string {
		var out []string
		for _, a := range all {
			out = append(out, strconv.Quote(before+a))
		}
		return strings.Join(out, ", ")
	}
	if s.Kind != "" {
		fmt.Fprintf(&b, "[share]\nsecret_env = %q\nname = \"gateway-%d\"\n", secretVar, i)
		switch s.Kind {
		case embedded:
			fmt.Fprintf(&b, "bus = [%s]\npeers = [%s]\n", quoted([]string{s.Cluster}, "embedded://"), quoted(s.Peers, ""))
			if s.TLS != "" {
				cert := filepath.Join(s.TLS, certFile)
				fmt.Fprintf(&b, "ca_file = %q\ncert_file = %q\nkey_file = %q\n", cert, cert, filepath.Join(s.TLS, keyFile))
			}
		case redisBus:
			fmt.Fprintf(&b, "bus = [%s]\n", quoted(s.Addrs, "redis://"))
		default:
			fmt.Fprintf(&b, "bus = [%s]\n", quoted(s.Addrs, "nats://"))
		}
	}
	b.WriteString("[metrics_scrape]\nenabled = true\ninterval_secs = 1\n")
	for i, e := range engines {
		fmt.Fprintf(&b, "[[providers]]\nname = \"engine-%d\"\napi_base = %q\n", i, e)
	}
	b.WriteString("[[routes]]\nmodel = \"*\"\nstrategy = \"least_work\"\n")
	for i := range engines {
		fmt.Fprintf(&b, "[[routes.targets]]\nprovider = \"engine-%d\"\n", i)
	}
	return b.String()
}

// newGateway returns gateway i, which does not run yet.
func newGateway(i int, program, dir string, engines []string, s *busSpec) (*gateway, error) {
	address, err := ports.Free()
	if err != nil {
		return nil, err
	}
	page, err := ports.Free()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, fmt.Sprintf("gateway-%d.toml", i))
	if err := os.WriteFile(file, []byte(config(i, engines, s)), 0o600); err != nil {
		return nil, err
	}
	return &gateway{
		url: "http://" + address, page: "http://" + page, program: program,
		args: []string{"-listen", address, "-debug", page, "-config", file, "-drain-delay", "0s", "-grace", "5s"},
	}, nil
}

// start starts it, at the same address each time, and waits until it answers.
func (g *gateway) start(ctx context.Context) error {
	cmd := exec.Command(g.program, g.args...)
	cmd.Stdout, cmd.Stderr = &g.tail, &g.tail
	cmd.Env = append(os.Environ(), secretVar+"=the secret of a benchmark")
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	g.cmd, g.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	for {
		resp, err := http.Get(g.url + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("a gateway ended: %s", g.tail.String())
		case <-ctx.Done():
			g.kill()
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends it at once, stop as an operator does.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.exited
}

func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.exited:
	case <-time.After(10 * time.Second):
		g.kill()
	}
}

// view is the part of a gateway's metrics about sharing.
type view struct {
	connected, joined, load bool
	counted                 int // gateways
	p50, p99                time.Duration
	marks                   int
	sent, bytes             float64
	losses                  map[string]float64
}

// view reads the metrics.
func (g *gateway) view(ctx context.Context) (*view, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readView(io.LimitReader(resp.Body, 4<<20))
}

func readView(r io.Reader) (*view, error) {
	v := &view{losses: map[string]float64{}}
	found := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		_, name, is := strings.Cut(lines.Text()[:max(at, 0)], "_share_")
		if !is || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		n, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return nil, err
		}
		found = true
		name, labels, _ := strings.Cut(name, "{")
		label := func(name string) string {
			_, v, _ := strings.Cut(labels, name+`="`)
			v, _, _ = strings.Cut(v, `"`)
			return v
		}
		seconds := time.Duration(n * 1e9)
		switch sent := label("direction") == "sent"; {
		case name == "connected":
			v.connected = n == 1
		case name == "joined":
			v.joined = n == 1
		case name == "load_shared":
			v.load = n == 1
		case name == "peers_counted":
			v.counted = int(n)
		case name == "lag_seconds" && label("percentile") == "50":
			v.p50 = seconds
		case name == "lag_seconds" && label("percentile") == "99":
			v.p99 = seconds
		case name == "marks":
			v.marks = int(n)
		case name == "frames_total" && sent:
			v.sent = n
		case name == "bytes_total" && sent:
			v.bytes = n
		case name == "losses_total":
			v.losses[label("cause")] = n
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("the gateway's metrics have nothing about sharing")
	}
	return v, nil
}
