//go:build real

package nats

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

// A process is a nats-server of its own.
type process struct {
	program, client string
	args            []string
	cmd             *exec.Cmd
	out             bytes.Buffer
}

func (p *process) up(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.program, p.args...)
	p.out.Reset()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.client); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server does not start")
		}
	}
}

func (p *process) down() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// apart starts a cluster of n servers as processes.
func apart(t testing.TB, program string, n int) []*process {
	t.Helper()
	var clients, routes []string
	for range n {
		for _, all := range []*[]string{&clients, &routes} {
			ln := must(net.Listen("tcp", "127.0.0.1:0"))
			*all = append(*all, ln.Addr().String())
			ln.Close()
		}
	}
	var all []*process
	for i := range n {
		_, port := must2(net.SplitHostPort(clients[i]))
		p := &process{program: program, client: clients[i], args: []string{"-a", "127.0.0.1", "-p", port,
			"-cluster_name", "apart", "-cluster", "nats://" + routes[i],
			"-routes", "nats://" + strings.Join(routes, ",nats://")}}
		p.up(t)
		t.Cleanup(p.down)
		all = append(all, p)
	}
	return all
}

// TestReal holds a Bus to the promises of share.Bus on servers apart: NATS_SERVERS has the programs, with colons
// between them, and each is run alone and as a cluster of three.
func TestReal(t *testing.T) {
	programs := os.Getenv("NATS_SERVERS")
	if programs == "" {
		t.Fatal("set NATS_SERVERS to the programs of nats-server, with colons between them")
	}
	for _, program := range strings.Split(programs, ":") {
		version, err := exec.Command(program, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		connect := func(t testing.TB, url string) *Bus {
			b := must(New(Config{URL: url}))
			t.Cleanup(b.Close)
			return b
		}
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(strings.TrimSpace(string(version)), " of ", n), func(t *testing.T) {
				bustest.Run(t, bustest.Config{
					New: func(t testing.TB, buses int) []share.Bus {
						servers := apart(t, program, n)
						var all []share.Bus
						for i := range buses {
							all = append(all, connect(t, "nats://"+servers[i%n].client))
						}
						return all
					},
					Outage: func(t testing.TB) (share.Bus, func(), func()) {
						servers := apart(t, program, n)
						return connect(t, "nats://"+servers[0].client), func() { // no other is left to go to
								for _, s := range servers {
									s.down()
								}
							}, func() {
								for _, s := range servers {
									s.up(t)
								}
							}
					},
				})
			})
		}
		t.Run(fmt.Sprint(strings.TrimSpace(string(version)), ", a node that goes"), func(t *testing.T) {
			servers := apart(t, program, 3)
			a := connect(t, "nats://"+servers[0].client+",nats://"+servers[1].client)
			b := connect(t, "nats://"+servers[2].client)
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
			pass := func() {
				until(t, "frames pass", func() bool {
					_ = a.Publish("x", nil)
					select {
					case <-got:
						return true
					default:
						return false
					}
				})
			}
			pass()
			first := a.conn.ConnectedAddr()
			for _, s := range servers {
				if s.client == first {
					s.down()
				}
			}
			until(t, "another node is found", func() bool { return a.State().Connected && a.conn.ConnectedAddr() != first })
			for len(got) > 0 {
				<-got
			}
			pass()
		})
	}
}
