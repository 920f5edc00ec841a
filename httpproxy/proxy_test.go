package httpproxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/httpproxy"
	"github.com/warmroute/router/internal/statetest"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/vllmtest"
)

// rig is a Proxy before some targets.
type rig struct {
	url    string
	proxy  *httpproxy.Proxy
	router *router.Router
	fleet  *loadview.View
	client *http.Client

	mu    sync.Mutex
	ended []router.Outcome
}

func newRig(t *testing.T, cfg httpproxy.Config, urls ...string) *rig {
	t.Helper()
	g := &rig{}
	var err error
	if g.fleet, err = loadview.New(loadview.Config{}); err != nil {
		t.Fatal(err)
	}
	var members []loadview.Member
	for _, u := range urls {
		members = append(members, loadview.Member{ID: u})
	}
	if err := g.fleet.Set(members); err != nil {
		t.Fatal(err)
	}
	s, err := roundrobin.New(roundrobin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g.router = router.New(s, g.fleet, router.Options{Backoff: -1, Trace: router.Trace{
		Done: func(_ context.Context, _ router.Decision, o router.Outcome) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.ended = append(g.ended, o)
		},
	}})
	if cfg.Choose == nil {
		cfg.Router = g.router
	}
	if cfg.Transport == nil {
		tr := httpproxy.NewTransport()
		t.Cleanup(tr.CloseIdleConnections)
		cfg.Transport = tr
	}
	if g.proxy, err = httpproxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.proxy)
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	g.url, g.client = srv.URL, &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		until(t, "nothing is in flight", func() bool {
			return !slices.ContainsFunc(g.fleet.Snapshot(), func(s loadview.Status) bool {
				return s.Target.Load.InFlight != 0 || s.Target.Load.Prefill != 0
			})
		})
	})
	return g
}

// ends waits until n attempts have ended, and returns their stages.
func (g *rig) ends(t *testing.T, n int) (stages []router.Stage) {
	t.Helper()
	until(t, fmt.Sprint(n, " attempts have ended"), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.ended) >= n
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.ended {
		stages = append(stages, o.Stage)
	}
	return stages
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func engine(t *testing.T, h http.HandlerFunc) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

const answer = `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`

func good(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

func (g *rig) ask(t *testing.T, body string) (status int, reply string, h http.Header) {
	t.Helper()
	resp, err := g.client.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

const chat = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// TestWrongReplies: what is no answer is asked for elsewhere before the first token, under whatever status it
// comes. A client's own mistake is not.
func TestWrongReplies(t *testing.T) {
	for name, c := range map[string]struct {
		bad   http.HandlerFunc
		tries int
		want  int
	}{
		"500":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 2, 200},
		"429":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 2, 200},
		"an error":     {says(`{"error":{"message":"no"}}`), 2, 200},
		"nothing":      {func(http.ResponseWriter, *http.Request) {}, 2, 200},
		"a login page": {says("<!DOCTYPE html><html>"), 2, 200},
		"a login": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/login", http.StatusFound)
		}, 2, 200},
		"no such model": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 2, 200},
		"an error event": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"error\":{\"code\":500}}\n\n")
		}, 2, 200},
		"a reset":            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 2, 200},
		"the client's fault": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, 1, 400},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			bad := engine(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				asked.Add(1)
				c.bad(w, r)
			})
			g := newRig(t, httpproxy.Config{}, bad, engine(t, good))
			requests := 0
			for ; asked.Load() == 0; requests++ { // one of two
				status, body, _ := g.ask(t, chat)
				want := 200
				if asked.Load() > 0 {
					want = c.want
				}
				if status != want || status == 200 && body != answer {
					t.Errorf("%d %s", status, body)
				}
			}
			if got := g.ends(t, requests-1+c.tries); len(got) != requests-1+c.tries {
				t.Errorf("%d requests, of which one went to the wrong target: %v", requests, got)
			}
		})
	}
}

// TestState: ids are followed, whole and streamed.
func TestState(t *testing.T) {
	var engines []*statetest.Engine
	var urls []string
	for _, name := range []string{"e0", "e1", "e2", "e3"} {
		e := statetest.New(t, name)
		engines, urls = append(engines, e), append(urls, e.URL)
	}
	g := newRig(t, httpproxy.Config{}, urls...)
	statetest.Run(t, statetest.Host{URL: g.url, Client: g.client}, engines...)
}

