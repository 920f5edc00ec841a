package warmroute

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWrongReplica: of two upstreams one answers 503 to everything. The other serves every request.
func TestWrongReplica(t *testing.T) {
	var addrs []string
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
		addrs = append(addrs, strings.TrimPrefix(e.URL, "http://"))
	}
	h := start(t, "\treverse_proxy "+strings.Join(addrs, " ")+" {\n\t\tlb_policy warmroute least_work\n\t\tlb_retries 3\n"+
		"\t\tlb_retry_match {\n\t\t\tmethod POST\n\t\t}\n"+
		"\t\tlb_retry_match {\n\t\t\texpression `{rp.status_code} in [429, 500, 502, 503]`\n\t\t}\n\t\tflush_interval -1\n\t}\n")
	for range 20 {
		resp, err := h.client.Post("http://localhost/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hello?"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "right") {
			t.Errorf("%s, %v: %s", resp.Status, err, body)
		}
	}
}
