package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestEnvoyWrongReplica: of two endpoints one answers 503 to everything. The other serves every request, and nothing
// stays in flight.
func TestEnvoyWrongReplica(t *testing.T) {
	var ids []string
	for _, wrong := range []bool{true, false} {
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			if wrong {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
				return
			}
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"right"}}]}`)
		}))
		t.Cleanup(e.Close)
		ids = append(ids, strings.TrimPrefix(e.URL, "http://"))
	}
	s := serve(t, Config{}, 0, ids...)
	c := envoy(t, s.addr, ids)
	for range 20 {
		status, _, body, err := chat(t.Context(), c, ask(false, 5, user("Hello?")), nil, nil)
		if status != http.StatusOK || err != nil || !strings.Contains(body, "right") {
			t.Errorf("status %d, %v: %s", status, err, body)
		}
	}
	s.idle(t)
}
