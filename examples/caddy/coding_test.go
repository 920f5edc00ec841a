package warmroute

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"testing"
)

// TestCodings: a compressed body comes to the upstream decoded, at every attempt, also if the site changes headers; an
// unknown coding is the client's fault.
func TestCodings(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Encoding") != "" || r.ContentLength != int64(len(b)) {
			t.Errorf("the upstream sees %v, %d bytes of %d", r.Header, len(b), r.ContentLength)
		}
		w.Write(b)
	})
	h := start(t, "reverse_proxy "+echo.addr+" {\nlb_policy warmroute\nheader_up X-Extra yes\n}")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	io.WriteString(w, body)
	w.Close()
	for _, c := range []struct {
		coding string
		body   []byte
		status int
	}{{"gzip", zipped.Bytes(), 200}, {"gzip", zipped.Bytes(), 200}, {"br", zipped.Bytes(), 415}, {"zstd", zipped.Bytes(),
		400}} {
		req, err := http.NewRequest("POST", "http://localhost/v1/chat/completions", bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", c.coding)
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || c.status == 200 && string(got) != body {
			t.Errorf("%s: %s %q, %v", c.coding, resp.Status, got, err)
		}
	}
	if s := h.idle(t); s.Failed != 0 || s.Finished != 2 {
		t.Errorf("%+v", s)
	}
}
