package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// keeper is the first argument that makes this program the keeper of another one.
const keeper = "-keep"

// keep runs argv in this process's group, and kills the group when standard
// input ends, which shows that its parent has ended in any way.
func keep(argv []string) int {
	// It outlives the group's SIGTERM, which is for argv. Notify, unlike Ignore, is
	// not handed down to it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, os.Interrupt)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		signalGroup(os.Getpid(), true)
	}()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a program with all that it starts: a process group of its own.
type process struct {
	name   string
	log    string // file of its output
	cmd    *exec.Cmd
	stdin  io.Closer // held open; see keep
	exited chan struct{}
}

// start starts argv in dir with env and nothing else of this process's
// environment. Its output is appended to dir's NAME.log. stop or kill ends it.
func start(name, dir string, env []string, argv ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd = exec.Command(self, append([]string{keeper}, argv...)...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, env, f, f
	ownGroup(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) group() int { return p.cmd.Process.Pid }

// stop sends the group a signal to end, and kills it after 20 seconds.
func (p *process) stop() error {
	shared := groupShared(p.group())
	signalGroup(p.group(), false)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !p.done(); {
		time.Sleep(20 * time.Millisecond)
	}
	return p.end(shared)
}

// kill ends the group as a crash would.
func (p *process) kill() error { return p.end(groupShared(p.group())) }

func (p *process) done() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) end(shared []string) error {
	signalGroup(p.group(), true)
	for end := time.Now().Add(10 * time.Second); !p.done() || groupAlive(p.group()); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: process group %d is still there", p.name, p.group())
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.stdin.Close()
	var errs []error
	for _, f := range shared {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// await waits until url answers 200.
func (p *process) await(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended; it wrote:\n%s", p.name, p.said())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s does not answer at %s after %s; it wrote:\n%s", p.name, url, limit, p.said())
			}
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// said returns the end of its output.
func (p *process) said() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 3 << 10
	if i, err := f.Stat(); err == nil && i.Size() > most {
		f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, most))
	return string(b)
}
