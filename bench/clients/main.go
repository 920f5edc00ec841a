// Command clients runs real clients against the gateway in front of simulated engines, on loopback alone: SDKs of
// Python, Node and Go, curl, and a browser. It installs them into a folder of its own, checks streams, tools, errors,
// retries, cancels, turns that stay, responses with state, uploads and compressed bodies, counts at the engines that no
// request is computed twice, and prints a table.
//
//	go -C bench run ./clients -dir /tmp/clients -table ../docs/clients.md
//
// It needs Python 3 with venv, Node with npm, and curl; a client with a program that is missing is named as skipped.
package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
)

//go:embed scripts
var scripts embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := flag.String("dir", filepath.Join(".cache", "clients"), "`folder` of the clients, made if it is missing")
	table := flag.String("table", "", "`file` to write the table to, as a page; default: none")
	recorded := flag.String("record", "", "`file` to write the requests to, one a line; default: none")
	flag.Parse()
	failed, err := run(ctx, *dir, *table, *recorded, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(2)
	case failed > 0:
		fmt.Fprintf(os.Stderr, "clients: %d checks failed\n", failed)
		os.Exit(1)
	}
}

// result is a check of a client.
type result struct{ client, check, state, note string }

func run(ctx context.Context, dir, table, recorded string, out io.Writer) (failed int, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	e, err := startEngines(3)
	if err != nil {
		return 0, err
	}
	defer e.stop()
	base, stop, err := startGateway(ctx, dir, e.urls)
	if err != nil {
		return 0, err
	}
	defer stop()
	page, err := scripts.ReadFile("scripts/page.html")
	if err != nil {
		return 0, err
	}
	e.page = bytes.ReplaceAll(page, []byte("BASE"), []byte(base))
	env := append(os.Environ(), "BASE="+base, "CONTROL="+e.control, "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=",
		"https_proxy=", "NO_PROXY=127.0.0.1", "DO_NOT_TRACK=1")
	var all []result
	for _, c := range clients {
		fmt.Fprintf(out, "%s\n", c.name)
		e.mu.Lock()
		e.client = c.name
		e.mu.Unlock()
		rs, err := c.run(ctx, dir, env)
		if err != nil {
			rs = append(rs, result{c.name, "installed", "skipped", err.Error()})
		}
		for _, r := range rs {
			fmt.Fprintf(out, "  %-12s %-8s %s\n", r.check, r.state, r.note)
			if r.state == "FAILED" {
				failed++
			}
		}
		all = append(all, rs...)
	}
	if recorded != "" {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		for _, r := range e.recorded {
			if err := enc.Encode(r); err != nil {
				return failed, err
			}
		}
		if err := os.WriteFile(recorded, b.Bytes(), 0o644); err != nil {
			return failed, err
		}
	}
	if table == "" {
		return failed, nil
	}
	return failed, os.WriteFile(table, tableOf(all), 0o644)
}

// startGateway builds the gateway and runs it before the engines.
func startGateway(ctx context.Context, dir string, urls []string) (base string, stop func(), err error) {
	program := filepath.Join(dir, "gateway")
	if err := loadgen.Build(ctx, program, loadgen.Gateway, ""); err != nil {
		return "", nil, err
	}
	address, err := freeAddr()
	if err != nil {
		return "", nil, err
	}
	args := []string{"-listen", address, "-drain-delay", "0s"}
	for _, u := range urls {
		args = append(args, "-target", u)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			return "http://" + address, stop, nil
		}
		if time.Now().After(end) {
			stop()
			return "", nil, fmt.Errorf("the gateway does not answer: %s", log.Bytes())
		}
	}
}

// client is one that is run.
type client struct {
	name    string
	install func(ctx context.Context, dir string) error
	command func(dir string) []string // prints lines as scripts/client.py says
	silent  string                    // how it is kept from talking to others
}

func (c *client) run(ctx context.Context, dir string, env []string) ([]result, error) {
	if err := c.install(ctx, dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	args := c.command(dir)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = env, dir, time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var rs []result
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if f := strings.SplitN(s.Text(), "\t", 3); len(f) == 3 {
			rs = append(rs, result{c.name, f[0], f[1], f[2]})
		}
	}
	if err != nil {
		tail := stderr.Bytes()
		tail = bytes.TrimSpace(tail[max(0, len(tail)-300):])
		rs = append(rs, result{c.name, "ran", "FAILED", fmt.Sprintf("%v: %s", err, tail)})
	}
	return rs, nil
}

// tableOf returns the results as a page of the guide.
func tableOf(all []result) []byte {
	var b bytes.Buffer
	b.WriteString("# Clients that were run\n\nReal clients before the gateway, with three simulated engines, on " +
		"loopback: `make clients`. The engines count the requests, so that none is computed\ntwice at the gateway's " +
		"fault. Each client is kept from talking to anybody else.\n\n" +
		"| client | version | seen | kept to the gateway by |\n|---|---|---|---|\n")
	for _, c := range clients {
		version, good, bad := "", []string(nil), []string(nil)
		for _, r := range all {
			switch {
			case r.client != c.name:
			case r.check == "version":
				version = r.note
			case r.state == "ok":
				good = append(good, r.check)
			default:
				bad = append(bad, strings.ToLower(r.state)+": "+r.check)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, version, strings.Join(append(good, bad...), ", "), c.silent)
	}
	return b.Bytes()
}

func have(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is not installed", p)
		}
	}
	return nil
}

// once runs a command in dir if the file done is not there yet, and makes it.
func once(ctx context.Context, dir, done string, commands ...[]string) error {
	done = filepath.Join(dir, done)
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	for _, c := range commands {
		cmd := exec.CommandContext(ctx, c[0], c[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c[0], err, bytes.TrimSpace(out[max(0, len(out)-300):]))
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

// script puts one of the scripts into dir.
func script(dir, from, to string) error {
	b, err := scripts.ReadFile("scripts/" + from)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, to), b, 0o644))
}
