package warmroute

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/requestbody"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/warmroute/router/vllmtest"
)

// backend is an upstream that does what its handler says. It counts requests.
type backend struct {
	addr string
	got  atomic.Int64
}

func serve(t *testing.T, h http.HandlerFunc) *backend {
	t.Helper()
	b := &backend{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.got.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	b.addr = s.Listener.Addr().String()
	return b
}

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// proxy is a reverse_proxy of a bare policy with more lines.
func proxy(addrs string, lines ...string) string {
	return "reverse_proxy " + addrs + " {\n" + strings.Join(append([]string{"lb_policy warmroute round_robin"},
		lines...), "\n") + "\n}"
}

// TestInProcess is all of the scenarios under the race detector; TestCaddy holds the
// program to them.
func TestInProcess(t *testing.T) {
	rs, addrs := fleetOf(t, 4, vllmtest.Config{TimeScale: 0.05})
	h := start(t, site(t, addrs, tell))
	conversations(t, h, rs)
	reloads(t, h, func(int) { h.reload(t, site(t, addrs, tell)) })
	leaves(t, h, rs)
	kills(t, h, rs)
}

// TestRetries: Caddy's settings say whether a request is sent again, and then it
// goes to an upstream that was not tried.
func TestRetries(t *testing.T) {
	const again = "lb_retry_match {\nmethod POST\n}"
	const statuses = "lb_retry_match {\nexpression `{rp.status_code} in [429, 503]`\n}"
	headerOnly := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	hangUp := func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	half := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half of it")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, tc := range []struct {
		name  string
		bad   http.HandlerFunc
		lines []string
		want  int // status of every reply; 0: broken off
		again bool
	}{
		{"a header and no more", headerOnly, []string{"lb_retries 2", again}, 200, true},
		{"no reply", hangUp, []string{"lb_retries 2", again}, 200, true},
		{"no reply, POST may not be sent again", hangUp, []string{"lb_retries 2"}, 502, false},
		{"no reply, no retries", hangUp, nil, 502, false},
		{"429", busy, []string{"lb_retries 2", again, statuses}, 200, true},
		{"429, own words", busy, []string{"lb_retries 2", again}, 429, false},
		{"half a reply", half, []string{"lb_retries 2", again}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad, good := serve(t, tc.bad), serve(t, ok)
			h := start(t, proxy(bad.addr+" "+good.addr, tc.lines...))
			const n = 6
			failed := 0
			for range n {
				a := h.ask(context.Background(), []byte("{}"), nil)
				if a.status == http.StatusOK && a.err == nil {
					if a.body != "ok" {
						t.Errorf("%+v", a)
					}
					continue
				}
				failed++
				if a.status != tc.want && !(tc.want == 0 && a.err != nil) {
					t.Errorf("%+v", a)
				}
			}
			s := h.idle(t)
			if tc.again && (failed != 0 || good.got.Load() != n || bad.got.Load() == 0) {
				t.Errorf("%d failed, %d and %d requests", failed, bad.got.Load(), good.got.Load())
			}
			if !tc.again && (failed == 0 || int(bad.got.Load()) != failed || int(good.got.Load()) != n-failed) {
				t.Errorf("%d failed, %d and %d requests", failed, bad.got.Load(), good.got.Load())
			}
			if s.Failed != uint64(bad.got.Load()) || s.Finished != uint64(good.got.Load()) || s.Canceled != 0 {
				t.Errorf("%+v, %d and %d requests", s, bad.got.Load(), good.got.Load())
			}
		})
	}
}

// TestAllTried: where each upstream was tried, Caddy's further retries begin again.
func TestAllTried(t *testing.T) {
	var n atomic.Int64
	third := func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		ok(w, r)
	}
	a, b := serve(t, third), serve(t, third)
	h := start(t, proxy(a.addr+" "+b.addr, "lb_retries 2", "lb_retry_match {\nmethod POST\n}"))
	if a := h.ask(context.Background(), []byte("{}"), nil); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	if a.got.Load()+b.got.Load() != 3 || a.got.Load() == 0 || b.got.Load() == 0 {
		t.Errorf("%d and %d requests", a.got.Load(), b.got.Load())
	}
	h.idle(t)
}

// TestLimits: what Caddy knows of an upstream decides whether it is taken.
func TestLimits(t *testing.T) {
	gate := make(chan struct{})
	wait := func(w http.ResponseWriter, r *http.Request) { <-gate; ok(w, r) }
	a, b := serve(t, wait), serve(t, wait)
	h := start(t, proxy(a.addr+" "+b.addr, "unhealthy_request_count 2"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if a := h.ask(context.Background(), []byte("{}"), nil); a.status != http.StatusOK {
				t.Errorf("%+v", a)
			}
		})
	}
	eventually(t, "both are full", func() bool { return a.got.Load() == 2 && b.got.Load() == 2 })
	if got := h.ask(context.Background(), []byte("{}"), nil); got.status != http.StatusServiceUnavailable {
		t.Errorf("a fifth: %+v", got)
	}
	close(gate)
	wg.Wait()
	if s := h.idle(t); s.NoTarget != 1 || s.Finished != 4 {
		t.Errorf("%+v", s)
	}
}

