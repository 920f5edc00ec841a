package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// TestPython serves a Python gateway, standard library only, on a Unix socket: the
// turns of a conversation stay together, and a replica that is gone is not seen.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "--version").Run()
	}
	if err != nil {
		t.Skipf("there is no python3: %v", err)
	}
	var targets []string
	var replicas []*vllmtest.Server
	for range 3 {
		r := vllmtest.NewServer(fast())
		t.Cleanup(r.Close)
		targets, replicas = append(targets, r.URL), append(replicas, r)
	}
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- run(ctx, slog.New(slog.DiscardHandler), "", path, nil, targets) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	get := func(path string, v any) bool {
		resp, err := (&http.Client{Transport: transport}).Get("http://sidecar" + path)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(v) == nil
	}
	until(t, "it serves", func() bool { return get("/healthz", new(struct{})) })

	if err := replicas[2].SetFaults(vllmtest.Faults{Refuse: true}); err != nil {
		t.Fatal(err)
	}
	const conversations, turns = 6, 5
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "client.py"), path, "6", "5")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatal(err, stderr.String())
	}
	var went map[string][]string
	if err := json.Unmarshal(out, &went); err != nil || len(went) != conversations {
		t.Fatalf("%s, %v", out, err)
	}
	stayed := 0
	for name, ts := range went {
		if len(ts) != turns {
			t.Errorf("%s: %v", name, ts)
		}
		for i, target := range ts {
			if target == targets[2] {
				t.Errorf("%s was served by a replica that is gone", name)
			}
			if i > 0 && target == ts[i-1] {
				stayed++
			}
		}
	}
	if stayed < conversations*(turns-1)*2/3 {
		t.Errorf("%d of %d turns stayed", stayed, conversations*(turns-1))
	}
	var health struct{ Leases, Expired int }
	var now struct {
		Targets []struct {
			InFlight int `json:"in_flight"`
			Prefill  int
		}
	}
	if !get("/healthz", &health) || health.Leases != 0 || health.Expired != 0 {
		t.Errorf("%+v", health)
	}
	if !get("/targets", &now) || len(now.Targets) != 3 {
		t.Errorf("%+v", now)
	}
	for _, m := range now.Targets {
		if m.InFlight != 0 || m.Prefill != 0 {
			t.Errorf("%+v", m)
		}
	}
}

// TestSocket: a socket that was left behind is replaced, one that is served and a
// file that is none are not.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Error("a socket that is served was replaced")
	}
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o660 {
		t.Error(s, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = listenUnix(path); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Error("a file was replaced")
	}
	if err := run(t.Context(), slog.New(slog.NewTextHandler(io.Discard, nil)), "127.0.0.1:0", path, nil, nil); err == nil {
		t.Error("it ran")
	}
	if err := run(t.Context(), slog.New(slog.DiscardHandler), "", "", nil, nil); err == nil {
		t.Error("it ran on nothing")
	}
}
