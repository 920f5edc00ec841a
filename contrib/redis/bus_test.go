package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bus(t testing.TB, cfg Config) *Bus {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func buses(t testing.TB, n int, cfg Config) []share.Bus {
	var all []share.Bus
	for range n {
		all = append(all, bus(t, cfg))
	}
	return all
}

func until(t *testing.T, condition string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", condition)
		}
	}
}

func TestBus(t *testing.T) {
	bustest.Run(t, bustest.Config{
		New: func(t testing.TB, n int) []share.Bus {
			return buses(t, n, Config{Addrs: []string{miniredis.RunT(t).Addr()}})
		},
		Outage: func(t testing.TB) (share.Bus, func(), func()) {
			m := miniredis.RunT(t)
			return bus(t, Config{Addrs: []string{m.Addr()}}), m.Close, func() {
				if err := m.Restart(); err != nil {
					t.Error(err)
				}
			}
		},
	})
}

// TestTLS: with the right roots and password frames pass, and State has the reason if they do not.
func TestTLS(t *testing.T) {
	ca := httptest.NewTLSServer(nil) // for its certificate
	defer ca.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	m, err := miniredis.RunTLS(&tls.Config{Certificates: ca.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.RequireUserAuth("gateway", "secret")
	good := Config{Addrs: []string{m.Addr()}, Username: "gateway", Password: "secret",
		TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"}}
	b := bus(t, good)
	until(t, "it is connected", func() bool { return b.State().Connected })
	for name, change := range map[string]func(*Config){
		"password": func(c *Config) { c.Password = "other" },
		"roots":    func(c *Config) { c.TLS = &tls.Config{RootCAs: x509.NewCertPool()} },
	} {
		cfg := good
		change(&cfg)
		bad := bus(t, cfg)
		until(t, name, func() bool { return bad.State().Err != nil })
		if bad.State().Connected || !errors.Is(bad.Publish("x", nil), share.ErrDropped) {
			t.Errorf("%s: %+v", name, bad.State())
		}
	}
}

// TestForeignFrames: what others publish in the channels of requests and replies is ignored.
func TestForeignFrames(t *testing.T) {
	m := miniredis.RunT(t)
	b := bus(t, Config{Addrs: []string{m.Addr()}})
	until(t, "it is connected", func() bool { return b.State().Connected })
	stop, err := b.Serve("q", func(r []byte) []byte { return r })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	until(t, "the service is known", func() bool { return m.Publish(b.requests("q"), "short") > 0 })
	for _, s := range []string{"", "1234567", "12345678", "12345678not the name of an inbox at all, but long"} {
		m.Publish(b.requests("q"), s)
		m.Publish(b.replies(b.inbox), s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := b.Request(ctx, "q", []byte("x")); err != nil || string(r) != "x" {
		t.Errorf("%q, %v", r, err)
	}
}

// TestConfig: each bad field is named.
func TestConfig(t *testing.T) {
	for field, all := range map[string][]Config{
		"Addrs":      {{}, {Addrs: []string{"a:1", "b:1"}}},
		"Cluster":    {{Addrs: []string{"a:1"}, Cluster: true, Master: "m"}},
		"Prefix":     {{Addrs: []string{"a:1"}, Prefix: "a*"}},
		"MaxPending": {{Addrs: []string{"a:1"}, MaxPending: -1}},
		"Buffer":     {{Addrs: []string{"a:1"}, Buffer: -1}},
	} {
		for _, cfg := range all {
			_, err := New(cfg)
			var bad *router.ConfigError
			if !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	if c := (Config{}).WithDefaults(); c.Prefix != DefaultPrefix || c.Buffer != DefaultBuffer ||
		c.MaxPending != DefaultMaxPending {
		t.Errorf("%+v", c)
	}
}

// TestBuffer: frames that wait for a server that reads nothing are bounded, empty ones too, and Publish does not wait.
func TestBuffer(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "large": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			b := &Bus{cfg: Config{Buffer: 1 << 20}, flush: make(chan struct{}, 1)}
			b.hearing, b.speaking = true, true
			data := make([]byte, size)
			n := 0
			for ; n < 1<<20 && b.Publish("x", data) == nil; n++ {
			}
			if most := (1<<20)/(size+overhead) + 1; n != most || len(b.queue) != n || b.State().Dropped != 1 {
				t.Errorf("%d frames wait, want %d; %+v", n, most, b.State())
			}
		})
	}
}

// TestClosed: a Bus that is closed takes nothing, and says so.
func TestClosed(t *testing.T) {
	b, err := New(Config{Addrs: []string{miniredis.RunT(t).Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is connected", func() bool { return b.State().Connected })
	stop, err := b.Subscribe("x", func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.Close()
	stop()
	if _, err := b.Subscribe("x", func([]byte) {}); err == nil {
		t.Error("it subscribed")
	}
	if _, err := b.Request(t.Context(), "x", nil); err == nil {
		t.Error("it asked")
	}
	if err := b.Publish("x", nil); !errors.Is(err, share.ErrDropped) || b.State().Connected {
		t.Errorf("%v, %+v", err, b.State())
	}
}

// TestStopEnds: a subscriber's goroutine ends with it, not with the Bus.
func TestStopEnds(t *testing.T) {
	b := bus(t, Config{Addrs: []string{miniredis.RunT(t).Addr()}})
	until(t, "it is connected", func() bool { return b.State().Connected })
	before := runtime.NumGoroutine()
	for range 200 {
		stop, err := b.Subscribe("x", func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		stop()
	}
	until(t, "the goroutines end", func() bool { return runtime.NumGoroutine() < before+100 })
}
