package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/vllmtest"
)

// TestForward sends a request of no known kind and looks at both sides.
func TestForward(t *testing.T) {
	type seen struct{ Method, URI, Host, Body, For, Proto, FwdHost, Agent, Mine, Encoding string }
	var got seen
	var gone http.Header
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h := r.Header
		got = seen{r.Method, r.RequestURI, r.Host, string(b), h.Get("X-Forwarded-For"), h.Get("X-Forwarded-Proto"),
			h.Get("X-Forwarded-Host"), h.Get("User-Agent"), h.Get("X-Mine"), h.Get("Accept-Encoding")}
		gone = h
		w.Header().Set("X-Theirs", "yes")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "secret")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "short and stout")
	})
	g := newRig(t, rigConfig{}, up+"/base/")
	req, _ := http.NewRequest("PATCH", g.url+"/v1/any/a%2Fb?x=1&y", strings.NewReader("payload"))
	for k, v := range map[string]string{
		"X-Mine": "1", "X-Forwarded-For": "10.1.1.1", "User-Agent": "me", "Accept-Encoding": "br",
		"Connection": "close, X-Private", "X-Private": "p", "Te": "trailers", "Proxy-Authorization": "Basic eA==",
		"Upgrade": "h2c",
	} {
		req.Header.Set(k, v)
	}
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	want := seen{"PATCH", "/base/v1/any/a%2Fb?x=1&y", strings.TrimPrefix(up, "http://"), "payload", "10.1.1.1, 127.0.0.1",
		"http",
		strings.TrimPrefix(g.url, "http://"), "me", "1", "br"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what the target saw (-want +got):\n%s", d)
	}
	for _, k := range []string{"X-Private", "Te", "Proxy-Authorization", "Upgrade", "Keep-Alive"} {
		if gone.Get(k) != "" {
			t.Errorf("%s was passed on", k)
		}
	}
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Theirs") != "yes" ||
		readAll(t, resp.Body) != "short and stout" {
		t.Errorf("the reply did not come back: %v", resp)
	}
	for _, k := range []string{"X-Hop", "Keep-Alive"} {
		if resp.Header.Get(k) != "" {
			t.Errorf("%s came back", k)
		}
	}
	if resp.Header.Get(headerTarget) != up+"/base" || resp.Header.Get(headerReason) == "" ||
		resp.Header.Get(headerAttempts) != "1" {
		t.Errorf("the choice is not told: %v", resp.Header)
	}
	g.settled(t)
}

func TestGetHeadAndContinue(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			t.Error("Expect was passed on")
		}
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Body", fmt.Sprint(n))
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "1234")
			return
		}
		io.WriteString(w, `{"object":"list"}`)
	})
	g := newRig(t, rigConfig{}, up)

	resp, err := g.http.Get(g.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp.Body); got != `{"object":"list"}` {
		t.Errorf("GET: %q", got)
	}
	resp.Body.Close()

	resp, err = g.http.Head(g.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength != 1234 {
		t.Errorf("HEAD: %v", resp)
	}

	// The gateway itself answers the expectation; the client of net/http would
	// send the body after a while anyway, so this is by hand.
	c := dial(t, g)
	fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	r := bufio.NewReader(c)
	if line, _ := r.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("no 100 Continue but %q", line)
	}
	r.ReadString('\n')
	io.WriteString(c, "12345")
	resp, err = http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-Body") != "5" {
		t.Errorf("after 100 Continue: %v", resp.Header)
	}
	c.Close()
	g.settled(t)
}

func dial(t *testing.T, g *rig) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// TestFlush sees each event before the next one is sent.
func TestFlush(t *testing.T) {
	saw := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 5 {
			event(w, fmt.Sprint(i))
			select {
			case <-saw:
			case <-time.After(10 * time.Second):
				t.Error("the event did not get through")
			}
		}
	})
	g := newRig(t, rigConfig{}, up)
	resp := g.post(t, "/v1/chat/completions", streamBody)
	r := bufio.NewReader(resp.Body)
	for i := range 5 {
		if got := nextData(t, r); got != fmt.Sprint(i) {
			t.Fatalf("event %d is %q", i, got)
		}
		saw <- struct{}{}
	}
	g.settled(t)
}