// TestFinishedIsFinished: a request that got all of its reply has finished, also if its client closes the
// connection in that moment, and one that its client left has not.
func TestFinishedIsFinished(t *testing.T) {
	s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, ReplyTokens: 10})
	t.Cleanup(s.Close)
	g := newRig(t, httpproxy.Config{}, s.URL)
	const n = 60
	for i := range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"number %d"}]}`, i%2 == 0, i)
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		var got strings.Builder
		for in := bufio.NewReader(c); ; {
			line, err := in.ReadString('\n')
			got.WriteString(line)
			if err != nil || strings.HasPrefix(line, "data: [DONE]") {
				break
			}
		}
		c.Close() // as soon as it has the last event
		if !strings.Contains(got.String(), "finish_reason") {
			t.Errorf("%q", got.String())
		}
	}
	for i, s := range g.ends(t, n) {
		if s != router.Finished {
			t.Errorf("number %d ended as %v", i, s)
		}
	}
}

// TestCanceled: a client that leaves ends the request at the target, before the reply and within it.
func TestCanceled(t *testing.T) {
	for _, begun := range []bool{false, true} {
		left := make(chan bool)
		came := make(chan bool, 1)
		g := newRig(t, httpproxy.Config{}, engine(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if begun {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			came <- true
			<-r.Context().Done()
			left <- true
		}))
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-came
			leave()
		}()
		if resp, err := g.client.Do(req); err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err == nil {
				t.Error("the reply came to its end")
			}
		}
		<-left
		if got := g.ends(t, 1); !slices.Equal(got, []router.Stage{router.Canceled}) {
			t.Errorf("begun %v: %v", begun, got)
		}
	}
}

// TestBounds: too long a body, and too many bytes of them, are refused, and what was refused is not held.
func TestBounds(t *testing.T) {
	enter, leave := make(chan bool), make(chan bool)
	slow := func(w http.ResponseWriter, r *http.Request) {
		enter <- true
		<-leave
		good(w, r)
	}
	g := newRig(t, httpproxy.Config{MaxBody: 1000, MaxBodies: 1500}, engine(t, slow))
	long := strings.Repeat("x", 900)
	done := make(chan int)
	go func() {
		status, _, _ := g.ask(t, long)
		done <- status
	}()
	<-enter
	if status, body, h := g.ask(t, long); status != 503 || h.Get("Retry-After") == "" {
		t.Error("two bodies:", status, body)
	}
	for _, r := range []io.Reader{strings.NewReader(long + long), io.MultiReader(strings.NewReader(long + long))} {
		resp, err := g.client.Post(g.url+"/v1/chat/completions", "application/json", r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if want := 413; resp.StatusCode != want && resp.StatusCode != 503 { // of unknown length it takes a whole MaxBody
			t.Error(resp.Status)
		}
	}
	leave <- true
	if status := <-done; status != 200 {
		t.Error(status)
	}
	go func() { <-enter; leave <- true }()
	if status, _, _ := g.ask(t, long); status != 200 {
		t.Error("later:", status)
	}
}

// TestDecode: a compressed body reaches the target as the text that it is, and one that is none is the client's
// fault.
func TestDecode(t *testing.T) {
	d, err := contentcoding.New(contentcoding.Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	g := newRig(t, httpproxy.Config{Decode: d.Decode}, engine(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Content-Encoding") + string(b)
		good(w, r)
	}))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(w, chat)
	w.Close()
	for _, c := range []struct {
		coding string
		body   []byte
		status int
	}{
		{"gzip", zipped.Bytes(), 200}, {"gzip", []byte("x"), 400}, {"br", []byte("x"), 415},
		{"identity", []byte(chat), 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/v1/chat/completions", bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", c.coding)
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status || (c.status == 415) != (resp.Header.Get("Accept-Encoding") != "") {
			t.Errorf("%s: %s %v", c.coding, resp.Status, resp.Header)
		}
		if c.status == 200 {
			if b := <-got; b != chat {
				t.Errorf("%s: the target got %q", c.coding, b)
			}
		}
	}
}

// TestOwnReplies: if all targets fail, the client gets the last one's own reply, or an error that says no more
// than it has to.
func TestOwnReplies(t *testing.T) {
	full := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, "come later")
	})
	g := newRig(t, httpproxy.Config{}, full)
	if status, body, h := g.ask(t, chat); status != 429 || body != "come later" || h.Get("Retry-After") != "7" {
		t.Error(status, body, h)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	g = newRig(t, httpproxy.Config{}, "http://"+dead)
	if status, body, _ := g.ask(t, chat); status != 502 || strings.Contains(body, dead) ||
		!strings.HasPrefix(body, `{"error":`) {
		t.Error(status, body)
	}
	g = newRig(t, httpproxy.Config{})
	if status, body, h := g.ask(t, chat); status != 503 || h.Get("Retry-After") == "" {
		t.Error(status, body, h)
	}
	g = newRig(t, httpproxy.Config{}, "no URL")
	if status, body, _ := g.ask(t, chat); status != 502 {
		t.Error(status, body)
	}
}

// TestHeaderTimeout: a target that does not begin in time has failed, and is not asked again.
func TestHeaderTimeout(t *testing.T) {
	hangs := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	g := newRig(t, httpproxy.Config{HeaderTimeout: 20 * time.Millisecond}, engine(t, hangs), engine(t, hangs))
	if status, body, _ := g.ask(t, chat); status != 504 {
		t.Error(status, body)
	}
	if got := g.ends(t, 1); !slices.Equal(got, []router.Stage{router.Failed}) {
		t.Error(got)
	}
}

// TestChoose: each request may have a Router of its own, such as a part of the fleet.
func TestChoose(t *testing.T) {
	asked := make(chan string, 10)
	named := func(name string) string {
		return engine(t, func(w http.ResponseWriter, r *http.Request) { asked <- name; good(w, r) })
	}
	a, b := named("a"), named("b")
	var g *rig
	g = newRig(t, httpproxy.Config{Choose: func(r *http.Request) *router.Router {
		return g.router.Among(func(t router.Target) bool { return t.ID == r.Header.Get("X-Pool") })
	}}, a, b)
	for _, want := range []string{"b", "b", "a", "b"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/v1/chat/completions", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Pool", map[string]string{"a": a, "b": b}[want])
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := <-asked; got != want {
			t.Errorf("%s was asked, want %s", got, want)
		}
	}
}

// TestConfig: each bad field is named.
func TestConfig(t *testing.T) {
	_, err := httpproxy.New(httpproxy.Config{MaxBody: -1, MaxBodies: -1, HeaderTimeout: -1})
	for _, field := range []string{"Router", "MaxBody", "MaxBodies", "HeaderTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	var bad *router.ConfigError
	if !errors.As(err, &bad) {
		t.Errorf("%T", err)
	}
}

// TestStorm: many requests, of which a part is left, over targets that fail. Nothing stays in flight, and no
// body is held.
func TestStorm(t *testing.T) {
	var urls []string
	var servers []*vllmtest.Server
	for range 4 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, ReplyTokens: 8})
		t.Cleanup(s.Close)
		servers, urls = append(servers, s), append(urls, s.URL)
	}
	g := newRig(t, httpproxy.Config{MaxBodies: 1 << 20}, urls...)
	for i, f := range []vllmtest.Faults{{Status: 500}, {CutAfter: 3}, {Status: 200, Body: "<html>"}} {
		if err := servers[i].SetFaults(f); err != nil {
			t.Fatal(err)
		}
	}
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%5 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Millisecond/4)
				}
				body := fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"%d of %d"}]}`, i%2 == 0, i, c)
				req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
				} else if resp, err := g.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Wait()
	for _, s := range servers {
		if err := s.SetFaults(vllmtest.Faults{}); err != nil {
			t.Fatal(err)
		}
	}
	big := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 1<<20-100)) // all of MaxBodies
	until(t, "the whole budget is free", func() bool {
		status, _, _ := g.ask(t, big)
		return status != http.StatusServiceUnavailable // 400: it is too long for the target
	})
}

