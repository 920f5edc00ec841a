package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

// TestLimits sends what is too much; none of it reaches a target.
func TestLimits(t *testing.T) {
	var asked atomic.Int32
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1) })
	big := strings.Repeat("x", 2000)
	sized := func(u string) *http.Request {
		r, _ := http.NewRequest("POST", u+"/v1/x", strings.NewReader(big))
		return r
	}
	chunked := func(u string) *http.Request {
		r, _ := http.NewRequest("POST", u+"/v1/x", io.MultiReader(strings.NewReader(big)))
		return r
	}
	for _, c := range []struct {
		name   string
		cfg    Config
		req    func(string) *http.Request
		status int
	}{
		{"body", Config{MaxBody: 1000}, sized, 413},
		{"chunked body", Config{MaxBody: 1000}, chunked, 413},
		{"all bodies", Config{MaxBodies: 1000}, sized, 503},
		{"all bodies, chunked", Config{MaxBodies: 1000}, chunked, 503},
		{"header", Config{}, func(u string) *http.Request {
			r := sized(u)
			r.Header.Set("X-Big", strings.Repeat("x", 80<<10))
			return r
		}, 431},
		{"just the limit", Config{MaxBody: 2000}, sized, 200},
		{"just the limit, chunked", Config{MaxBody: 2000}, chunked, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked.Store(0)
			g := newRig(t, rigConfig{Config: c.cfg}, up)
			resp, err := g.http.Do(c.req(g.url))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
			if want := c.status == 200; (asked.Load() == 1) != want {
				t.Errorf("the target was asked %d times", asked.Load())
			}
			g.settled(t)
		})
	}
}

// TestSilent: no reply, of a target or the gateway, has a header of the choice.
func TestSilent(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerTarget, "another gateway's")
		if r.URL.Path == "/v1/gone" {
			panic(http.ErrAbortHandler)
		}
	})
	for _, silent := range []bool{false, true} {
		g := newRig(t, rigConfig{Config: Config{Silent: silent}}, up)
		for _, path := range []string{"/v1/models", "/v1/gone"} {
			resp, err := g.http.Get(g.url + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			told := false
			for k := range resp.Header {
				told = told || strings.HasPrefix(k, "X-Warmroute-")
			}
			if told == silent {
				t.Errorf("silent %v, %s: %s, %v", silent, path, resp.Status, resp.Header)
			}
		}
	}
}

func TestMaxRequests(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	g := newRig(t, rigConfig{Config: Config{MaxRequests: 1}}, up)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := g.http.Get(g.url + "/v1/models"); err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	resp, err := g.http.Get(g.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	if resp, err = g.http.Get(g.url + "/healthz"); err != nil || resp.StatusCode != 200 {
		t.Errorf("a full gateway is not healthy: %v, %v", resp, err)
	}
	resp.Body.Close()
	close(leave)
	<-done
	g.settled(t)
}

func TestSlowBody(t *testing.T) {
	g := newRig(t, rigConfig{Config: Config{BodyTimeout: 50 * time.Millisecond}}, "http://127.0.0.1:1")
	c := dial(t, g)
	fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
		t.Errorf("%s, close %v", resp.Status, resp.Close)
	}
	g.settled(t)
}

// TestLongStream outlives every timeout that is not about standing still.
func TestLongStream(t *testing.T) {
	const pace, events = 50 * time.Millisecond, 60
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range events {
			event(w, fmt.Sprint(i))
			pause(r.Context(), pace)
		}
	})
	limit := 40 * pace // a machine that is busy may stand still for a while
	g := newRig(t, rigConfig{Config: Config{BodyTimeout: limit, WriteTimeout: limit, HeaderTimeout: limit,
		IdleTimeout: limit}}, up)
	if n := strings.Count(readAll(t, g.post(t, "/v1/chat/completions", streamBody).Body), "data: "); n != events {
		t.Errorf("%d events of %d", n, events)
	}
	g.settled(t)
}

