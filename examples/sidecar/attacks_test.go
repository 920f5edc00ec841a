package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// TestAttacks: whatever comes over a connection, others are served, and at the end nothing is held.
func TestAttacks(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{TimeScale: 0.01}, Config{MaxRequests: 16, MaxLeases: 64})
	address := h.Listener.Addr().String()
	request := func(header string, length int, body string) string {
		return fmt.Sprintf("POST /pick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s",
			header, length, body)
	}
	whole := func(body string) string { return request("Content-Type: application/json\r\n", len(body), body) }
	for name, text := range map[string]string{
		"an announced body":     request("", 8<<20-1, "{"),
		"half a request":        "POST /pick HT",
		"half a header":         "POST /pick HTTP/1.1\r\nHost: localhost\r\nX-A",
		"huge headers":          request("X-Much: "+strings.Repeat("x", 2<<20)+"\r\n", 2, "{}"),
		"a length and a coding": request("Transfer-Encoding: chunked\r\n", 5, "0\r\n\r\n"),
		"deep JSON":             whole(`{"body":` + strings.Repeat(`[`, 1<<20)),
		"deep JSON of a prompt": whole(`{"path":"/v1/chat/completions","body":{"messages":` + strings.Repeat(`[{"content":`, 1<<18)),
		"many members":          whole(`{"headers":{` + strings.Repeat(`"a":"",`, 1<<18) + `"b":""}}`),
		"many targets":          whole(`{"exclude":[` + strings.Repeat(`"a",`, 1<<18) + `"b"]}`),
		"no JSON":               whole("\x00\x01\x02"),
		"a number too large":    whole(`{"deadline_ms":1e999}`),
		"an unknown member":     whole(`{"` + strings.Repeat("x", 1<<20) + `":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			var held []net.Conn
			var writing sync.WaitGroup
			for range 8 { // half of those that are served at once
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, c)
				writing.Go(func() { _, _ = io.WriteString(c, text) }) // the service may not read all of it
			}
			if err := h.serve(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`); err != nil {
				t.Errorf("meanwhile: %v", err)
			}
			for _, c := range held {
				c.Close()
			}
			writing.Wait()
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				open, _ := h.service.leases.counts()
				if len(h.service.busy) == 0 && open == 0 && h.service.bodies.Used() == 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d requests, %d leases and %d bytes are held", len(h.service.busy), open, h.service.bodies.Used())
				}
			}
		})
	}
}

// TestAbandonedLeases: callers that end no lease take no more than there are, and get them back after the deadline.
func TestAbandonedLeases(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{}, Config{MaxLeases: 8, Deadline: 50 * time.Millisecond})
	body := object{"prompt": object{"text": "left"}}
	refused := false
	for range 64 {
		var v object
		status, err := h.post("/pick", body, &v)
		if err != nil || status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatal(status, err)
		}
		refused = refused || status != http.StatusOK
		if open, _ := h.service.leases.counts(); open > 8 {
			t.Fatalf("%d leases are open", open)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if open, _ := h.service.leases.counts(); open == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("leases are open long after their deadline")
		}
	}
	for _, m := range h.fleet.Snapshot() {
		if m.Target.Load.InFlight != 0 || m.Failures != 0 {
			t.Errorf("%+v is counted, or blamed", m)
		}
	}
	t.Logf("refused meanwhile: %v", refused)
}

// TestListensWhereAsked: a socket is enough, and without any there is an error, not a default.
func TestListensWhereAsked(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, slog.New(slog.DiscardHandler), "", socket, nil, []string{"http://127.0.0.1:1"})
	}()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		resp, err := c.Get("http://sidecar/healthz")
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	tr.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), slog.New(slog.DiscardHandler), "", "", nil, nil); err == nil {
		t.Error("it serves on nothing")
	}
}

// TestSidecarQuotesNobody: what a caller wrote is in no page, and in no log.
func TestSidecarQuotesNobody(t *testing.T) {
	const canary = "Canary41c9"
	h := newHost(t, 1, vllmtest.Config{}, Config{Deadline: 20 * time.Millisecond})
	var logged strings.Builder
	var mu sync.Mutex
	h.service.leases.log = slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return logged.Write(b)
	}), nil))
	var p pickReply
	h.must(t, "/pick", object{"prompt": object{
		"text": canary + "text", "model": canary + "model", "salt": canary + "salt", "session": canary + "session",
	}}, &p)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		n := logged.Len()
		mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the lease's end is not logged")
		}
	}
	mu.Lock()
	all := logged.String()
	mu.Unlock()
	for _, path := range []string{"/healthz", "/targets"} {
		resp, err := h.client.Get(h.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		all += string(b)
	}
	if strings.Contains(all, canary) {
		t.Errorf("it quotes a caller: %s", all)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
