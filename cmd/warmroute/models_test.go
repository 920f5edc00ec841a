package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/vllmtest"
)

// echo is an engine that answers with the request.
type echo struct {
	url string

	mu     sync.Mutex
	header http.Header // of the last request
	status []int       // to answer with, one after the other; then 200
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.url = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.header = r.Header
		if int64(len(b)) != r.ContentLength {
			t.Errorf("Content-Length is %d, the body has %d bytes", r.ContentLength, len(b))
		}
		if len(e.status) > 0 {
			w.WriteHeader(e.status[0])
			e.status = e.status[1:]
		}
		w.Write(b)
	})
	return e
}

// routesFile has a route of every kind.
func routesFile(base string) string {
	return strings.ReplaceAll(`
[[providers]]
name = "plain"
api_base = "BASE/v1"
[[providers]]
name = "keyed"
api_base = "BASE"
api_key_env = "TEST_KEY"
headers_env = { x-team = "TEST_TEAM" }
[[providers]]
name = "ranked"
api_base = "BASE/ranked"
ranks = 2

[[routes]]
model = "llama"
aliases = ["gpt-4o"]
adapters = ["sql-lora"]
targets = [{ provider = "keyed", model = "meta/llama" }]
[[routes]]
model = "plain"
aliases = ["simple"]
targets = [{ provider = "plain" }]
[[routes]]
model = "qwen-*"
targets = [{ provider = "plain" }]
[[routes]]
model = "qwen-big-*"
targets = [{ provider = "plain", model = "qwen-huge" }]
[[routes]]
model = "dp"
strategy = "round_robin"
targets = [{ provider = "ranked" }]
`, "BASE", base)
}

func TestRoutes(t *testing.T) {
	t.Setenv("TEST_KEY", "secret")
	t.Setenv("TEST_TEAM", "blue")
	e := newEcho(t)
	g := serveFile(t, Config{Log: discard}, routesFile(e.url))
	for _, c := range []struct{ body, want, target string }{
		{`{"model":"llama","messages":[]}`, `{"model":"meta/llama","messages":[]}`, "keyed"},
		{`{ "stream":true , "model" : "gpt-4o" }`, `{ "stream":true , "model" : "meta/llama" }`, "keyed"},
		{`{"model":"sql-lora","n":1.0}`, `{"model":"sql-lora","n":1.0}`, "keyed"},
		{`{"model":"plain","n":1e999}`, `{"model":"plain","n":1e999}`, "plain"},
		{`{"model":"simple"}`, `{"model":"plain"}`, "plain"},
		{`{"model":"qwen-7b"}`, `{"model":"qwen-7b"}`, "plain"},
		{`{"model":"qwen-big-72b"}`, `{"model":"qwen-huge"}`, "plain"},
		{`{"model":"nobody","x":{"model":"llama"},"model":"llama"}`,
			`{"model":"meta/llama","x":{"model":"llama"},"model":"meta/llama"}`, "keyed"},
		{`{"model":"ll\u0061ma"}`, `{"model":"meta/llama"}`, "keyed"},
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions",
			"/tokenize", "/v1/rerank"} {
			resp := g.post(t, path, c.body)
			if got := readAll(t, resp.Body); resp.StatusCode != 200 || got != c.want ||
				resp.Header.Get(headerTarget) != c.target {
				t.Errorf("%s %s: %s from %q: %s, want %s", path, c.body, resp.Status, resp.Header.Get(headerTarget), got, c.want)
			}
		}
	}
	g.settled(t)
}