// TestStuckClient ends the request at the target when its client stops reading.
func TestStuckClient(t *testing.T) {
	ended := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		chunk := make([]byte, 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	g := newRig(t, rigConfig{Config: Config{WriteTimeout: 100 * time.Millisecond}}, up)
	c := dial(t, g)
	fmt.Fprintf(c, "GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(15 * time.Second):
		t.Fatal("the target goes on")
	}
	g.settled(t)
}

// TestShutdown stops a server in the midst of a stream.
func TestShutdown(t *testing.T) {
	for _, c := range []struct {
		name   string
		grace  time.Duration
		finish bool
	}{{"finishes", 10 * time.Second, true}, {"is cut", 50 * time.Millisecond, false}} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan struct{})
			finish := make(chan struct{})
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				io.Copy(io.Discard, r.Body)
				event(w, "1")
				select {
				case <-finish:
					event(w, "2")
				case <-r.Context().Done():
				}
			})
			g := newRig(t, rigConfig{}, up)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			g.url = "http://" + ln.Addr().String()
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() {
				served <- (&server{log: discard, drain: 300 * time.Millisecond, grace: c.grace}).run(ctx, ln, g.h)
			}()
			health := func() int {
				resp, err := g.http.Get(g.url + "/healthz")
				if err != nil {
					return 0
				}
				resp.Body.Close()
				return resp.StatusCode
			}
			if s := health(); s != 200 {
				t.Fatalf("healthy: %d", s)
			}
			resp := g.post(t, "/v1/chat/completions", streamBody)
			r := bufio.NewReader(resp.Body)
			nextData(t, r)
			stop()
			eventually(t, "/healthz is 503", func() bool { return health() == 503 })
			eventually(t, "the port is closed", func() bool { return health() == 0 })
			if c.finish {
				close(finish)
				if got := nextData(t, r); got != "2" {
					t.Errorf("the stream went on with %q", got)
				}
			}
			_, err = io.Copy(io.Discard, r)
			if (err == nil) != c.finish {
				t.Errorf("the stream ended with %v", err)
			}
			if err := <-served; (err == nil) != c.finish {
				t.Errorf("the server ended with %v", err)
			}
			<-ended
			g.settled(t)
		})
	}
}

// TestStuckClientOfOurs: a client that asks for answers of the gateway's own and does
// not read them is let go like any other.
func TestStuckClientOfOurs(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) {})
	g := newRig(t, rigConfig{Config: Config{WriteTimeout: 100 * time.Millisecond, MaxBody: 1}}, up)
	for _, ask := range []string{"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n"} {
		c := dial(t, g)
		if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		many := []byte(strings.Repeat(ask, 1000))
		var err error
		for err == nil {
			_, err = c.Write(many)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20s: the gateway waits for ever", ask)
		}
	}
}

// TestSlowBodyIsTold: a body that comes too slowly is answered, though by then the
// time to take in an answer would be over if it had begun with the request.
func TestSlowBodyIsTold(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("a target was asked") })
	g := newRig(t, rigConfig{Config: Config{BodyTimeout: time.Second, WriteTimeout: time.Second}}, up)
	c := dial(t, g)
	fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestUnreadBodies: a client that promises a body and does not send it does not keep
// its connection for ever, whatever it was answered.
func TestUnreadBodies(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("a target was asked") })
	g := newRig(t, rigConfig{Config: Config{BodyTimeout: 200 * time.Millisecond, MaxBody: 16, Log: discard}}, up)
	for name, ask := range map[string]string{
		"slow":          "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
		"slow, chunked": "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		"large":         "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
		"chunked large": "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n01234567890123456789\r\n",
		"health":        "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
		"WebSocket":     "POST /v1/x HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nContent-Length: 10\r\n\r\n{",
	} {
		c := dial(t, g)
		if _, err := io.WriteString(c, ask); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
			t.Errorf("%s: %v after %.40q", name, err, b)
		}
	}
}
