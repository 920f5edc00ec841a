package warmroute

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// build makes the program once for all tests, without the race detector.
type build struct {
	sync.Once
	dir  string
	out  []byte
	err  error
	path string
}

var built build

func (b *build) binary(t *testing.T) string {
	t.Helper()
	b.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "caddy"); b.err != nil {
			return
		}
		b.path = filepath.Join(b.dir, "caddy")
		b.out, b.err = exec.Command("go", "build", "-o", b.path, "./caddy").CombinedOutput()
	})
	if b.err != nil {
		t.Fatalf("%v: %s", b.err, b.out)
	}
	return b.path
}

func (b *build) remove() { os.RemoveAll(b.dir) }

// run starts the program with a Caddyfile of this site.
func run(t *testing.T, site string) (h *host, reload func(site string)) {
	t.Helper()
	binary := built.binary(t)
	h = newHost(t)
	file := filepath.Join(h.dir, "Caddyfile")
	write := func(site string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(h.caddyfile(site)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.Command(binary, append(args, "--config", file, "--adapter", "caddyfile")...)
		cmd.Env = append(os.Environ(), "HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir, "XDG_DATA_HOME="+h.dir)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
		return cmd, &out
	}
	write(site)
	cmd, out := command("run")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		h.admin.CloseIdleConnections()
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-exited:
			if err != nil {
				t.Errorf("Caddy ended: %v", err)
			}
		case <-time.After(30 * time.Second):
			cmd.Process.Kill()
			<-exited
			t.Error("Caddy did not stop")
		}
		if t.Failed() {
			t.Logf("Caddy: %s", out.Bytes()[max(0, out.Len()-4000):])
		}
	})
	eventually(t, "Caddy's sockets", func() bool {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("Caddy ended: %v: %s", err, out)
		default:
		}
		resp, err := h.admin.Get("http://localhost/config/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		_, err = os.Stat(filepath.Join(h.dir, "site"))
		return resp.StatusCode == http.StatusOK && err == nil
	})
	return h, func(site string) {
		write(site)
		cmd, out := command("reload", "--force", "--address", "unix/"+h.dir+"/admin")
		if err := cmd.Run(); err != nil {
			t.Errorf("caddy reload: %v: %s", err, out)
		}
	}
}

func TestCaddy(t *testing.T) {
	rs, addrs := fleetOf(t, 4, vllmtest.Config{TimeScale: 0.05})
	h, reload := run(t, site(t, addrs, tell))
	conversations(t, h, rs)
	reloads(t, h, func(int) { reload(site(t, addrs, tell)) })
	leaves(t, h, rs)
	kills(t, h, rs)
}

// TestAddedLatency logs what the policy adds at one client: one Caddy with two
// sites over one replica, of which one takes round_robin, in turns.
func TestAddedLatency(t *testing.T) {
	_, addr := fleetOf(t, 1, vllmtest.Config{Instant: true, ReplyTokens: 20})
	h, _ := run(t, "\thandle /plain/* {\n\t\turi strip_prefix /plain\n\t\treverse_proxy "+addr+
		" {\n\t\t\tlb_policy round_robin\n\t\t}\n\t}\n"+site(t, addr))
	b := body(true, 20, message{"user", strings.Repeat("all work and no play ", 700)}) // 14 KB
	var took [2][]time.Duration
	for i := range 2 * 400 {
		path := []string{"/plain/v1/chat/completions", "/v1/chat/completions"}[i%2]
		begun := time.Now()
		a := h.post(context.Background(), path, b, nil)
		if a.err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %q %v", path, a.status, a.body, a.err)
		}
		took[i%2] = append(took[i%2], time.Since(begun))
	}
	for i := range took {
		slices.Sort(took[i])
	}
	without, with := took[0][len(took[0])/2], took[1][len(took[1])/2]
	t.Logf("caddy: p50 at one client: %v with round_robin, %v with warmroute, added %v", without, with, with-without)
	if s := h.idle(t); s.Finished != 400 {
		t.Errorf("%+v", s)
	}
}