// TestShunned: one failure within fail_duration, and Caddy offers it as unhealthy.
func TestShunned(t *testing.T) {
	bad, good := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), serve(t, ok)
	h := start(t, proxy(bad.addr+" "+good.addr, "lb_retries 1", "lb_retry_match {\nmethod POST\n}", "fail_duration 1h"))
	for range 10 {
		if a := h.ask(context.Background(), []byte("{}"), nil); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
	}
	if bad.got.Load() != 1 || good.got.Load() != 10 {
		t.Errorf("%d and %d requests", bad.got.Load(), good.got.Load())
	}
	h.idle(t)
}

// TestOneStateForOneStrategy: two sites of one strategy know each other's requests;
// a reload with another strategy starts empty, and the old one is dropped with its
// last request.
func TestOneStateForOneStrategy(t *testing.T) {
	rs, addrs := fleetOf(t, 2, vllmtest.Config{TimeScale: 0.05})
	two := "handle /a/* {\nuri strip_prefix /a\n" + proxy(addrs) + "\n}\n" + proxy(addrs)
	h := start(t, two)
	for i := range 4 {
		path := []string{"/a/v1/chat/completions", "/v1/chat/completions"}[i%2]
		if a := h.post(context.Background(), path, body(false, 5, message{"user", "hello"}), nil); a.status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
	}
	if s := h.idle(t); s.Policies != 2 || s.Finished != 4 || len(s.InFlight) != 2 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.ask(ctx, body(true, 100_000, message{"user", "a long one"}), func() { close(begun) })
	}()
	<-begun
	h.reload(t, strings.ReplaceAll(two, "round_robin", "random"))
	if s := h.status(t); s.Strategy != "random" || s.Sent != 0 {
		t.Errorf("after the reload: %+v", s)
	}
	cancel()
	<-ended
	eventually(t, "the stream of before is over", func() bool { return rs[0].Stats().Running+rs[1].Stats().Running == 0 })
}

// source is a dynamic upstream source of the tests.
type source struct{}

var (
	sourceMu  sync.Mutex
	sourceNow []string
)

func offer(addrs ...string) {
	sourceMu.Lock()
	defer sourceMu.Unlock()
	sourceNow = addrs
}

func (source) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.upstreams.of_the_tests",
		New: func() caddy.Module { return new(source) }}
}

func (source) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (source) GetUpstreams(*http.Request) ([]*reverseproxy.Upstream, error) {
	sourceMu.Lock()
	defer sourceMu.Unlock()
	var us []*reverseproxy.Upstream
	for _, a := range sourceNow {
		us = append(us, &reverseproxy.Upstream{Dial: strings.Clone(a)})
	}
	return us, nil
}

// TestDynamicUpstreams: each request chooses among what is offered for it.
func TestDynamicUpstreams(t *testing.T) {
	rs, addrs := fleetOf(t, 3, vllmtest.Config{TimeScale: 0.05})
	all := strings.Fields(addrs)
	h := start(t, "reverse_proxy {\ndynamic of_the_tests\nlb_policy warmroute cache_aware\nheader_down X-Upstream "+
		"{rp.upstream.hostport}\nheader_down X-Reason {rp.warmroute.reason}\n}")
	ms := []message{{"system", strings.Repeat("be brief. ", 200)}}
	where := func() (string, string) {
		t.Helper()
		ms = append(ms, message{"user", "go on"})
		a := h.ask(context.Background(), body(false, 5, ms...), nil)
		if a.status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
		h.idle(t)
		return a.header.Get("X-Upstream"), a.header.Get("X-Reason")
	}
	offer(all...)
	first, _ := where()
	if again, why := where(); again != first || why != "warm" {
		t.Errorf("%s, %s after %s", again, why, first)
	}
	others := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == first })
	offer(others...)
	if other, why := where(); other == first || why == "warm" {
		t.Errorf("%s, %s although only %v are offered", other, why, others)
	}
	offer(first, first) // twice is once
	if back, why := where(); back != first || why != "warm" {
		t.Errorf("%s, %s although %s is offered", back, why, first)
	}
	offer()
	if a := h.ask(context.Background(), body(false, 5, ms...), nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("none: %+v", a)
	}
	if n := rs[0].Stats().Finished + rs[1].Stats().Finished + rs[2].Stats().Finished; n != 4 {
		t.Errorf("%d requests came", n)
	}
}

// TestTunnel: an upgraded connection is counted as long as it is open.
func TestTunnel(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
	})
	h := start(t, proxy(b.addr))
	c, err := net.Dial("unix", filepath.Join(h.dir, "site"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	fmt.Fprint(c, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	if s := h.status(t); s.InFlight[b.addr] != 1 {
		t.Errorf("%+v", s)
	}
	c.Close()
	h.idle(t)
}

// TestActiveHealth: Caddy's own probes go through the same transport, are no
// requests of ours, and decide.
func TestActiveHealth(t *testing.T) {
	var well atomic.Bool
	sick := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" && !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	good := serve(t, ok)
	h := start(t, proxy(sick.addr+" "+good.addr, "header_down X-Upstream {rp.upstream.hostport}", "health_uri /health",
		"health_interval 10ms"))
	goes := func() (to string) {
		a := h.ask(context.Background(), []byte("{}"), nil)
		if a.status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
		return a.header.Get("X-Upstream")
	}
	in, sent := 0, uint64(0)
	eventually(t, "ten in a row to the one that is well", func() bool {
		sent++
		if in++; goes() == sick.addr {
			in = 0
		}
		return in == 10
	})
	well.Store(true)
	eventually(t, "the other is back", func() bool { sent++; return goes() == sick.addr })
	if s := h.idle(t); s.Sent != sent || s.Failed != 0 {
		t.Errorf("%+v after %d requests", s, sent)
	}
}
