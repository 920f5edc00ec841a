package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// TestMinimal chats through the program with two replicas, streamed and not: the
// second turn finds the first one's cache, and one replica's failure is not seen.
func TestMinimal(t *testing.T) {
	var urls []string
	var replicas []*vllmtest.Server
	for range 2 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20})
		t.Cleanup(s.Close)
		replicas = append(replicas, s)
		urls = append(urls, s.URL)
	}
	h, err := newGateway(urls)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)

	messages := `{"role":"user","content":"` + strings.Repeat("all work and no play ", 100) + `"}`
	ask := func(stream string) *http.Response {
		t.Helper()
		resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"messages":[`+messages+`]`+stream+`}`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		return resp
	}
	// Which replica takes the first turn is a draw; the second must find it.
	for range 8 {
		if b, err := io.ReadAll(ask("").Body); err != nil || !strings.Contains(string(b), `"content"`) {
			t.Fatalf("%s, %v", b, err)
		}
	}
	a, b := replicas[0].Stats(), replicas[1].Stats()
	if share := float64(a.CachedTokens+b.CachedTokens) / float64(a.PromptTokens+b.PromptTokens); share < 0.8 {
		t.Errorf("%.2f of the prompts was cached", share)
	}
	if min(a.Requests, b.Requests) != 0 {
		t.Errorf("an idle fleet spread one conversation: %d and %d", a.Requests, b.Requests)
	}

	warm := replicas[0]
	if b.Requests > 0 {
		warm = replicas[1]
	}
	if err := warm.SetFaults(vllmtest.Faults{Status: 500}); err != nil {
		t.Fatal(err)
	}
	events := 0
	for lines := bufio.NewScanner(ask(`,"stream":true`).Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if events < 3 { // a token or more each, and an end
		t.Errorf("%d events", events)
	}

	for _, s := range replicas {
		s.SetFaults(vllmtest.Faults{Status: 503})
	}
	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("all fail: %s", resp.Status)
	}
}

// TestNoStatus: a replica with a status below 100, at which net/http's server would
// panic, has failed, and another one answers.
func TestNoStatus(t *testing.T) {
	bad, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bad.Close() })
	go func() {
		for {
			c, err := bad.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.WriteString(c, "HTTP/1.1 007 Bond\r\nContent-Length: 2\r\n\r\n{}")
				}
			}()
		}
	}()
	good := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001})
	t.Cleanup(good.Close)
	h, err := newGateway([]string{"http://" + bad.Addr().String(), good.URL})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for i := range 12 { // that none of them begins at the bad one is one in 4,096
		resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"messages":[{"role":"user","content":"`+strings.Repeat(string(rune('a'+i)), 100)+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("request %d: %s", i, resp.Status)
		}
	}
}
