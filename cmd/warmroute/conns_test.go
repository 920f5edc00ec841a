package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/vllmtest"
)

// closing is an engine that closes each connection when it has read the n-th request on it, without an answer.
func closing(t *testing.T, n int) (address string, reads *atomic.Int32) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	reads = new(atomic.Int32)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for i := 1; ; i++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					reads.Add(1)
					if i == n {
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String(), reads
}

// TestKeptConnections: a kept connection that the engine closes costs a client nothing and blames no engine; a new
// one that
// it closes is a failure, and is tried once.
func TestKeptConnections(t *testing.T) {
	up, reads := closing(t, 2)
	g := newRig(t, rigConfig{}, up)
	const n = 20
	for range n {
		if resp := g.post(t, "/v1/embeddings", `{"model":"m","input":[]}`); resp.StatusCode != 200 ||
			resp.Header.Get(headerAttempts) != "1" {
			t.Errorf("%s, %v", resp.Status, resp.Header)
		} else {
			readAll(t, resp.Body)
		}
	}
	g.settled(t)
	if m := g.view.Snapshot()[0]; m.Failures != 0 || g.h.reconnects.Load() == 0 ||
		int64(reads.Load()) != n+g.h.reconnects.Load() {
		t.Errorf("%d failures, %d sent again, %d read", m.Failures, g.h.reconnects.Load(), reads.Load())
	}

	dead, reads := closing(t, 1)
	g = newRig(t, rigConfig{Config: Config{Log: discard}}, dead)
	if resp := g.post(t, "/v1/chat/completions", chatBody); resp.StatusCode != 502 || reads.Load() != 1 {
		t.Errorf("%s, read %d times", resp.Status, reads.Load())
	}
}

// TestHeartbeat: a stream gets comments while its reply has not begun, and then the reply, or the error as an event; a
// request that is no stream gets none.
func TestHeartbeat(t *testing.T) {
	var asked atomic.Int32
	leave := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Header.Get("Accept-Encoding") != "" && bytes.Contains(b, []byte(`"stream"`)) {
			t.Error("the engine may compress the stream")
		}
		asked.Add(1)
		<-leave
		switch {
		case bytes.Contains(b, []byte("fails")):
			panic(http.ErrAbortHandler)
		case bytes.Contains(b, []byte("refused")):
			w.WriteHeader(400)
			io.WriteString(w, "{\"error\":\n{\"message\":\"too long\"}}")
		case bytes.Contains(b, []byte(`"stream"`)):
			event(w, `{"choices":[{"delta":{"content":"hi"}}]}`)
			event(w, "[DONE]")
		default:
			io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}]}`)
		}
	})
	tr := NewTransport(func() egress.Policy { return egress.Policy{} })
	tr.DisableKeepAlives = true // so that a failure is the engine's
	g := newRig(t, rigConfig{Config: Config{Log: discard, Heartbeat: 5 * time.Millisecond, Transport: tr}}, up, up+"/b")
	for _, c := range []struct{ name, path, body, want string }{
		{"a reply", "/v1/chat/completions", streamBody, "data: [DONE]\n\n"},
		{"a failure", "/v1/chat/completions", strings.Replace(streamBody, "hello", "fails", 1),
			`data: {"error":{"message":"the engine could not`},
		{"refused", "/v1/chat/completions", strings.Replace(streamBody, "hello", "refused", 1),
			`data: {"error":{"message":"too long"}}` + "\n\n"},
		{"an event of messages", "/v1/messages", strings.Replace(streamBody, "hello", "refused", 1),
			"event: error\ndata: {\"error\":{\"message\":\"too long\"}}\n\n"},
		{"no stream", "/v1/chat/completions", chatBody, `{"content":"hi"}`},
	} {
		if c.name == "no stream" {
			go func() { leave <- struct{}{} }()
		}
		before := asked.Load()
		resp, err := g.http.Post(g.url+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		if c.name != "no stream" {
			for range 3 {
				line, err := r.ReadString('\n')
				if err != nil || line != ": waiting for the engine\n" && line != "\n" {
					t.Fatalf("%s: %q, %v", c.name, line, err)
				}
			}
			leave <- struct{}{}
		}
		rest, err := io.ReadAll(r)
		resp.Body.Close()
		got := string(rest)
		stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
		if err != nil || !strings.Contains(got, c.want) || resp.StatusCode != 200 || stream != (c.name != "no stream") ||
			resp.Header.Get(headerTarget) == "" || asked.Load() != before+1 {
			t.Errorf("%s: %s %q %v, %v", c.name, resp.Status, got, resp.Header, err)
		}
	}
	g.settled(t)
}

// TestHTTP2: a client that begins with the preface of HTTP/2 gets its stream by it, and one that asks to change to
// it by
// HTTP/1.1 gets HTTP/1.1.
func TestHTTP2(t *testing.T) {
	leakCheck(t)
	s, err := vllmtest.New(vllmtest.Config{Model: "m", TimeScale: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g := newRig(t, rigConfig{}, s.URL)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- (&server{log: slog.New(slog.DiscardHandler), grace: 10 * time.Second}).run(ctx, ln, g.h)
	}()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	client := &http.Client{Transport: tr}
	at := "http://" + ln.Addr().String()
	for range 3 {
		resp, err := client.Post(at+"/v1/chat/completions", "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, resp.Body)
		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != 200 || !strings.Contains(got, "[DONE]") {
			t.Errorf("%s %s: %s", resp.Proto, resp.Status, got)
		}
	}
	g.settled(t)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
	b, err := io.ReadAll(c)
	c.Close()
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("%q, %v", b, err)
	}
	tr.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