// TestFirstToken holds prefill to be over at the first data, not at a comment
// that only keeps the connection alive.
func TestFirstToken(t *testing.T) {
	step := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": data: not yet\n\n")
		w.(http.Flusher).Flush()
		<-step
		event(w, "now")
		<-step
	})
	g := newRig(t, rigConfig{}, up)
	resp := g.post(t, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"`+strings.Repeat("long ", 100)+`"}]}`)
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || line != ": data: not yet\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := g.view.Snapshot()[0].Target.Load.Prefill; n == 0 {
		t.Error("a comment ended the prefill")
	}
	step <- struct{}{}
	nextData(t, r)
	if l := g.view.Snapshot()[0].Target.Load; l.Prefill != 0 || l.InFlight != 1 {
		t.Errorf("after the first event: %+v", l)
	}
	step <- struct{}{}
	readAll(t, r)
	g.settled(t)
}

// TestClientGoes ends the request at the target and takes it off the counts,
// before the reply has begun and in its midst.
func TestClientGoes(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun=%v", begun), func(t *testing.T) {
			arrived, ended := make(chan struct{}), make(chan struct{})
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if begun {
					event(w, "1")
				}
				close(arrived)
				<-r.Context().Done()
				close(ended)
			})
			g := newRig(t, rigConfig{}, up, up+"/b")
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(streamBody))
			go func() {
				<-arrived
				cancel()
			}()
			resp, err := g.http.Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the reply looks complete")
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the target goes on")
			}
			g.settled(t)
			eventually(t, "the end is reported", func() bool { return len(g.ended()) > 0 }) // after the counters fell
			o := g.ended()
			if len(o) != 1 || o[0].Stage != router.Canceled {
				t.Errorf("ended as %+v", o)
			}
			for _, s := range g.view.Snapshot() {
				if s.Failures != 0 {
					t.Errorf("%s is blamed", s.Target.ID)
				}
			}
		})
	}
}

// TestLearn holds what is given to Done against what the engine says, for each
// API, streamed and not.
func TestLearn(t *testing.T) {
	leakCheck(t)
	s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, ReplyTokens: 40})
	t.Cleanup(s.Close)
	g := newRig(t, rigConfig{}, s.URL)
	long := strings.Repeat("all work and no play ", 20)
	bodies := map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"` + long + `"}]`,
		"/v1/completions":      `{"prompt":"` + long + `"`,
		"/v1/messages":         `{"max_tokens":40,"messages":[{"role":"user","content":"` + long + `"}]`,
	}
	n := 0
	for path, body := range bodies {
		replies := map[string]bool{}
		for _, tail := range []string{`}`, `,"stream":true,"stream_options":{"include_usage":true}}`} {
			before := s.Stats()
			resp := g.post(t, path, body+tail)
			readAll(t, resp.Body)
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", path, resp.Status)
			}
			g.settled(t)
			after := s.Stats()
			o := g.ended()
			if n++; len(o) != n {
				t.Fatalf("%d requests ended, want %d", len(o), n)
			}
			got := o[n-1]
			replies[got.Reply] = true
			got.Reply = ""
			want := router.Outcome{
				Stage: router.Finished, Status: 200,
				PromptTokens:   int(after.PromptTokens - before.PromptTokens),
				CachedTokens:   int(after.CachedTokens - before.CachedTokens),
				OutputTokens:   int(after.OutputTokens - before.OutputTokens),
				CachedReported: true,
				Streamed:       strings.Contains(tail, "stream"),
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s%s (-want +got):\n%s", path, tail, d)
			}
		}
		if len(replies) != 1 || replies[""] {
			t.Errorf("%s: streamed and not, the reply's text differs or is empty: %v", path, replies)
		}
	}
}

