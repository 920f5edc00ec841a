package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// backend is a replica with an LMCache. Each of its sources can fail.
type backend struct {
	*vllmtest.Server
	name     string
	api      string // in front of the replica
	noTokens atomic.Bool
	events   *cable
	cache    string // the LMCache's URL
	answer   atomic.Pointer[string]
	polls    atomic.Int64
}

func newBackend(t *testing.T, name string) *backend {
	t.Helper()
	s, err := vllmtest.New(vllmtest.Config{Model: "engine-name", TimeScale: 0.01, ReplyTokens: 4,
		Events: &vllmtest.Events{Topic: "kv"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	e := &backend{Server: s, name: name, events: newCable(t, strings.TrimPrefix(s.Events().Endpoint(), "tcp://"))}
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport: &http.Transport{DisableKeepAlives: true},
		// What happens to the replica's connection happens to the gateway's.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	e.api = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" && e.noTokens.Load() {
			w.WriteHeader(500)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	e.says("")
	ended := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.polls.Add(1)
		switch a := *e.answer.Load(); {
		case a == "hang" || a == "flap" && n%2 == 0:
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		case a == "flap":
			io.WriteString(w, `{"occupancy": 0.5}`)
		case a == "500":
			w.WriteHeader(500)
		case a == "redirect":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		case a == "10 GB":
			w.Header().Set("Content-Length", fmt.Sprint(int64(10<<30)))
			block := strings.Repeat(" ", 32<<10)
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, block)
			}
		default:
			io.WriteString(w, a)
		}
	}))
	t.Cleanup(c.Close)
	t.Cleanup(func() { close(ended) }) // before c is closed
	e.cache = c.URL
	return e
}

func (e *backend) says(answer string) { e.answer.Store(&answer) }

// cable is a TCP connection to an address, for all who ask, that can be cut.
type cable struct {
	addr string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{addr: l.Addr().String(), conns: make(map[net.Conn]bool)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				if !c.plug(way[0]) {
					in.Close()
					out.Close()
					break
				}
				wg.Go(func() {
					io.Copy(way[0], way[1])
					in.Close()
					out.Close()
					c.unplug(way[0])
				})
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.set(true)
		wg.Wait()
	})
	return c
}

func (c *cable) plug(n net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.conns[n] = true
	}
	return !c.cut
}

func (c *cable) unplug(n net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, n)
}

// set cuts all connections and lets none in, or lets them in again.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for n := range c.conns {
		if cut {
			n.Close()
		}
	}
}

var cacheReaders = []string{"cache_aware", "pipeline", "precise_cache_aware", "lmcache_aware"}

// fourRoutes is a file with a route for each strategy that reads a cache.
func fourRoutes(engines ...*backend) string {
	var b, targets strings.Builder
	b.WriteString("[metrics_scrape]\nenabled = true\ninterval_secs = 0.2\ntimeout_secs = 0.2\n[health]\ncool_base = " +
		"\"50ms\"\ncool_max = \"200ms\"\n")
	for _, e := range engines {
		fmt.Fprintf(&b, "[[providers]]\nname = %q\napi_base = %q\n", e.name, e.api+"/v1")
		fmt.Fprintf(&b, "[providers.kv_events]\nendpoint = %q\nreplay_endpoint = %q\ntopic = \"kv\"\nstale_secs = 0.3\n",
			"tcp://"+e.events.addr, e.Events().ReplayEndpoint())
		fmt.Fprintf(&b, "[providers.lmcache]\nendpoint = %q\nrefresh_secs = 0.1\ntimeout_secs = 0.3\nstale_secs = 1\n",
			e.cache+"/occupancy")
		fmt.Fprintf(&targets, "{ provider = %q, model = \"engine-name\" }, ", e.name)
	}
	for _, s := range cacheReaders {
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"by-%s\"\nstrategy = %q\ntargets = [%s]\n[routes.failover]\nattempts = "+
			"3\nfail_open = true\n", s, s, targets.String())
		if s == "precise_cache_aware" {
			b.WriteString("[routes.token_source]\nkind = \"tokenize\"\n")
		}
	}
	return b.String()
}

// answer has the headers of one reply.
type answer struct {
	target, reason string
	cached         int // tokens, as the engine reports them
}

// send sends a request to a route of fourRoutes.
func (p *program) send(strategy, text string) (answer, error) {
	body, err := json.Marshal(map[string]any{"model": "by-" + strategy, "messages": []said{{"user", text}}})
	if err != nil {
		return answer{}, err
	}
	resp, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(string(body)))
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	var v reply
	if err := json.Unmarshal(b, &v); err != nil || resp.StatusCode != 200 || len(v.Choices) != 1 {
		return answer{}, fmt.Errorf("%s: %.200s", resp.Status, b)
	}
	return answer{resp.Header.Get(headerTarget), resp.Header.Get(headerReason), v.Usage.Details.Cached}, nil
}

// debug returns the page of counts.
func (p *program) debug(t *testing.T) (v page) {
	t.Helper()
	resp, err := http.Get(p.url + debugPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