// TestUnknownModels are answered as the engines do, in the form of the OpenAI API.
func TestUnknownModels(t *testing.T) {
	t.Setenv("TEST_KEY", "secret")
	t.Setenv("TEST_TEAM", "blue")
	e := newEcho(t)
	file := routesFile(e.url)
	star := "[[routes]]\nmodel = \"*\"\ntargets = [{ provider = \"plain\" }]\n"
	only := "[[providers]]\nname = \"p\"\napi_base = \"" + e.url +
		"\"\n[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"p\", model = \"theirs\" }]\n"
	many, one, all := serveFile(t, Config{Log: discard}, file), serveFile(t, Config{Log: discard}, only),
		serveFile(t, Config{Log: discard}, file+star)
	const chat = "/v1/chat/completions"
	long := strings.Repeat("x", 1000)
	for _, c := range []struct {
		name   string
		g      *rig
		path   string
		body   string
		status int
		want   string // of the message, or of the body that was passed on
	}{
		{"unknown", many, chat, `{"model":"nope"}`, 404, "The model `nope` does not exist."},
		{"empty", many, chat, `{"model":""}`, 400, "names no model"},
		{"absent", many, chat, `{"messages":[]}`, 400, "names no model"},
		{"null last", many, chat, `{"model":"llama","model":null}`, 400, "names no model"},
		{"a number", many, chat, `{"model":7}`, 400, "names no model"},
		{"not JSON", many, chat, `hello`, 400, "names no model"},
		{"no body", many, "/version", "", 200, ""},
		{"long", many, chat, `{"model":"` + long + `"}`, 404, "xxx..."},
		{"too often", many, chat, `{` + strings.Repeat(`"model":"x",`, 100) + `"model":"llama"}`, 400, "too often"},
		{"the only route, another model", one, chat, `{"model":"nope"}`, 404, "`nope`"},
		{"the only route, absent", one, chat, `{"messages":[]}`, 200, `{"messages":[]}`},
		{"the only route, null", one, chat, `{"model":null}`, 200, `{"model":null}`},
		{"the only route, no body", one, "/version", "", 200, ""},
		{"the only route, renamed", one, chat, `{"model":"m"}`, 200, `{"model":"theirs"}`},
		{"a route for all", all, chat, `{"model":"nope"}`, 200, `{"model":"nope"}`},
		{"a route for all, absent", all, chat, `{"messages":[]}`, 200, `{"messages":[]}`},
		{"a route for all, not JSON", all, chat, `hello`, 200, `hello`},
		{"a route for all, another's", all, chat, `{"model":"llama"}`, 200, `{"model":"meta/llama"}`},
	} {
		resp := c.g.post(t, c.path, c.body)
		got := readAll(t, resp.Body)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s: %.300s", c.name, resp.Status, got)
			continue
		}
		if c.status == 200 {
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
			continue
		}
		var v struct {
			Error struct {
				Message, Type, Param string
				Code                 int
			}
		}
		if err := json.Unmarshal([]byte(got), &v); err != nil || !strings.Contains(v.Error.Message, c.want) ||
			v.Error.Code != c.status || v.Error.Param != "model" || v.Error.Type == "" || len(got) > 1000 {
			t.Errorf("%s: %v: %.300s", c.name, err, got)
		}
	}
	for _, g := range []*rig{many, one, all} {
		g.settled(t)
	}
}

