package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// TestDecoded: a compressed request is answered as the same one without compression, and its cached prompt is found.
func TestDecoded(t *testing.T) {
	h := newHost(t, 2, vllmtest.Config{TimeScale: 1e-6}, nil)
	ask := func(coding string, body []byte) *http.Response {
		req, err := http.NewRequest("POST", h.URL+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", coding)
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	io.WriteString(w, chat(strings.Repeat("hello ", 500), false))
	w.Close()
	for range 5 {
		if resp := ask("gzip", zipped.Bytes()); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	if resp := ask("identity", []byte(chat("x", false))); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	a, b := h.replicas[0].Stats(), h.replicas[1].Stats()
	if a.CachedTokens+b.CachedTokens < 3*(a.PromptTokens+b.PromptTokens)/5 {
		t.Errorf("turns did not stay: %+v, %+v", a, b)
	}
	if resp := ask("br", zipped.Bytes()); resp.StatusCode != 415 || resp.Header.Get("Accept-Encoding") == "" {
		t.Error(resp.Status)
	}
	if resp := ask("zstd", zipped.Bytes()); resp.StatusCode != 400 {
		t.Error(resp.Status)
	}
}
