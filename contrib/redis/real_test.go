//go:build real

package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	redis "github.com/redis/go-redis/v9"

	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

// A process is a redis-server or a valkey-server of its own. REDIS_SERVER names the program.
type process struct {
	addr string
	args []string
	cmd  *exec.Cmd
}

func (p *process) up(t testing.TB) {
	t.Helper()
	program := os.Getenv("REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	p.cmd = exec.Command(program, p.args...)
	var out bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &out, &out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("set REDIS_SERVER to the program: %v", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.addr); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not start: %s", out.String())
		}
	}
}

func (p *process) down() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func start(t testing.TB, args ...string) *process {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	p := &process{addr: fmt.Sprint("127.0.0.1:", port)}
	p.args = append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()},
		args...)
	p.up(t)
	t.Cleanup(p.down)
	return p
}

// TestRealBus holds a Bus on a real server to the promises of share.Bus.
func TestRealBus(t *testing.T) {
	bustest.Run(t, bustest.Config{
		New: func(t testing.TB, n int) []share.Bus {
			return buses(t, n, Config{Addrs: []string{start(t).addr}})
		},
		Outage: func(t testing.TB) (share.Bus, func(), func()) {
			p := start(t)
			return bus(t, Config{Addrs: []string{p.addr}}), p.down, func() { p.up(t) }
		},
	})
}

// TestRealCluster does so in a cluster of three nodes, with each Bus at another node.
func TestRealCluster(t *testing.T) {
	var addrs []string
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		busPort := ln.Addr().(*net.TCPAddr).Port // else it is port+10000, which may be too large
		ln.Close()
		addrs = append(addrs, start(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(busPort),
			"--cluster-config-file", filepath.Join(t.TempDir(), fmt.Sprint("nodes", i))).addr)
	}
	cli := os.Getenv("REDIS_CLI")
	if cli == "" {
		cli = "redis-cli"
	}
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, cli, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(append([]string{"--cluster", "create", "--cluster-yes"}, addrs...)...)
	for _, a := range addrs {
		_, port, _ := net.SplitHostPort(a)
		until(t, "the cluster is whole", func() bool {
			return strings.Contains(run("-p", port, "cluster", "info"), "cluster_state:ok")
		})
	}
	bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus {
		var all []share.Bus
		for i := range n {
			all = append(all, bus(t, Config{Addrs: []string{addrs[i%3]}, Cluster: true, Prefix: "test-" + t.Name()}))
		}
		return all
	}})
}

// TestRealUser: the rights that the README names are enough, and other channels are refused.
func TestRealUser(t *testing.T) {
	p := start(t)
	admin := redis.NewClient(&redis.Options{Addr: p.addr, Protocol: 2, DisableIdentity: true})
	defer admin.Close()
	set := func(rights ...any) {
		args := append([]any{"acl", "setuser", "gateway", "reset", "on", ">secret"}, rights...)
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	all := []any{"+publish", "+subscribe", "+unsubscribe", "+ping", "&warmroute.*"}
	set(all...)
	cfg := Config{Addrs: []string{p.addr}, Username: "gateway", Password: "secret"}
	bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus { return buses(t, n, cfg) }})
	set(append([]any{"&other.*"}, all[:4]...)...) // other channels
	b := bus(t, cfg)
	until(t, "it is refused", func() bool { return b.State().Err != nil && !b.State().Connected })
}

// sentinel starts a sentinel that watches the server at an address under the name fleet.
func sentinel(t testing.TB, addr string) *process {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor fleet 127.0.0.1 " + port + " 1\nsentinel down-after-milliseconds fleet 500\n" +
		"sentinel failover-timeout fleet 2000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &process{addr: ln.Addr().String()}
	ln.Close()
	_, port, _ = net.SplitHostPort(s.addr)
	s.args = []string{file, "--sentinel", "--port", port, "--bind", "127.0.0.1"}
	s.up(t)
	t.Cleanup(s.down)
	return s
}

// TestRealSentinel: a Bus finds the server by its name with a sentinel.
func TestRealSentinel(t *testing.T) {
	s := sentinel(t, start(t).addr)
	bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus {
		return buses(t, n, Config{Addrs: []string{s.addr}, Master: "fleet"})
	}})
}

// TestRealFailover: if the server goes and sentinels name another, frames and requests pass by way of that one.
func TestRealFailover(t *testing.T) {
	first := start(t)
	_, port, err := net.SplitHostPort(first.addr)
	if err != nil {
		t.Fatal(err)
	}
	start(t, "--replicaof", "127.0.0.1 "+port)
	watch := sentinel(t, first.addr)
	ask := redis.NewSentinelClient(&redis.Options{Addr: watch.addr, Protocol: 2, DisableIdentity: true})
	defer ask.Close()
	until(t, "the sentinel knows the replica, and that it is in step", func() bool {
		all, err := ask.Replicas(t.Context(), "fleet").Result()
		return err == nil && len(all) == 1 && all[0]["master-link-status"] == "ok" && all[0]["flags"] == "slave"
	})
	a := bus(t, Config{Addrs: []string{watch.addr}, Master: "fleet"})
	b := bus(t, Config{Addrs: []string{watch.addr}, Master: "fleet"})
	got := make(chan bool, 1)
	stop, err := b.Subscribe("x", func([]byte) {
		select {
		case got <- true:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	stopServing, err := b.Serve("y", func(request []byte) []byte { return append([]byte("re: "), request...) })
	if err != nil {
		t.Fatal(err)
	}
	defer stopServing()
	pass := func() {
		t.Helper()
		until(t, "frames pass", func() bool {
			_ = a.Publish("x", nil)
			select {
			case <-got:
				return true
			default:
				return false
			}
		})
		until(t, "requests pass", func() bool {
			reply, err := a.Request(t.Context(), "y", []byte("z"))
			return err == nil && string(reply) == "re: z"
		})
	}
	pass()
	killed := time.Now()
	first.down()
	until(t, "both are connected again", func() bool {
		x, y := a.State(), b.State()
		return x.Connected && y.Connected && x.Since.After(killed) && y.Since.After(killed)
	})
	for len(got) > 0 {
		<-got
	}
	pass()
	if addr, err := ask.GetMasterAddrByName(t.Context(), "fleet").Result(); err != nil || addr[1] == port {
		t.Errorf("the sentinel names %v: %v", addr, err)
	}
}
