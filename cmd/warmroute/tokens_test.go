package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// logged collects what a gateway logs.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestMemo: the gateway learns ids where the client asks for them, gives none that
// are wrong, and never predicts more than the engine has.
func TestMemo(t *testing.T) {
	leakCheck(t)
	f := newFleet(t, 2, 400)
	g := newRig(t, rigConfig{
		Config: Config{Log: discard}, events: f.events, mode: file.TokensFromMemo,
		settings: "[routes.precise_cache_aware]\npresume_for = -1\n",
	}, f.urls...)
	f.connected(t, g)
	r := rand.New(rand.NewPCG(3, 4))
	none := func(uint64) bool { return false }
	var c *talk
	byTokens := 0
	for i := range 150 {
		if c == nil || c.left == 0 {
			c = newTalk(r)
		}
		c.ask(r)
		want := f.tokens(t, c)
		f.current(t, g, none)
		h, v := g.talk(t, c, nil, `,"return_token_ids":true`)
		g.settled(t)
		g.mu.Lock()
		got := g.prompts[len(g.prompts)-1].Tokens
		g.mu.Unlock()
		if len(got) > len(want) {
			t.Fatalf("request %d: %d ids of %d", i, len(got), len(want))
		}
		for j := range got {
			if got[j] != want[j] {
				t.Fatalf("request %d: id %d is %d, not %d", i, j, got[j], want[j])
			}
		}
		if said := h.Get(headerCachedTokens); said != "" {
			byTokens++
			if n := 0; len(got) > 0 {
				fmt.Sscan(said, &n)
				if n > v.Usage.Details.Cached {
					t.Errorf("request %d: %d predicted, %d reported", i, n, v.Usage.Details.Cached)
				}
			}
		}
		if reason := router.Reason(h.Get(headerReason)); (len(got) == 0) != (reason == precisecacheaware.ReasonNoTokensText) {
			t.Errorf("request %d: %d ids, %s", i, len(got), reason)
		}
	}
	s := g.tokens().stats()
	if s.Partial == 0 || s.Whole+s.Partial != int64(byTokens) || s.None == 0 || s.Miscounted != 0 ||
		s.PartialJudged != s.Partial || s.PartialTooMuch != 0 {
		t.Errorf("%+v", s)
	}
	if p := g.service.precise(); p.Mismatched != 0 || p.Judged > s.Whole {
		t.Errorf("%+v", p)
	}
	t.Logf("%+v", s)
}

// TestMemoStream: a streamed reply is passed on as it is, learned from, and its
// usage is found, though the ids stand between.
func TestMemoStream(t *testing.T) {
	f := newFleet(t, 1, 4000)
	for _, stream := range []bool{true, false} {
		g := newRig(t, rigConfig{Config: Config{Log: discard}, events: f.events, mode: file.TokensFromMemo}, f.urls...)
		body := fmt.Sprintf(
			`{"stream":%v,"stream_options":{"include_usage":true},"return_token_ids":true,"messages":[{"role":"user","content":%q}]}`,
			stream, strings.Repeat("a long text ", 3000))
		for range 2 {
			resp := g.post(t, "/v1/chat/completions", body)
			readAll(t, resp.Body)
		}
		g.settled(t)
		o := g.ended()
		if len(o) != 2 || o[0].PromptTokens < 9000 || o[1].PromptTokens != o[0].PromptTokens || o[1].CachedTokens == 0 ||
			o[1].OutputTokens == 0 {
			t.Errorf("stream %v: %+v", stream, o)
		}
		if s := g.tokens().stats(); s.Whole != 1 || s.Memo.Learned != 2 || s.Miscounted != 0 {
			t.Errorf("stream %v: %+v", stream, s)
		}
	}
}

