package main

import (
	"bytes"
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
	"time"

	"github.com/warmroute/router/bench/loadgen"
)

// process is a router with all that it starts: a process group of its own.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // kept open: a program that reads it sees the end of this one
	exited chan struct{}
	said   loadgen.Tail // the end of its output
}

// startProcess starts argv. It gets no more of this process's environment than
// env: settings for other programs, and proxies, are not for it. stop ends it.
func startProcess(argv, env []string, home string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), exited: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8",
		"HF_HUB_OFFLINE=1"}, env...)
	p.cmd.Dir = home
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.WaitDelay = time.Second
	ownGroup(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop sends the group a signal to end, and kills it after three seconds.
func (p *process) stop() {
	signalGroup(p.cmd, false)
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
	}
	signalGroup(p.cmd, true) // children that outlived it, too
	<-p.exited
	p.stdin.Close()
}

// await waits until url answers 200 with a body that contains says.
func (p *process) await(ctx context.Context, url, says string) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	last := "nothing"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK && strings.Contains(string(body), says) {
				return nil
			}
			last = fmt.Sprintf("%s: %.100s", resp.Status, body)
		}
		select {
		case <-p.exited:
			return fmt.Errorf("ended: %v: %s", p.cmd.ProcessState, p.said.String())
		case <-ctx.Done():
			return fmt.Errorf("not ready, last %s; it wrote: %s", last, p.said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// usage is the resource usage of processes.
type usage struct {
	cpu time.Duration
	rss int64 // the most resident memory of each, added up, in bytes
}

// usage returns the group's usage so far. It needs Linux.
func (p *process) usage() (usage, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return usage{}, err
	}
	var u usage
	found := false
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		group, cpu, err := parseStat(b)
		if err != nil {
			return usage{}, err
		}
		if group != p.cmd.Process.Pid {
			continue
		}
		b, err = os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), "VmHWM:")
		var kb int64
		fmt.Sscan(rest, &kb) // a process that is ending has none
		u.cpu += cpu
		u.rss += kb << 10
		found = true
	}
	if !found {
		return usage{}, errors.New("no such process in /proc")
	}
	return u, nil
}

// tick is the unit of times in /proc; Linux has had it so on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// parseStat returns the process group, and the time that the process and its
// children that ended have used, of a line of /proc/PID/stat.
func parseStat(b []byte) (group int, cpu time.Duration, err error) {
	// The second field is the program's name in parentheses, which may hold
	// anything; the group is the 5th, the times are the 14th to the 17th.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 15 {
		return 0, 0, errors.New("a line of /proc/PID/stat is too short")
	}
	if group, err = strconv.Atoi(string(f[2])); err != nil {
		return 0, 0, err
	}
	for _, s := range f[11:15] {
		n, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		cpu += time.Duration(n) * tick
	}
	return group, cpu, nil
}
