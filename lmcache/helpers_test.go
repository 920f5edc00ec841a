package lmcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// tick is how often tests over sockets poll.
const tick = 20 * time.Millisecond

func mustNew(t testing.TB, c Config) *Poller {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustSet(t testing.TB, p *Poller, ps ...Target) {
	t.Helper()
	if err := p.Set(ps); err != nil {
		t.Fatal(err)
	}
}

// run runs p until the end of the test, or until stop is called.
func run(t testing.TB, p *Poller) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually waits until ok, which it asks again and again.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// server answers polls with the values that a test sets.
type server struct {
	*httptest.Server
	polls   atomic.Int64
	handler atomic.Pointer[http.HandlerFunc]
}

func newServer(t testing.TB) *server {
	s := &server{}
	s.says(`{"occupancy": 0.25}`)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.polls.Add(1)
		(*s.handler.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) does(h http.HandlerFunc) { s.handler.Store(&h) }

func (s *server) says(body string) {
	s.does(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

// target returns one that polls s often. Stale is long: a loaded machine makes
// nothing stale.
func (s *server) target(id string) Target {
	return Target{ID: id, Endpoint: s.URL + "/occupancy", Refresh: tick, Timeout: 20 * time.Second, Stale: time.Minute}
}

// free returns the value that a strategy receives for id.
func (p *Poller) free(id string) float64 {
	var dst [1]float64
	p.Free([]router.Target{{ID: id}}, dst[:])
	return dst[0]
}

// says reports whether a strategy receives want; NaN is equal to itself.
func (p *Poller) says(id string, want float64) bool {
	got := p.free(id)
	return math.Abs(got-want) < 1e-9 || math.IsNaN(got) && math.IsNaN(want)
}

// changes collects the calls of Trace.Changed.
type changes struct {
	mu   sync.Mutex
	list []string
}

func (c *changes) changed(from State, now Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf("%s: %v -> %v", now.ID, from, now.State))
}

func (c *changes) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.list...)
}