// TestBadTokenSources: whatever /tokenize does, requests are answered and routed by
// their text, a dead one does not cost each of them its timeout, and it is logged
// once.
func TestBadTokenSources(t *testing.T) {
	engine := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, ReplyTokens: 4, Events: &vllmtest.Events{}})
	t.Cleanup(engine.Close)
	base, err := url.Parse(engine.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, tokenize := range map[string]http.HandlerFunc{
		"no such route": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, `{"detail":"Not Found"}`)
		},
		"wrong shape": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"tokens":"1 2 3"}`) },
		"wrong count": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"count":9,"tokens":[1]}`)
		},
		"error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"hangs": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"breaks off": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			proxy := httputil.NewSingleHostReverseProxy(base)
			proxy.Transport = &http.Transport{DisableKeepAlives: true}
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/tokenize" {
					asked.Add(1)
					tokenize(w, r)
					return
				}
				proxy.ServeHTTP(w, r)
			})
			var log logged
			g := newRig(t, rigConfig{
				Config: Config{Log: log.logger()}, mode: file.TokensFromTokenize,
				events: kvEvents{{engine.Events().Endpoint(), engine.Events().ReplayEndpoint()}},
			}, up)
			begun := time.Now()
			for i := range 30 {
				c := &talk{said: []said{{"user", fmt.Sprint("Request ", i)}}}
				h, _ := g.talk(t, c, nil, "")
				if r := router.Reason(h.Get(headerReason)); r != precisecacheaware.ReasonNoTokensText ||
					h.Get(headerCachedTokens) != "" {
					t.Errorf("request %d: %s, %q", i, r, h.Get(headerCachedTokens))
				}
			}
			s := g.tokens().stats()
			// The backoff begins with a second and doubles; the timeout is a second.
			if n := asked.Load(); n < 1 || int(n) > 2+int(time.Since(begun)/time.Second) {
				t.Errorf("asked %d times in %v", n, time.Since(begun))
			}
			if s.None != 30 || s.Whole != 0 || s.Tokenize.Failed+s.Tokenize.NoTarget != 30 ||
				s.Tokenize.Failures != uint64(asked.Load()) || s.Tokenize.Failing != 1 {
				t.Errorf("%+v, %+v", s, s.Tokenize)
			}
			if n := log.count(`msg="no token ids`); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

// TestWrongTokens: an engine with a /tokenize of other ids than it uses is found
// out by its own count, and its ids are left out.
func TestWrongTokens(t *testing.T) {
	engine := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, ReplyTokens: 4, Events: &vllmtest.Events{}})
	t.Cleanup(engine.Close)
	base, _ := url.Parse(engine.URL)
	proxy := httputil.NewSingleHostReverseProxy(base)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			io.WriteString(w, `{"count":3,"tokens":[1,2,3]}`)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	var log logged
	g := newRig(t, rigConfig{
		Config: Config{Log: log.logger()}, mode: file.TokensFromTokenize,
		events: kvEvents{{engine.Events().Endpoint(), engine.Events().ReplayEndpoint()}},
	}, up)
	for i := range 5 {
		c := &talk{said: []said{{"user", fmt.Sprint("Request ", i)}}}
		h, _ := g.talk(t, c, nil, "")
		if byText := h.Get(headerReason) == string(precisecacheaware.ReasonNoTokensText); byText != (i > 0) {
			t.Errorf("request %d: %s", i, h.Get(headerReason))
		}
		g.settled(t)
	}
	s := g.tokens().stats()
	if s.Miscounted != 1 || s.Tokenize.Mismatches != 1 || s.Tokenize.Contradicted != 4 || log.count("contradict") != 1 {
		t.Errorf("%+v, %+v", s, s.Tokenize)
	}
}

// TestMismatch: a prediction that does not come true, here because all events of
// evictions are lost, is counted and logged.
func TestMismatch(t *testing.T) {
	f := newFleet(t, 1, 60)
	var log logged
	g := newRig(t, rigConfig{
		Config: Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		events: f.events, settings: "[routes.precise_cache_aware]\npresume_for = -1\n",
	}, f.urls...)
	f.connected(t, g)
	send := func(text string) {
		c := &talk{said: []said{{"user", strings.Repeat(text, 30)}}}
		ids := f.tokens(t, c)
		g.talk(t, c, ids, "")
		g.settled(t)
	}
	for range 2 {
		send("the same text ")
		f.current(t, g, func(uint64) bool { return false })
	}
	if s := g.service.precise(); s.Judged == 0 || s.Mismatched != 0 {
		t.Fatalf("%+v", s)
	}
	f.servers[0].Events().Drop(func(uint64) bool { return true })
	for i := range 10 {
		send(fmt.Sprint("another text ", i))
	}
	before := g.service.precise()
	send("the same text ")
	after := g.service.precise()
	if after.Mismatched != before.Mismatched+1 || after.PredictedTooMuch != before.PredictedTooMuch+1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if n := log.count(`msg="cached tokens"`); int64(n) != after.Mismatched {
		t.Errorf("told %d times of %d", n, after.Mismatched)
	}
}

