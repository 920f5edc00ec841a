package errclass_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/errclass"
)

const secret = "sk-canary-0123"

// raw serves each connection with bytes and closes it.
func raw(t *testing.T, bytes string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, bytes)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return "http://" + ln.Addr().String()
}

// TestReplies: whatever an HTTP server answers, the text of the error has none of it, and it is the error that it was.
func TestReplies(t *testing.T) {
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 1000, ResponseHeaderTimeout: time.Minute}
	for bytes, want := range map[string]string{
		secret:                            errclass.Malformed,
		"HTTP/1.1 " + secret + "\r\n\r\n": errclass.Malformed,
		"HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n":                                      errclass.Malformed,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n":                   errclass.Failed,
		"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n":                      errclass.Failed,
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: " + secret + "\r\n\r\n": errclass.Failed,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat(secret, 1000) + "\r\n\r\n":             errclass.TooLarge,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secret + "\r\n":        errclass.Malformed,
		"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + secret:                        errclass.Closed,
		"": errclass.Closed,
	} {
		r, err := http.NewRequest("GET", raw(t, bytes), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%.60q is taken", bytes)
			continue
		}
		got := errclass.Wrap(err)
		if strings.Contains(got.Error(), secret) || fmt.Sprintf("%v %s %+v", got, got, fmt.Errorf("x: %w", got)) !=
			fmt.Sprintf("%s %[1]s x: %[1]s", got.Error()) {
			t.Errorf("%.60q: %v", bytes, got)
		}
		if !errors.Is(got, err) || errclass.Text(fmt.Errorf("x: %w", got)) != err.Error() || errclass.Wrap(got) != got {
			t.Errorf("%.60q: %v is not %v", bytes, got, err)
		}
		if c := errclass.Of(err); c != want && !(want == errclass.Malformed && c == errclass.Failed) {
			t.Errorf("%.60q: %s, want %s (%v)", bytes, c, want, err)
		}
	}
}

func TestClasses(t *testing.T) {
	refusing := raw(t, "")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := ln.Addr().String()
	_ = ln.Close()
	_, refused := net.Dial("tcp", free)
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	_, late := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(refusing, "http://"))
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	_, untrusted := http.Get(server.URL)
	_, plain := http.Get(strings.Replace(refusing, "http", "https", 1))
	denied := egress.Policy{BlockLoopback: true}.CheckURL("http://127.0.0.1")
	for want, err := range map[string]error{
		"": nil, errclass.Refused: refused, errclass.TimedOut: late, errclass.Name: &net.DNSError{Name: secret},
		errclass.Canceled: fmt.Errorf("x: %w", context.Canceled), errclass.Authority: untrusted,
		errclass.Malformed: json.Unmarshal([]byte(`{"`+secret+`":x}`), new(any)), errclass.Closed: io.ErrUnexpectedEOF,
		errclass.Failed: errors.New(secret),
	} {
		if got := errclass.Of(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		var timeout net.Error
		if w := errclass.Wrap(err); errors.As(w, &timeout) && timeout.Timeout() != (want == errclass.TimedOut) {
			t.Errorf("%v: a time-out", err)
		}
	}
	if c := errclass.Of(plain); c == "" || strings.Contains(errclass.Wrap(plain).Error(), "127") {
		t.Errorf("%v: %s", plain, c)
	}
	if got := errclass.Wrap(fmt.Errorf("%s: %w", secret, denied)); got.Error() != denied.Error() {
		t.Errorf("a denied address: %v", got)
	}
	if errclass.Wrap(nil) != nil || errclass.Text(nil) != "" {
		t.Error("nil")
	}
}