// BenchmarkProxy compares a request through a Proxy with one through httputil's proxy alone; see the ratio of
// the two.
func BenchmarkProxy(b *testing.B) {
	target := httptest.NewServer(http.HandlerFunc(good))
	defer target.Close()
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: target.URL}}); err != nil {
		b.Fatal(err)
	}
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ours, err := httpproxy.New(httpproxy.Config{Router: router.New(s, fleet, router.Options{})})
	if err != nil {
		b.Fatal(err)
	}
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, strings.Repeat("all work and no play ", 700))
	for name, h := range map[string]http.Handler{"ours": ours, "httputil": bare(target.URL)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				req := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if w.Code != 200 {
					b.Fatal(w.Code)
				}
			}
		})
	}
}

// TestMemory: with a budget a request is refused by the name of the account that has no bytes, and all is given back,
// whatever the requests came to. Bodies count as they come, not as they are announced.
func TestMemory(t *testing.T) {
	budget := func(shares map[string]float64) *membudget.Budget {
		b, err := membudget.New(membudget.Config{Limit: 1 << 20, Shares: shares})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	chat := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 100<<10) + `"}]}`
	for account, share := range map[string]float64{"bodies": 0.15, "prompts": 0.25, "replies": 0.05} {
		b := budget(map[string]float64{account: share})
		entered, leave := make(chan bool), make(chan bool)
		g := newRig(t, httpproxy.Config{Memory: b}, engine(t, func(w http.ResponseWriter, r *http.Request) {
			entered <- true
			<-leave
			io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}]}`)
		}))
		first := make(chan int)
		go func() {
			resp, err := http.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(chat))
			if err != nil {
				first <- 0
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			first <- resp.StatusCode
		}()
		<-entered
		resp, err := http.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(text), account) {
			t.Errorf("%s: %s %s", account, resp.Status, text)
		}
		leave <- true
		if got := <-first; got != 200 {
			t.Errorf("%s: the first got %d", account, got)
		}
		for deadline := time.Now().Add(time.Minute); b.Stats().Used != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", account, b.Stats())
			}
		}
	}
	// A body that is announced and does not come takes little.
	b := budget(nil)
	g := newRig(t, httpproxy.Config{Memory: b, MaxBody: 1 << 30}, engine(t, func(http.ResponseWriter, *http.Request) {}))
	pr, pw := io.Pipe()
	r, _ := http.NewRequest("POST", g.url+"/v1/chat/completions", pr)
	r.ContentLength = 900 << 20
	failed := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	if _, err := pw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); b.Stats().Used == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the body does not come")
		}
	}
	if used := b.Stats().Used; used > 16<<10 {
		t.Errorf("%d bytes are reserved for one", used)
	}
	_ = pw.CloseWithError(errors.New("enough"))
	<-failed
}
