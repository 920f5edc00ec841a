package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
)

// sampleEvery is how often the runtime reports the gateway's goroutines.
const sampleEvery = 2 * time.Second

// gateway is the gateway's process.
type gateway struct {
	url  string
	page string // its live page

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended, once exited is closed

	mu      sync.Mutex
	reports reports
}

// build makes the gateway's program in dir. It needs no C.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "gateway")
	return path, loadgen.Build(ctx, path, loadgen.Gateway, "")
}

// startGateway starts the program at path and waits until it answers.
func startGateway(ctx context.Context, path, config string) (*gateway, error) {
	address, err := ports.Free()
	if err != nil {
		return nil, err
	}
	page, err := ports.Free()
	if err != nil {
		return nil, err
	}
	g := &gateway{url: "http://" + address, page: "http://" + page, exited: make(chan struct{})}
	g.cmd = exec.Command(path, "-listen", address, "-debug", page, "-config", config,
		// So short that a hang occurs many times in a run.
		"-header-timeout", "4s", "-idle-timeout", "4s", "-body-timeout", "2s",
		// So small that bodies or requests which are never let go of are soon missed.
		"-max-bodies", strconv.Itoa(64<<20), "-max-requests", "512",
		"-client-share", "0.9", // the good ones come from one address
		"-drain-delay", "0s", "-grace", "10s")
	g.cmd.Env = append(os.Environ(), fmt.Sprintf("GODEBUG=gctrace=1,schedtrace=%d,scheddetail=1",
		sampleEvery.Milliseconds()))
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		g.watch(stderr)
		g.err = g.cmd.Wait()
		close(g.exited)
	}()
	for {
		resp, err := http.Get(g.url + "/healthz")
		if err == nil {
			resp.Body.Close()
			return g, nil
		}
		select {
		case <-g.exited:
			return nil, fmt.Errorf("the gateway ended: %v\n%s", g.err, g.lastWords())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), g.stop(time.Second))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watch reads the gateway's output until it ends.
func (g *gateway) watch(r io.Reader) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n') // a longer line arrives in pieces
		if len(line) > 0 {
			g.mu.Lock()
			g.reports.read(string(line), time.Now())
			g.mu.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// reload makes it read its file again.
func (g *gateway) reload() error { return g.cmd.Process.Signal(syscall.SIGHUP) }

// inFlight asks the live page how many requests each target has, by the gateway's
// count.
func (g *gateway) inFlight(ctx context.Context) (map[string]int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.page+"/state", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var state struct {
		Totals  struct{ InFlight *int }
		Targets []struct {
			ID                string
			InFlight, Prefill *int
		}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&state); err != nil {
		return nil, fmt.Errorf("the live page: %w", err)
	}
	if state.Totals.InFlight == nil || len(state.Targets) == 0 {
		return nil, errors.New("the live page is empty")
	}
	counts := map[string]int{"all": *state.Totals.InFlight}
	for _, t := range state.Targets {
		if t.InFlight == nil || t.Prefill == nil {
			return nil, errors.New("the live page does not show " + t.ID)
		}
		counts[t.ID] = max(*t.InFlight, *t.Prefill)
	}
	return counts, nil
}

// stop sends the gateway a signal to end. It is an error if it does not end in
// time, or reports that requests were cut off.
func (g *gateway) stop(within time.Duration) error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-g.exited:
		if g.err != nil {
			return fmt.Errorf("the gateway ended with %w\n%s", g.err, g.lastWords())
		}
		return nil
	case <-time.After(within):
		err := g.cmd.Process.Kill()
		<-g.exited
		return errors.Join(fmt.Errorf("the gateway did not end in %v", within), err)
	}
}

func (g *gateway) lastWords() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.reports.said, "")
}

// discreet returns an error that quotes a secret in the gateway's log.
func (g *gateway) discreet() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return unless(g.reports.told != nil, strings.Join(g.reports.told, ""))
}

// samples returns the reports since the last call.
func (g *gateway) samples() (heap, goroutines []sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	heap, goroutines = g.reports.heap, g.reports.goroutines
	g.reports.heap, g.reports.goroutines = nil, nil
	return heap, goroutines
}

// resident returns the process's resident memory in bytes; 0: unknown.
func (g *gateway) resident() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		return 0
	}
	return kb * 1024
}

// reports reads the output of a Go program under GODEBUG=gctrace=1,schedtrace,
// scheddetail=1. Lines of its log among them, even inside a line, do no more harm
// than a sample that is missing or a goroutine that is not counted.
type reports struct {
	heap       []sample // bytes that were alive at the end of a collection
	goroutines []sample
	said       []string // the last lines that are neither
	told       []string // the first of them that have a secret in them

	counting bool
	n        int
	at       time.Time
}

var (
	gcLine        = regexp.MustCompile(`^gc \d+ @.* \d+->\d+->(\d+) MB, `)
	goroutineLine = regexp.MustCompile(`^  G\d+: status=(\d+)`)
)

// dead is the status of a goroutine that has ended and waits to be used again, as in
// the runtime's _Gdead.
const dead = "6"

func (r *reports) read(line string, now time.Time) {
	switch m := goroutineLine.FindStringSubmatch(line); {
	case m != nil:
		if r.counting && m[1] != dead {
			r.n++
		}
	case strings.HasPrefix(line, "SCHED "):
		// The list before it is complete only now.
		if r.counting {
			r.goroutines = append(r.goroutines, sample{r.at, float64(r.n)})
		}
		r.counting, r.n, r.at = true, 0, now
	case strings.HasPrefix(line, "  P") || strings.HasPrefix(line, "  M"):
	default:
		r.said = append(r.said[max(0, len(r.said)-19):], line)
		if strings.Contains(line, secret) && len(r.told) < 3 {
			r.told = append(r.told, line)
		}
		if m := gcLine.FindStringSubmatch(line); m != nil {
			r.said = r.said[:len(r.said)-1]
			mb, err := strconv.ParseFloat(m[1], 64)
			if err == nil {
				r.heap = append(r.heap, sample{now, mb * (1 << 20)})
			}
		}
	}
}