// TestTargetHeaders: keys, further headers and ranks are the target's, whatever the
// client says, at the second attempt too.
func TestTargetHeaders(t *testing.T) {
	t.Setenv("TEST_KEY", "secret")
	t.Setenv("TEST_TEAM", "blue")
	e := newEcho(t)
	g := serveFile(t, Config{Log: discard}, routesFile(e.url))
	send := func(model string) (target string, got http.Header) {
		t.Helper()
		req, err := http.NewRequest("POST", g.url+"/v1/completions", strings.NewReader(`{"model":"`+model+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Authorization": "Bearer mine", "X-Team": "red", "X-data-parallel-rank": "7",
			"X-Other": "kept"} {
			req.Header.Set(k, v)
		}
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		readAll(t, resp.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.header.Get("X-Other") != "kept" {
			t.Errorf("%s: %v", model, e.header)
		}
		return resp.Header.Get(headerTarget), e.header
	}
	if _, h := send("plain"); h.Get("Authorization") != "Bearer mine" || h.Get("X-Team") != "red" {
		t.Errorf("a provider without a key: %v", h)
	}
	if _, h := send("llama"); len(h["Authorization"]) != 1 || h.Get("Authorization") != "Bearer secret" ||
		h.Get("X-Team") != "blue" {
		t.Errorf("a provider with a key: %v", h)
	}
	seen := make(map[string]bool)
	for i := range 6 {
		if i%2 == 1 {
			e.mu.Lock()
			e.status = []int{503}
			e.mu.Unlock()
		}
		target, h := send("dp")
		seen[target] = true
		if want := strings.TrimPrefix(target, "ranked/"); len(h["X-Data-Parallel-Rank"]) != 1 ||
			h.Get("X-Data-Parallel-Rank") != want {
			t.Errorf("%s: %v", target, h)
		}
	}
	if !seen["ranked/0"] || !seen["ranked/1"] {
		t.Errorf("asked: %v", seen)
	}
	g.settled(t)
}

// TestRanks: a session's turns are cached at the rank that had the first, which a
// replica of two ranks reports itself.
func TestRanks(t *testing.T) {
	s := vllmtest.NewServer(vllmtest.Config{Model: "m", Ranks: 2, TimeScale: 1e-6, ReplyTokens: 4,
		Adapters: []string{"lora"}})
	t.Cleanup(s.Close)
	g := serveFile(t, Config{Log: discard}, `
[[providers]]
name = "dp"
api_base = "`+s.URL+`"
ranks = 2
[[routes]]
model = "llama"
adapters = ["lora"]
strategy = "cache_aware"
targets = [{ provider = "dp", model = "m" }]
`)
	cached := func(model, text string) (string, int) {
		t.Helper()
		resp := g.post(t, "/v1/chat/completions",
			fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, text))
		var v reply
		if b := readAll(t, resp.Body); resp.StatusCode != 200 || json.Unmarshal([]byte(b), &v) != nil {
			t.Fatalf("%s: %s", resp.Status, b)
		}
		return resp.Header.Get(headerTarget), v.Usage.Details.Cached
	}
	used := make(map[string]bool)
	for i := range 8 {
		text := strings.Repeat(fmt.Sprintf("conversation %d, ", i), 50)
		first, none := cached("llama", text)
		again, some := cached("llama", text)
		if first != again || none != 0 || some < 100 {
			t.Errorf("conversation %d: %s, then %s with %d cached", i, first, again, some)
		}
		where, other := cached("lora", text)
		if other != 0 {
			t.Errorf("conversation %d: the adapter has %d cached of the model's", i, other)
		}
		if _, own := cached("lora", text); own < 100 {
			t.Errorf("conversation %d: the adapter has %d cached of its own", i, own)
		}
		used[first], used[where] = true, true
	}
	if len(used) != 2 {
		t.Errorf("used: %v", used)
	}
	g.settled(t)
}

func TestModels(t *testing.T) {
	t.Setenv("TEST_KEY", "secret")
	t.Setenv("TEST_TEAM", "blue")
	e := newEcho(t)
	g := serveFile(t, Config{Log: discard}, routesFile(e.url))
	resp, err := g.http.Get(g.url + modelsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	type model struct {
		ID      string  `json:"id"`
		Object  string  `json:"object"`
		Created int64   `json:"created"`
		OwnedBy string  `json:"owned_by"`
		Root    string  `json:"root"`
		Parent  *string `json:"parent"`
	}
	var v struct {
		Object string
		Data   []model
	}
	if err := json.Unmarshal([]byte(readAll(t, resp.Body)), &v); err != nil || resp.StatusCode != 200 ||
		v.Object != "list" {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	llama := "llama"
	want := []model{
		{ID: "llama", Root: "llama"}, {ID: "gpt-4o", Root: "llama"}, {ID: "sql-lora", Root: "sql-lora", Parent: &llama},
		{ID: "plain", Root: "plain"}, {ID: "simple", Root: "plain"}, {ID: "qwen-*", Root: "qwen-*"},
		{ID: "qwen-big-*", Root: "qwen-big-*"}, {ID: "dp", Root: "dp"},
	}
	for i := range want {
		want[i].Object, want[i].OwnedBy, want[i].Created = "model", "warmroute", g.service.began.Unix()
	}
	if d := cmp.Diff(want, v.Data); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if resp := g.post(t, modelsPath, "{}"); resp.StatusCode != 405 {
		t.Errorf("POST: %s", resp.Status)
	}
	// Behind a lone * the engines have the list.
	plain := newRig(t, rigConfig{}, e.url)
	if resp := plain.post(t, modelsPath, "passed on"); readAll(t, resp.Body) != "passed on" {
		t.Error("the list of the engines is hidden")
	}
}
