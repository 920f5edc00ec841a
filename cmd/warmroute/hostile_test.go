package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// TestAnnouncedBodies: connections that announce bodies and do not send them leave all
// other requests served, however much they announce and however many they are.
func TestAnnouncedBodies(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for name, c := range map[string]struct {
		cfg    Config
		length int
	}{
		"32 MiB each of 1 GiB":           {Config{}, 32<<20 - 1},
		"a byte each, of a few requests": {Config{MaxRequests: 8}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = discard
			g := newRig(t, rigConfig{Config: c.cfg}, up)
			for range 32 {
				fmt.Fprintf(dial(t, g), "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", c.length)
			}
			eventually(t, "the announced bodies are waited for", func() bool { return g.h.bodies.Used() >= 32 })
			for i := range 119 {
				if resp := g.post(t, "/v1/chat/completions", chatBody); resp.StatusCode != http.StatusOK {
					t.Fatalf("request %d: %s", i, resp.Status)
				}
			}
			if n := g.h.Active(); n != 0 {
				t.Errorf("%d requests are active whose bodies are not there", n)
			}
		})
	}
}

// TestClientShare: one address gets no more than its share, and the rest stays free.
func TestClientShare(t *testing.T) {
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	g := newRig(t, rigConfig{Config: Config{MaxRequests: 8, ClientShare: 0.25, Log: discard}}, up)
	statuses := make(chan int, 8)
	for range 2 {
		go func() {
			resp, err := g.http.Get(g.url + "/v1/x")
			if err != nil {
				statuses <- 0
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		}()
		<-entered
	}
	resp, err := g.http.Get(g.url + "/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || g.h.Active() != 2 {
		t.Errorf("%s, %d active", resp.Status, g.h.Active())
	}
	close(leave)
	for range 2 {
		if s := <-statuses; s != http.StatusOK {
			t.Errorf("status %d", s)
		}
	}
	g.settled(t)
	if resp := g.post(t, "/v1/x", "{}"); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s", resp.Status)
	}
	if _, err := NewHandler(Config{service: g.service, ClientShare: 1.5}); err == nil {
		t.Error("a share of more than all is taken")
	}
}

// TestKVTransfer: members by which engines hand over KV caches reach no engine, unless
// they are allowed, and the answer names them.
func TestKVTransfer(t *testing.T) {
	var got atomic.Value
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got.Store(string(b))
	})
	bodies := map[string]string{
		"kv_transfer_params": `{"model":"m","kv_transfer_params":{"do_remote_prefill":true}}`,
		"bootstrap_room":     `{"model":"m","bootstrap_room":7}`,
		"bootstrap_host":     `{"model":"m","bootstr\u0061p_host":"10.0.0.1"}`,
		"ec_transfer_params": `{"model":"m","sampling_params":{"extra_args":{"ec_transfer_params":{}}}}`,
		"routed_dp_rank":     `{"model":"m","routed_dp_rank":1}`,
		"data_parallel_rank": `{"model":"m","data_parallel_rank":1}`,
		"extra":              `{"model":"m","extra":1}`,
	}
	for _, c := range []struct {
		settings string
		refused  map[string]bool
	}{
		{"", map[string]bool{"kv_transfer_params": true, "bootstrap_room": true, "bootstrap_host": true,
			"ec_transfer_params": true, "routed_dp_rank": true, "data_parallel_rank": true}},
		{"[requests]\nrefuse_members = ['extra']\n", map[string]bool{
			"kv_transfer_params": true, "bootstrap_room": true, "bootstrap_host": true, "ec_transfer_params": true,
			"extra": true, "routed_dp_rank": true, "data_parallel_rank": true,
		}},
		{"[requests]\nallow_kv_transfer = true\n", nil},
	} {
		g := newRig(t, rigConfig{Config: Config{Log: discard}, settings: c.settings}, up)
		for name, body := range bodies {
			for _, path := range []string{"/v1/chat/completions", "/generate", "/inference/v1/generate", "/v1/elsewhere"} {
				got.Store("")
				resp := g.post(t, path, body)
				if !c.refused[name] {
					if resp.StatusCode != http.StatusOK || got.Load() != body {
						t.Errorf("%q %s: %s, the engine got %q", c.settings, name, resp.Status, got.Load())
					}
					continue
				}
				var told struct {
					Error struct{ Message, Type, Param string }
				}
				err := json.NewDecoder(resp.Body).Decode(&told)
				if resp.StatusCode != http.StatusBadRequest || err != nil || told.Error.Param != name ||
					!strings.Contains(told.Error.Message, name) {
					t.Errorf("%q %s: %s, %+v, %v", c.settings, name, resp.Status, told, err)
				}
				if got.Load() != "" {
					t.Errorf("%q %s: the engine got %q", c.settings, name, got.Load())
				}
			}
		}
		// In another encoding nothing can be looked for; engines would read it.
		if resp := g.post(t, "/v1/chat/completions",
			"{\x00\"\x00m\x00"); resp.StatusCode == http.StatusOK != (c.refused == nil) {
			t.Errorf("%q: UTF-16: %s", c.settings, resp.Status)
		}
		g.settled(t)
	}
}