// TestPage reads the page, which is there with precise_cache_aware alone.
func TestPage(t *testing.T) {
	f := newFleet(t, 1, 400)
	g := newRig(t, rigConfig{Config: Config{Log: discard}, events: f.events, mode: file.TokensFromTokenize}, f.urls...)
	f.connected(t, g)
	g.talk(t, &talk{said: []said{{"user", "hello"}}}, nil, "")
	resp, err := g.http.Get(g.url + debugPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v page
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v.Precise == nil || v.Tokens == nil || v.Tokens.Tokenize == nil || v.Tokens.Whole != 1 ||
		v.Precise.Targets[f.urls[0]].Stream.Connects != 1 {
		t.Errorf("%+v", v)
	}
	post := g.post(t, debugPath, "{}")
	if post.StatusCode != 405 {
		t.Errorf("POST: %s", post.Status)
	}
	silent := newRig(t, rigConfig{Config: Config{Log: discard, Silent: true}, events: f.events}, f.urls...)
	if got := silent.status(t, debugPath); got != 404 {
		t.Errorf("with -silent clients get %d", got)
	}
	page := &livePage{Page: must(debugui.New(debugui.Config{})), counts: http.HandlerFunc(silent.service.serveCounts)}
	operators := httptest.NewServer(page.handler())
	defer operators.Close()
	if resp, err := http.Get(operators.URL + debugPath); err != nil || resp.StatusCode != 200 || resp.Body.Close() != nil {
		t.Errorf("operators get %v, %v", resp, err)
	}
	plain := newRig(t, rigConfig{}, upstream(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(418) }))
	if resp := plain.post(t, debugPath, "{}"); resp.StatusCode != 404 {
		t.Errorf("without it there is no such path: %s", resp.Status)
	}
}

// TestPreciseFlags starts the command as its flags say and sends a request.
func TestPreciseFlags(t *testing.T) {
	leakCheck(t)
	f := newFleet(t, 2, 400)
	for _, extra := range []string{"", "-tokens memo", "-tokens tokenize", "-tokens header"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		args := []string{"-listen", address, "-strategy", precisecacheaware.Name, "-drain-delay", "1ms"}
		for i, u := range f.urls {
			args = append(args, "-target", u, "-kv-events", f.events[i].events+","+f.events[i].replay)
		}
		args = append(args, strings.Fields(extra)...)
		ctx, stop := context.WithCancel(t.Context())
		var log logged
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, args, io.Discard, &log) }()
		eventually(t, "the streams are followed", func() bool {
			return f.servers[0].Events().Subscribers() == 1 && f.servers[1].Events().Subscribers() == 1
		})
		eventually(t, "a request is answered", func() bool {
			resp, err := http.Post("http://"+address+"/v1/chat/completions", "application/json", strings.NewReader(chatBody))
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			want := extra == "-tokens tokenize"
			return resp.StatusCode == 200 && (resp.Header.Get(headerCachedTokens) != "") == want
		})
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%q: %v", extra, err)
		}
		if log.count("msg=predictions") != 1 ||
			(log.count("msg=tokens") == 1) != (extra == "-tokens memo" || extra == "-tokens tokenize") {
			t.Errorf("%q: the last lines are not there:\n%s", extra, log.b.String())
		}
		eventually(t, "the sockets are closed", func() bool {
			return f.servers[0].Events().Subscribers() == 0 && f.servers[1].Events().Subscribers() == 0
		})
	}
}
