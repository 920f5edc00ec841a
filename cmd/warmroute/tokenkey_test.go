package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/router/config"
)

// keyed is an engine that notes which keys it is asked for tokens with.
type keyed struct {
	url string

	mu   sync.Mutex
	keys []string
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{}
	k.url = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/tokenize") {
			k.mu.Lock()
			k.keys = append(k.keys, r.Header.Get("Authorization"))
			k.mu.Unlock()
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 2, "tokens": []int{1, 2}})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"content":"x"}}]}`)
	})
	return k
}

// asked returns the keys since the last call.
func (k *keyed) asked() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := k.keys
	k.keys = nil
	return keys
}

// TestTokenizeKeys: a provider that has become another server, with another key, is
// not sent the key of the one before: neither while that one's ranks are on their way
// out, nor in the moment between the new targets and the new token source.
func TestTokenizeKeys(t *testing.T) {
	t.Setenv("OLD_KEY", "old")
	t.Setenv("NEW_KEY", "new")
	was, is := newKeyed(t), newKeyed(t)
	file := func(base, key, ranks string) string {
		return "[[providers]]\nname = \"p\"\napi_base = \"" + base + "\"\napi_key_env = \"" + key + "\"\n" + ranks +
			"[[routes]]\nmodel = \"m\"\ntoken_source = { kind = \"tokenize\" }\ntargets = [{ provider = \"p\" }]\n"
	}
	for _, ranks := range []string{"", "ranks = 2\n"} {
		g := serveFile(t, Config{Log: slog.New(slog.DiscardHandler)}, file(was.url, "OLD_KEY", ranks))
		ask := func(text string) {
			t.Helper()
			resp := g.post(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`)
			readAll(t, resp.Body)
			resp.Body.Close()
		}
		ask("one")
		if k := was.asked(); len(k) != 1 || k[0] != "Bearer old" {
			t.Errorf("at first: %v", k)
		}
		f, err := config.Parse([]byte(file(is.url, "NEW_KEY", "")), g.options)
		if err != nil {
			t.Fatal(err)
		}
		// Reload alone calls no hook, so the token source is the old one.
		if err := g.service.gateway.Reload(f); err != nil {
			t.Fatal(err)
		}
		ask("two")
		if k := is.asked(); len(k) > 0 {
			t.Errorf("ranks %q: before the update it is asked with %v", ranks, k)
		}
		if err := g.service.update(); err != nil {
			t.Fatal(err)
		}
		was.asked()
		for _, text := range []string{"three", "four", "five"} {
			ask(text)
		}
		if k := is.asked(); len(k) != 3 || k[0] != "Bearer new" || k[1] != "Bearer new" || k[2] != "Bearer new" {
			t.Errorf("ranks %q: the new server is asked with %v", ranks, k)
		}
		if k := was.asked(); len(k) > 0 {
			t.Errorf("ranks %q: the old server is asked with %v", ranks, k)
		}
	}
}