func TestCompressed(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, chatBody)
	z.Close()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if _, coded := r.Header["Content-Encoding"]; coded || string(b) != chatBody || r.ContentLength != int64(len(b)) {
			t.Errorf("the body did not come decoded: %v, %d bytes", r.Header, len(b))
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(zipped.Bytes())
	})
	g := newRig(t, rigConfig{}, up)
	req, _ := http.NewRequest("POST", g.url+"/v1/chat/completions", bytes.NewReader(zipped.Bytes()))
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("X-Session-Id", "s1")
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := readAll(t, resp.Body); got != zipped.String() {
		t.Error("the reply was changed")
	}
	g.settled(t)
	if p := g.prompts[0]; p.Text == "" || p.Model != "m" || p.Session == "" {
		t.Errorf("routed as %+v", p)
	}
	if o := g.ended()[0]; o.Stage != router.Finished || o.Reply != "" {
		t.Errorf("ended as %+v", o)
	}
}

// TestNotUnderstood forwards and counts what no parser knows.
func TestNotUnderstood(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		entered <- struct{}{}
		<-leave
	})
	g := newRig(t, rigConfig{}, up)
	for _, c := range []struct{ path, body string }{
		{"/inference/v1/generate", `{"x":1}`}, {"/v1/chat/completions", `{"messages":`}, {"/v1/rerank", "\x00\xff"},
		{"/", ""},
	} {
		done := make(chan int)
		go func() {
			resp, err := g.http.Post(g.url+c.path, "", strings.NewReader(c.body))
			if err != nil {
				t.Error(err)
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		<-entered
		if n := g.view.Snapshot()[0].Target.Load.InFlight; n != 1 {
			t.Errorf("%s: %d in flight", c.path, n)
		}
		leave <- struct{}{}
		if s := <-done; s != 200 {
			t.Errorf("%s: status %d", c.path, s)
		}
	}
	g.settled(t)
}

// brokenBody fails when it is closed.
type brokenBody struct{ io.ReadCloser }

func (b brokenBody) Close() error {
	b.ReadCloser.Close()
	return io.ErrClosedPipe
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCloseFails(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { event(w, "1") })
	tr := NewTransport(func() egress.Policy { return egress.Policy{} })
	tr.DisableKeepAlives = true
	g := newRig(t, rigConfig{Config: Config{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		resp, err := tr.RoundTrip(r)
		if err == nil {
			resp.Body = brokenBody{resp.Body}
		}
		return resp, err
	})}}, up)
	if got := readAll(t, g.post(t, "/v1/chat/completions", streamBody).Body); got != "data: 1\n\n" {
		t.Errorf("got %q", got)
	}
	g.settled(t)
}

func TestTransportPanics(t *testing.T) {
	g := newRig(t, rigConfig{Config: Config{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		r.Body.Close()
		panic("boom")
	})}}, "http://127.0.0.1:1")
	if _, err := g.http.Post(g.url+"/v1/chat/completions", "", strings.NewReader(chatBody)); err == nil {
		t.Error("a reply came")
	}
	g.settled(t)
}

func TestWebSocketsAreRefused(t *testing.T) {
	var asked atomic.Int32
	g := newRig(t, rigConfig{}, upstream(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	req, _ := http.NewRequest("GET", g.url+"/v1/realtime", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotImplemented || asked.Load() != 0 {
		t.Errorf("status %d, asked %d times", resp.StatusCode, asked.Load())
	}
}

// TestLongBodyIsRead: -max-body is what bounds a body, also beyond what package
// prompt reads by itself.
func TestLongBodyIsRead(t *testing.T) {
	g := newRig(t, rigConfig{Config: Config{MaxBody: 80 << 20, Log: discard}},
		upstream(t, func(http.ResponseWriter, *http.Request) {}))
	body := make([]byte, 0, 70<<20)
	body = append(body, `{"model":"m","prompt":"`...)
	body = append(body, bytes.Repeat([]byte("x"), 65<<20)...)
	body = append(body, `"}`...)
	p, _ := g.h.parse(new(membudget.Hold), httptest.NewRequest("POST", "/v1/completions", nil), body)
	if p.Model != "m" || len(p.Text) != 65<<20 {
		t.Errorf("the model is %q, %d bytes of text", p.Model, len(p.Text))
	}
}
