package main

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// coded returns body in a content coding.
func coded(t *testing.T, coding, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "zstd":
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	default:
		return []byte(body)
	}
	io.WriteString(w, body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// send posts a body with a Content-Encoding.
func (g *rig) send(t *testing.T, path, coding string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequest("POST", g.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", coding)
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// twoModels is a file with two routes, each with one engine.
func twoModels(one, two string) string {
	return fmt.Sprintf("[[providers]]\nname='one'\napi_base=%q\n[[providers]]\nname='two'\napi_base=%q\n"+
		"[[routes]]\nmodel='first'\ntargets=[{provider='one', model='the/first'}]\n"+
		"[[routes]]\nmodel='second'\ntargets=[{provider='two', model='the/second'}]\n", one, two)
}

// TestCodings: a compressed body is routed by its model among several routes, and comes to the engine decoded, with the
// engine's name for the model, its right length, and no sign of the coding.
func TestCodings(t *testing.T) {
	leakCheck(t)
	const want = `{"model":"the/second","messages":[{"role":"user","content":"hello"}]}`
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		for _, k := range []string{"Content-Encoding", "Content-Md5", "Transfer-Encoding"} {
			if r.Header.Get(k) != "" {
				t.Errorf("the engine sees %s", k)
			}
		}
		if r.ContentLength != int64(len(b)) {
			t.Errorf("a length of %d for %d bytes", r.ContentLength, len(b))
		}
		w.Write(b)
	})
	g := serveFile(t, Config{}, twoModels("http://127.0.0.1:1", up))
	body := strings.Replace(want, "the/", "", 1)
	for _, c := range []struct {
		header string
		codes  []string
	}{
		{"zstd", []string{"zstd"}}, {"gzip", []string{"gzip"}}, {"X-GZIP", []string{"gzip"}}, {"deflate",
			[]string{"deflate"}},
		{"identity", nil}, {"Identity", nil}, {"", nil}, {"identity, gzip", []string{"gzip"}}, {"gzip, zstd",
			[]string{"gzip", "zstd"}},
	} {
		b := []byte(body)
		for _, code := range c.codes {
			b = coded(t, code, string(b))
		}
		resp := g.send(t, "/v1/chat/completions", c.header, b)
		if got := readAll(t, resp.Body); resp.StatusCode != 200 || got != want || resp.Header.Get(headerTarget) != "two" {
			t.Errorf("%q: %s, %s", c.header, resp.Status, got)
		}
	}
	g.settled(t)
	for _, p := range g.prompts {
		if p.Model != "second" || !strings.Contains(p.Text, "hello") {
			t.Errorf("routed as %+v", p)
		}
	}
}

// TestCodingsRefused: a coding that is not decoded, a body that is not of its coding, and one that is too large once
// decoded come to no engine, and take no memory afterwards.
func TestCodingsRefused(t *testing.T) {
	var asked atomic.Int32
	g := newRig(t, rigConfig{Config: Config{MaxBody: 64 << 10}}, upstream(t, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
	}))
	bomb := strings.Repeat("0", 8<<20)
	hidden := `{"model":"m","kv_transfer_params":{"do_remote_prefill":true}}`
	for _, c := range []struct {
		header string
		body   []byte
		status int
	}{
		{"br", []byte("x"), 415}, {"gzip, br", []byte("x"), 415}, {"compress", []byte("x"), 415}, {"zstd;q=1", []byte("x"),
			415},
		{"gzip", []byte(chatBody), 400}, {"zstd", []byte(chatBody), 400}, {"deflate", []byte("\x00"), 400},
		{"gzip", coded(t, "gzip", chatBody)[:20], 400},
		{"gzip", coded(t, "gzip", bomb), 413}, {"zstd", coded(t, "zstd", bomb), 413}, {"deflate", coded(t, "deflate", bomb),
			413},
		{"zstd, gzip", coded(t, "gzip", string(coded(t, "zstd", bomb))), 413},
		{"gzip", coded(t, "gzip", hidden), 400}, {"zstd", coded(t, "zstd", hidden), 400}, {"identity", []byte(hidden), 400},
	} {
		resp := g.send(t, "/v1/chat/completions", c.header, c.body)
		got := readAll(t, resp.Body)
		if resp.StatusCode != c.status {
			t.Errorf("%q, %.20q: %s %s", c.header, c.body, resp.Status, got)
		}
		if listed := strings.Contains(resp.Header.Get("Accept-Encoding"), "zstd, gzip"); listed != (c.status == 415) {
			t.Errorf("%q: Accept-Encoding %q", c.header, resp.Header.Get("Accept-Encoding"))
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the engine was asked %d times", asked.Load())
	}
	eventually(t, "all memory is given back", func() bool { return g.h.bodies.Used() == 0 })
}
