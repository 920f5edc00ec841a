package main

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// TestFastAndWrong has 12 clients and 4 engines, of which one is fast and wrong. Its share must fall to a few percent,
// and if it fails before the first token, the clients do not notice.
func TestFastAndWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 12 s")
	}
	const token = `{"choices":[{"index":0,"delta":{"content":"x"}}]}`
	plain := func(status int, typ, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", typ)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		bad  http.HandlerFunc
		lost bool // a client notices
	}{
		"first token, then a reset": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, token)
			panic(http.ErrAbortHandler)
		}, true},
		"first token, then an error": {plain(200, "text/event-stream",
			"data: "+token+"\n\ndata: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n"), true},
		"an error as the first event": {plain(200, "text/event-stream",
			"data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\ndata: [DONE]\n\n"), false},
		"an error": {plain(200, "application/json", `{"error":{"message":"no","type":"server_error"}}`), false},
		"nothing":  {plain(200, "application/json", ""), false},
		"a page":   {plain(200, "text/html", "<!DOCTYPE html><html><body>Sign in</body></html>"), false},
		"a 500":    {plain(500, "application/json", `{"error":{"message":"no"}}`), false},
		"a login":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, false},
		"no model": {plain(404, "application/json", `{"error":{"message":"no","code":404}}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked, all, failed atomic.Int64
			bad := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.bad(w, r)
			})
			good := func() string {
				return upstream(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					time.Sleep(100 * time.Millisecond)
					w.Header().Set("Content-Type", "text/event-stream")
					event(w, token)
					event(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
					event(w, `[DONE]`)
				})
			}
			g := newRig(t, rigConfig{Config: Config{Log: discard}, options: router.Options{Backoff: -1}},
				bad, good(), good(), good())
			var clients sync.WaitGroup
			for i := range 12 {
				clients.Go(func() {
					for n := range 16 {
						body := `{"stream":true,"messages":[{"role":"user","content":"client ` + string(rune('a'+i)) +
							` asks number ` + string(rune('a'+n%26)) + `"}]}`
						resp := g.post(t, "/v1/chat/completions", body)
						b, err := io.ReadAll(resp.Body)
						all.Add(1)
						if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), `"content":"x"`) ||
							!strings.Contains(string(b), "[DONE]") {
							failed.Add(1)
						}
					}
				})
			}
			clients.Wait()
			g.settled(t)
			share := float64(asked.Load()) / float64(all.Load())
			t.Logf("%d of %d requests, %.1f%%; %d failed", asked.Load(), all.Load(), 100*share, failed.Load())
			if share > 0.1 {
				t.Errorf("the wrong one got %d of %d requests", asked.Load(), all.Load())
			}
			if n := failed.Load(); !c.lost && n > 0 || n > asked.Load() {
				t.Errorf("%d of %d requests failed", n, all.Load())
			}
		})
	}
}
