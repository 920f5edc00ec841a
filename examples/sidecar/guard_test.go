package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// TestBytesOfLeases: open leases take a bounded number of bytes, whichever their prompts are, and give them back.
func TestBytesOfLeases(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{}, Config{MaxBytes: 1 << 20})
	var open []string
	pick := func(text string) (int, pickReply) {
		var p pickReply
		status, err := h.post("/pick", map[string]any{"prompt": map[string]any{"text": text}}, &p)
		if err != nil {
			t.Fatal(err)
		}
		return status, p
	}
	for i := range 8 {
		status, p := pick(fmt.Sprint(i, strings.Repeat("x", 100<<10)))
		if status == http.StatusServiceUnavailable {
			break
		}
		open = append(open, p.Lease)
	}
	if len(open) != 5 { // of 200 KiB and 4 KiB each
		t.Fatalf("%d leases fit", len(open))
	}
	for _, id := range open {
		var d doneReply
		if _, err := h.post("/done", doneRequest{Lease: id, Status: 200}, &d); err != nil {
			t.Fatal(err)
		}
	}
	if status, p := pick(strings.Repeat("y", 400<<10)); status != 200 {
		t.Error("the bytes are not given back:", status)
	} else if _, err := h.post("/done", doneRequest{Lease: p.Lease, Status: 200}, new(doneReply)); err != nil {
		t.Error(err)
	}
	h.service.leases.mu.Lock()
	defer h.service.leases.mu.Unlock()
	if n := h.service.leases.bytes; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestForeignPages: a page in a browser reaches the service neither from its own origin, nor by a name that resolves
// to this machine, nor with a form.
func TestForeignPages(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{}, Config{})
	for name, c := range map[string]struct {
		host, kind string
		header     [2]string
		want       int
	}{
		"usual":          {"", "application/json", [2]string{}, 400}, // the body is empty
		"localhost":      {"localhost:8090", "application/json; charset=utf-8", [2]string{}, 400},
		"rebound":        {"attacker.example", "application/json", [2]string{}, 403},
		"another origin": {"", "application/json", [2]string{"Origin", "http://attacker.example"}, 403},
		"a site":         {"", "application/json", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"a form":         {"", "text/plain", [2]string{}, 415},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", h.URL+"/pick", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		req.Header.Set("Content-Type", c.kind)
		if c.header[0] != "" {
			req.Header.Set(c.header[0], c.header[1])
		}
		resp, err := h.engines.Do(req) // not held to the description
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, resp.Status, c.want)
		}
	}
}