// TestPathsStayBelowTheBase: a request's path does not leave the path of api_base, however
// its dots are spelled, and what is escaped in both stays so.
func TestPathsStayBelowTheBase(t *testing.T) {
	var got atomic.Value
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { got.Store(r.RequestURI) })
	g := serveFile(t, Config{Log: discard}, fmt.Sprintf(
		"[[providers]]\nname = 'a'\napi_base = '%s/tenant%%2Fa/v1'\n[[routes]]\nmodel = '*'\ntargets = [{ provider = 'a' }]\n", up))
	for path, want := range map[string]string{
		"/v1/x":                 "/tenant%2Fa/v1/x",
		"/v1/a%2Fb?q=..":        "/tenant%2Fa/v1/a%2Fb?q=..",
		"/v1/...":               "/tenant%2Fa/v1/...",
		"/v1/a..b":              "/tenant%2Fa/v1/a..b",
		"/../admin":             "",
		"/v1/../../admin":       "",
		"/v1/%2e%2e/%2E./admin": "",
		"/v1/..%2fadmin":        "",
		"/v1/..":                "",
		"/v1/%2e%2e%5cadmin":    "",
		"/v1/..;a=b/../x":       "",
	} {
		got.Store("")
		c := dial(t, g)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got.Load() != want || want == "" && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, the engine got %q, want %q", path, resp.Status, got.Load(), want)
		}
	}
	g.settled(t)
}

// TestAttemptTimeout: a target that does not begin to reply in the route's time has
// failed, and the request is not sent again: it may be computing still.
func TestAttemptTimeout(t *testing.T) {
	var asked atomic.Int32
	up := func() string {
		return upstream(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // the server sees from then on that the gateway has gone
			<-r.Context().Done()
		})
	}
	g := newRig(t, rigConfig{
		Config: Config{Log: discard}, options: router.Options{AttemptTimeout: 100 * time.Millisecond},
	}, up(), up())
	resp := g.post(t, "/v1/x", "{}")
	if resp.StatusCode != http.StatusGatewayTimeout || asked.Load() != 1 {
		t.Errorf("%s, asked %d times", resp.Status, asked.Load())
	}
	g.settled(t)
	if o := g.ended(); len(o) != 1 || o[0].Stage != router.Failed || !errors.Is(o[0].Err, router.ErrAttemptTimeout) {
		t.Errorf("ended as %+v", o)
	}
}

// TestRankHeader: a client does not choose the data-parallel rank by a header.
func TestRankHeader(t *testing.T) {
	got := make(chan http.Header, 1)
	g := newRig(t, rigConfig{Config: Config{Log: discard}}, upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Header
	}))
	body := strings.NewReader(`{"model":"m"}`)
	req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-data-parallel-rank", "3")
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if h := <-got; h.Get("X-Data-Parallel-Rank") != "" {
		t.Errorf("the engine got %v", h)
	}
}
