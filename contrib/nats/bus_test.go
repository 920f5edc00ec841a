package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func bus(t *testing.T, cfg Config) *Bus {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// cluster returns n buses, each with a server of its own in this process.
func cluster(t *testing.T, n int) ([]*Bus, []*Server) {
	t.Helper()
	var peers []string
	for range n {
		peers = append(peers, freeAddr(t))
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	var servers []*Server
	var all []*Bus
	for _, p := range peers {
		cfg := ServerConfig{Cluster: p, Peers: peers, User: "gateways", Password: "secret", Lookup: 50 * time.Millisecond}
		if n == 1 {
			cfg = ServerConfig{}
		}
		s, err := NewServer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		run.Go(func() { _ = s.Run(ctx) })
		servers = append(servers, s)
		all = append(all, bus(t, Config{Server: s}))
	}
	t.Cleanup(func() { stop(); run.Wait() })
	for i := range servers {
		until(t, "the cluster is whole", func() bool { return servers[i].Peers() == n-1 })
	}
	return all, servers
}

// TestBus holds a Bus to the promises of share.Bus: with one server, and across three.
func TestBus(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			all, _ := cluster(t, n)
			a, b := all[0], all[n-1]
			until(t, "they are connected", func() bool { return a.State().Connected && b.State().Connected })
			if a.State().Since.IsZero() || a.State().Err != nil {
				t.Errorf("%+v", a.State())
			}
			var mu sync.Mutex
			var got [2][]byte
			for i, x := range []*Bus{a, b} { // its own frames too
				stop, err := x.Subscribe("frames", func(data []byte) {
					mu.Lock()
					defer mu.Unlock()
					got[i] = append(got[i], data...)
				})
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
			}
			until(t, "the subscriptions are known", func() bool { // frames before that are lost, as they may be
				_ = a.Publish("frames", []byte("?"))
				mu.Lock()
				defer mu.Unlock()
				return len(got[0]) > 0 && len(got[1]) > 0
			})
			data := make([]byte, 1)
			for i := range 100 {
				data[0] = byte('a' + i%26) // it may be changed after Publish
				if err := a.Publish("frames", data); err != nil {
					t.Fatal(err)
				}
			}
			want := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 3) + "abcdefghijklmnopqrstuv"
			until(t, "all frames came, in order", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return bytes.HasSuffix(got[0], []byte(want)) && bytes.HasSuffix(got[1], []byte(want))
			})

			if err := a.Publish("frames", make([]byte, share.MaxFrame+1)); !errors.Is(err, share.ErrDropped) {
				t.Errorf("too large a frame: %v", err)
			}
			if _, err := a.Request(t.Context(), "ask", nil); !errors.Is(err, share.ErrNoPeer) {
				t.Errorf("nobody serves: %v", err)
			}
			stop, err := b.Serve("ask", func(r []byte) []byte { return append([]byte("you said "), r...) })
			if err != nil {
				t.Fatal(err)
			}
			ask := func() ([]byte, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				return a.Request(ctx, "ask", []byte("hello"))
			}
			until(t, "the service answers", func() bool {
				r, err := ask()
				return err == nil && string(r) == "you said hello"
			})
			stop()
			until(t, "nobody serves any more", func() bool {
				_, err := ask()
				return errors.Is(err, share.ErrNoPeer)
			})
		})
	}
}

// TestOutage: a server that is gone makes frames drop at once, and a Bus that began before its server, or outlived it,
// connects when it is there.
func TestOutage(t *testing.T) {
	addr := freeAddr(t)
	host, port := must2(net.SplitHostPort(addr))
	start := func() *server.Server {
		var n int
		fmt.Sscan(port, &n)
		s := must(server.NewServer(&server.Options{Host: host, Port: n, NoSigs: true, NoLog: true, Username: "u",
			Password: "p"}))
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the server does not start")
		}
		return s
	}
	b := bus(t, Config{URL: "nats://" + addr, User: "u", Password: "p"})
	if err := b.Publish("x", nil); !errors.Is(err, share.ErrDropped) || b.State().Connected {
		t.Errorf("without a server: %v, %+v", err, b.State())
	}
	var got atomic.Int64
	stop, err := b.Subscribe("x", func([]byte) { got.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		s := start()
		before := got.Load()
		until(t, "frames pass", func() bool { return b.Publish("x", nil) == nil && got.Load() > before })
		s.Shutdown()
		s.WaitForShutdown()
		until(t, "the outage is seen", func() bool { st := b.State(); return !st.Connected && st.Err != nil })
		if err := b.Publish("x", nil); !errors.Is(err, share.ErrDropped) {
			t.Errorf("in an outage: %v", err)
		}
	}
	if b.State().Dropped == 0 {
		t.Errorf("%+v", b.State())
	}
}

