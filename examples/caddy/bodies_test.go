package warmroute

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestBodyUntouched: whatever the body's length and framing, the replica gets each
// byte, with the framing that the client chose.
func TestBodyUntouched(t *testing.T) {
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
		w.Write(b)
	})
	h := start(t, "reverse_proxy "+echo.addr+" {\nlb_policy warmroute {\nmax_body 10kB\nmax_bodies 15kB\n}\n}")
	long := []byte(strings.Repeat("0123456789abcdef", 1000))
	unread := uint64(0)
	for _, n := range []int{0, 1, 9_999, 10_000, 10_001, 16_000} {
		for _, chunked := range []bool{false, true} {
			body := io.Reader(bytes.NewReader(long[:n]))
			want := fmt.Sprint(n)
			if chunked {
				body = struct{ io.Reader }{body}
				want = "-1"
			}
			resp, err := h.client.Post("http://localhost/v1/chat/completions", "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if n > 10_000 {
				unread++
			}
			if length := resp.Header.Get("X-Length"); err != nil || !bytes.Equal(got, long[:n]) || length != want && n > 0 {
				t.Errorf("%d bytes, chunked %v: %d came, Content-Length %s, %v", n, chunked, len(got), length, err)
			}
		}
	}
	if s := h.idle(t); s.Unread != unread || s.Finished != 12 {
		t.Errorf("%+v", s)
	}
}

// TestTooManyBodies: a body beyond the budget is forwarded as well, and the budget
// comes back.
func TestTooManyBodies(t *testing.T) {
	gate := make(chan struct{})
	slow := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		<-gate
		fmt.Fprint(w, n)
	})
	h := start(t, "reverse_proxy "+slow.addr+" {\nlb_policy warmroute {\nmax_body 10kB\nmax_bodies 15kB\n}\n}")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if a := h.ask(context.Background(), make([]byte, 9000), nil); a.body != "9000" {
				t.Errorf("%+v", a)
			}
		})
	}
	eventually(t, "four are there", func() bool { return slow.got.Load() == 4 })
	close(gate)
	wg.Wait()
	if s := h.idle(t); s.Unread != 3 || s.Finished != 4 {
		t.Errorf("%+v", s)
	}
	// The budget is returned at the end of the request's context, a moment after.
	eventually(t, "room again", func() bool {
		before := h.status(t).Unread
		h.ask(context.Background(), make([]byte, 9000), nil)
		return h.status(t).Unread == before
	})
}

// TestBrokenBody: a client that does not send all of its body is its own fault: no
// upstream is shunned for it, and none is sent the request again.
func TestBrokenBody(t *testing.T) {
	for name, limit := range map[string]string{"read": "", "passed on": "max_body 1kB"} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, ok), serve(t, ok)
			h := start(t, "request_body {\nmax_size 8kB\n}\nreverse_proxy "+a.addr+" "+b.addr+
				" {\nlb_policy warmroute round_robin {\n"+limit+
				"\n}\nlb_retries 3\nlb_retry_match {\nmethod POST\n}\nfail_duration 1h\n}")
			for i := range 4 {
				c, err := net.Dial("unix", filepath.Join(h.dir, "site"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n%s",
					strings.Repeat("x", 2000))
				c.(*net.UnixConn).CloseWrite()
				if i%2 == 0 {
					said, _ := io.ReadAll(c)
					if !bytes.HasPrefix(said, []byte("HTTP/1.1 499 ")) {
						t.Errorf("to half a body: %q", said)
					}
				}
				c.Close()
				// A chunked one, without a length known in advance.
				req, err := http.NewRequest(http.MethodPost, "http://localhost/",
					struct{ io.Reader }{bytes.NewReader(make([]byte, 9000))})
				if err != nil {
					t.Fatal(err)
				}
				req.Close = true // Caddy closes it too, having not read the rest
				resp, err := h.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusRequestEntityTooLarge {
					t.Errorf("over request_body's limit: %s", resp.Status)
				}
			}
			h.idle(t)
			for range 4 { // both are there still
				if a := h.ask(context.Background(), []byte("{}"), nil); a.status != http.StatusOK {
					t.Errorf("%+v", a)
				}
			}
			if s := h.idle(t); s.Failed != 0 || s.Finished != 4 || a.got.Load() < 2 || b.got.Load() < 2 {
				t.Errorf("%+v, %d and %d requests", s, a.got.Load(), b.got.Load())
			}
		})
	}
}
