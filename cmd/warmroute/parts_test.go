package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		in, id string
		weight float64
	}{
		{"http://a:8000", "http://a:8000", 1},
		{"https://a/x/=2.5", "https://a/x", 2.5},
		{"http://[::1]:80=3", "http://[::1]:80", 3},
		{"a:8000", "", 0}, {"ftp://a", "", 0}, {"http://", "", 0}, {"http://a=0", "", 0}, {"http://a=-1", "", 0},
		{"http://a=NaN", "", 0}, {"http://a=Inf", "", 0}, {"http://a=x", "", 0}, {"http://a=", "", 0},
		{"http://a?b=1", "", 0}, {"http://u:p@a", "", 0}, {"http://a#b", "", 0}, {"", "", 0},
	} {
		m, err := parseTarget(c.in)
		if (err == nil) != (c.id != "") {
			t.Errorf("%q: %v", c.in, err)
		} else if err == nil && (m.url != c.id || m.weight != c.weight) {
			t.Errorf("%q: %q, %v", c.in, m.url, m.weight)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range []string{
		"", "-target x", "-target http://a -target http://a", "-target http://a extra", "-target http://a -strategy best",
		"-target http://a -kv-events tcp://a:1", "-target http://a -tokens memo", "-target http://a -kv-topic x",
		"-target http://a -strategy precise_cache_aware", "-target http://a -strategy precise_cache_aware -kv-events x",
		"-target http://a -strategy precise_cache_aware -kv-events tcp://a:1,",
		"-target http://a -strategy precise_cache_aware -kv-events ,tcp://a:1",
		"-target http://a -strategy precise_cache_aware -kv-events tcp://a:1 -kv-events tcp://a:2",
		"-target http://a -strategy precise_cache_aware -kv-events tcp://169.254.169.254:1",
		"-target http://a -strategy precise_cache_aware -kv-events tcp://a:1 -tokens guess",
		"-target http://a -attempts 0", "-target http://a -max-body -1", "-target http://a -max-text -1",
		"-target http://a -idle-timeout -1s", "-target http://a -listen nowhere:at:all", "-unknown",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// TestRun starts the whole program with each strategy and ends it.
func TestRun(t *testing.T) {
	for name := range file.Strategies() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		args := []string{"-listen", "127.0.0.1:0", "-target", "http://127.0.0.1:1=2", "-strategy", name, "-drain-delay", "0s"}
		if name == precisecacheaware.Name {
			args = append(args, "-kv-events", "tcp://127.0.0.1:1,tcp://127.0.0.1:1")
		}
		var log bytes.Buffer
		if err := run(ctx, args, io.Discard, &log); err != nil {
			t.Errorf("%s: %v\n%s", name, err, log.String())
		}
	}
}

func TestTenant(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range []http.Header{{}, {"Authorization": {"Bearer a"}}, {"Authorization": {"Bearer b"}},
		{"X-Api-Key": {"a"}}} {
		s := tenant(h)
		if seen[s] || strings.Contains(s, "Bearer") || s != tenant(h) {
			t.Errorf("%v: %q", h, s)
		}
		seen[s] = true
	}
}

// TestMeter feeds one stream cut at every byte.
func TestMeter(t *testing.T) {
	stream := ": data: comment\r\n\r\nevent: x\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi " +
		"\\\"usage\\\":{\\\"prompt_tokens\\\":99}\"}}]}\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}` +
		"\n\ndata: [DONE]\n\n"
	first := strings.Index(stream, "\ndata:") + len("\ndata:")
	want := router.Outcome{PromptTokens: 7, CachedTokens: 5, OutputTokens: 3, CachedReported: true, Streamed: true}
	var text string
	for cut := range len(stream) {
		m := newMeter(&http.Response{StatusCode: 200,
			Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}},
			router.Prompt{Text: "x"}, "/v1/chat/completions")
		a, b := m.firstToken([]byte(stream[:cut])), m.firstToken([]byte(stream[cut:]))
		if a != (cut >= first) || b == a {
			t.Fatalf("cut at %d of %d: first token in %v, %v", cut, first, a, b)
		}
		m.observe([]byte(stream[:cut]))
		m.observe([]byte(stream[cut:]))
		var o router.Outcome
		m.report(&o, nil)
		if cut == 0 {
			text = o.Reply
		}
		if o.Reply != text || text == "" {
			t.Fatalf("cut at %d: reply %q, want %q", cut, o.Reply, text)
		}
		o.Reply = ""
		if d := cmp.Diff(want, o); d != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, d)
		}
	}
}

// FuzzMeter holds that no reply makes the meter fail or report nonsense.
func FuzzMeter(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":1}}`), 3)
	f.Add([]byte("data: {\"usage\":{\"input_tokens\":-5}}\n\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		m := newMeter(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}},
			router.Prompt{Text: "x"}, "/v1/chat/completions")
		step = max(step&0xfff, 1)
		for rest := b; len(rest) > 0; {
			n := min(step, len(rest))
			m.firstToken(rest[:n])
			m.observe(rest[:n])
			rest = rest[n:]
		}
		var o router.Outcome
		m.report(&o, nil)
		if o.PromptTokens < 0 || o.CachedTokens < 0 || o.OutputTokens < 0 || len(o.Reply) > prompt.DefaultReply {
			t.Errorf("%+v", o)
		}
	})
}

// TestBodyReaders lends a buffer again only when its last reader is closed.
func TestBodyReaders(t *testing.T) {
	p, err := reqbody.New(reqbody.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("first"))
	b, err := p.Read(httptest.NewRecorder(), r)
	if err != nil {
		t.Fatal(err)
	}
	one, two := bodyOf(b, edit{}), bodyOf(b, edit{})
	if got, err := io.ReadAll(one); string(got) != "first" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	b.Release()
	one.Close()
	one.Close() // gives nothing up twice
	if p.Used() == 0 {
		t.Error("given back while a reader is open")
	}
	if got, err := io.ReadAll(two); string(got) != "first" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	two.Close()
	if p.Used() != 0 {
		t.Error("not given back")
	}
	if _, err := two.Read(make([]byte, 1)); err == nil {
		t.Error("read after Close")
	}
}