func must2(a, b string, err error) (string, string) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// TestSlowSubscriber: a subscriber that stands still keeps a bounded number of frames, and holds up nobody.
func TestSlowSubscriber(t *testing.T) {
	all, _ := cluster(t, 1)
	b := bus(t, Config{Server: must(NewServer(ServerConfig{})), MaxPending: 64 << 10})
	_ = all
	t.Cleanup(b.cfg.Server.Close)
	until(t, "connected", func() bool { return b.State().Connected })
	entered, leave := make(chan bool, 1), make(chan bool)
	stop, err := b.Subscribe("x", func([]byte) {
		select {
		case entered <- true:
		default:
		}
		<-leave
	})
	if err != nil {
		t.Fatal(err)
	}
	var quick atomic.Int64
	quickStop, err := b.Subscribe("x", func([]byte) { quick.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer quickStop()
	frame := make([]byte, 1000)
	until(t, "a frame came", func() bool {
		_ = b.Publish("x", frame)
		return len(entered) > 0
	})
	until(t, "others get on", func() bool {
		_ = b.Publish("x", frame)
		return quick.Load() > 1000
	})
	close(leave)
	stop()
	if b.State().Dropped == 0 {
		t.Errorf("nothing was dropped: %+v", b.State())
	}
}

// TestPeersComeAndGo: names of peers are looked up again, and routes to those that are gone are given up.
func TestPeersComeAndGo(t *testing.T) {
	first, second := freeAddr(t), freeAddr(t)
	_, port2 := must2(net.SplitHostPort(second))
	var there atomic.Bool
	resolve := func(context.Context, string) ([]string, error) {
		if there.Load() {
			return []string{"127.0.0.1"}, nil
		}
		return nil, errors.New("no such host")
	}
	a := must(NewServer(ServerConfig{Cluster: first, Peers: []string{"gateways:" + port2}, Lookup: 5 * time.Millisecond,
		resolve: resolve}))
	t.Cleanup(a.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	b := must(NewServer(ServerConfig{Cluster: second}))
	there.Store(true)
	until(t, "the peer was found by its name", func() bool { return a.Peers() == 1 && b.Peers() == 1 })
	b.Close()
	until(t, "it is gone", func() bool { return a.Peers() == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestConfig: each bad field is named.
func TestConfig(t *testing.T) {
	for field, f := range map[string]func() error{
		"URL":        func() error { _, err := New(Config{}); return err },
		"Prefix":     func() error { _, err := New(Config{URL: "x", Prefix: "a.>"}); return err },
		"MaxPending": func() error { _, err := New(Config{URL: "x", MaxPending: -1}); return err },
		"Buffer":     func() error { _, err := New(Config{URL: "x", Buffer: -1}); return err },
		"Cluster":    func() error { _, err := NewServer(ServerConfig{Cluster: "nowhere"}); return err },
		"Peers":      func() error { _, err := NewServer(ServerConfig{Peers: []string{"a:1"}}); return err },
		"Lookup":     func() error { _, err := NewServer(ServerConfig{Lookup: -1}); return err },
	} {
		err := f()
		var bad *router.ConfigError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := New(Config{URL: "nats://127.0.0.1:1", NKey: "/no/such/file"})
	if err == nil || !strings.Contains(err.Error(), "NKey") {
		t.Errorf("no seed: %v", err)
	}
}

// TestStorm: many publishers, subscribers that come and go, and requests.
func TestStorm(t *testing.T) {
	all, _ := cluster(t, 3)
	var wg sync.WaitGroup
	for i := range 12 {
		b := all[i%3]
		wg.Go(func() {
			for n := range 50 {
				stop, err := b.Subscribe(fmt.Sprint("s", n%5), func([]byte) {})
				if err != nil {
					t.Error(err)
					return
				}
				_ = b.Publish(fmt.Sprint("s", i%5), []byte("x"))
				stopServe, err := b.Serve("q", func(r []byte) []byte { return r })
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, _ = b.Request(ctx, "q", []byte("x"))
				cancel()
				b.State()
				stopServe()
				stop()
			}
		})
	}
	wg.Wait()
}
