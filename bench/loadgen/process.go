package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a router, or engines, in a separate process, so that its cost is
// separate from the cost of driving it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	tail   Tail // the end of its standard error
}

// Start starts the program name with args. Stop ends it.
func Start(name string, args ...string) (*Process, error) {
	p, _, err := start(name, args, false)
	return p, err
}

func start(name string, args []string, pipe bool) (*Process, io.Reader, error) {
	p := &Process{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.Stderr = &p.tail
	// Children of its own that outlive it may hold its standard error open.
	p.cmd.WaitDelay = time.Second
	var out io.Reader
	var err error
	if pipe {
		if out, err = p.cmd.StdoutPipe(); err != nil {
			return nil, nil, err
		}
	}
	// Kept open: a program that reads it sees the end of this process.
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	return p, out, nil
}

// Stop sends the process a signal to end, and kills it if it has not ended after five
// seconds.
func (p *Process) Stop() {
	p.stdin.Close()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// Await waits until url answers with status 200. If it ended instead, the error
// contains its standard error.
func (p *Process) Await(ctx context.Context, url string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("loadgen: %s ended: %v: %s", p.cmd.Path, p.cmd.ProcessState, p.tail.String())
		case <-ctx.Done():
			return fmt.Errorf("loadgen: %s does not answer at %s: %w", p.cmd.Path, url, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ticks is how many of the kernel's clock ticks make a second in /proc; Linux
// has had it at 100 on every architecture that Go runs on.
const ticks = 100

// CPU returns the processor time that the process has used so far, as the function CPU does.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.cmd.Process.Pid) }

// CPU returns the processor time that the process with a number has used so far, user and
// system, to the nearest 10 ms. It needs Linux.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may hold
	// anything; utime and stime are the 14th and the 15th.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("loadgen: /proc/PID/stat is too short")
	}
	var sum int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// RSS returns the greatest resident memory that the process has had, in bytes.
// It needs Linux.
func (p *Process) RSS() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); !ok || err != nil {
		return 0, errors.New("loadgen: no VmHWM in /proc/PID/status")
	}
	return kb << 10, nil
}

// StartEnginesProcess starts n engines in a process of their own. The program
// name with args must call ServeEngines.
func StartEnginesProcess(n int, name string, args ...string) (*Process, []string, error) {
	p, out, err := start(name, args, true)
	if err != nil {
		return nil, nil, err
	}
	var urls []string
	for lines := bufio.NewScanner(out); len(urls) < n && lines.Scan(); {
		urls = append(urls, lines.Text())
	}
	if len(urls) < n {
		p.Stop()
		return nil, nil, fmt.Errorf("loadgen: %d of %d engines started: %s", len(urls), n, p.tail.String())
	}
	return p, urls, nil
}

// ServeEngines runs n engines, writes their URLs to out, a line each, and goes on
// until in ends: when the process that started this one is gone.
func ServeEngines(n int, c EngineConfig, in io.Reader, out io.Writer) error {
	e, err := StartEngines(n, c)
	if err != nil {
		return err
	}
	defer e.Close()
	if _, err := fmt.Fprintln(out, strings.Join(e.URLs, "\n")); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
