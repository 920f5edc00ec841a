package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCodings: a compressed body is routed by its text and goes on decoded, without the header that names its coding.
func TestCodings(t *testing.T) {
	for name, mode := range map[string]filter.ProcessingMode_BodySendMode{
		"buffered": filter.ProcessingMode_BUFFERED, "full duplex": filter.ProcessingMode_FULL_DUPLEX_STREAMED,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Config{}, patience, four...)
			c := open(t, dial(t, s))
			m := reqHeaders(false, "content-encoding", "gzip", "content-length", "77")
			m.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: mode,
				ResponseBodyMode: filter.ProcessingMode_BUFFERED}
			var head *extproc.CommonResponse
			var body []byte
			if mode == filter.ProcessingMode_BUFFERED {
				c.ask(m)
				head = c.ask(reqBody(gzipped(t, greeting), true)).GetRequestBody().GetResponse()
				body = head.GetBodyMutation().GetBody()
			} else {
				c.send(m)
				c.send(reqBody(gzipped(t, greeting), true))
				head = c.recv().GetRequestHeaders().GetResponse()
				body = c.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()
			}
			if !slices.Contains(head.GetHeaderMutation().GetRemoveHeaders(), "content-encoding") || string(body) != greeting {
				t.Errorf("%v, %q", head, body)
			}
			c.cancel()
			s.idle(t)
			if d := s.ends(t, 1)[0]; d.Decision.Prompt.Model != "m" || d.Decision.Prompt.Text == "" {
				t.Errorf("routed as %+v", d.Decision.Prompt)
			}
			if n := s.p.bodies.Load(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})
	}
	s := serve(t, Config{MaxBody: 1 << 10}, patience, four...)
	cc := dial(t, s)
	for _, x := range []struct {
		coding, body string
		status       int
	}{
		{"br", greeting, 415}, {"gzip", greeting, 400}, {"gzip", gzipped(t, string(make([]byte, 1<<20))), 413},
	} {
		c := open(t, cc)
		c.ask(reqHeaders(false, "content-encoding", x.coding))
		if status, _ := refusal(t, c.ask(reqBody(x.body, true))); status != x.status {
			t.Errorf("%s: status %d, want %d", x.coding, status, x.status)
		}
	}
	s.idle(t)
}

// TestEnvoyCodings: the replica behind an Envoy gets a compressed request decoded, in both modes.
func TestEnvoyCodings(t *testing.T) {
	for name, edits := range map[string][]string{
		"buffered": nil,
		"full duplex": {
			"request_body_mode: BUFFERED", "request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND",
			"response_body_mode: STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED",
			"failure_mode_allow: true", "failure_mode_allow: false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, ids := replicas(t, 2, quick())
			s := serve(t, Config{}, patience, ids...)
			c := envoy(t, s.addr, ids, edits...)
			long := strings.Repeat("A long document. ", 2000)
			header := http.Header{"Content-Encoding": {"gzip"}}
			status, _, body, err := chat(t.Context(), c, gzipped(t, ask(false, 5, user(long))), header, nil)
			if status != 200 || err != nil {
				t.Errorf("status %d, %v: %.200s", status, err, body)
			}
			s.idle(t)
			if done := s.ends(t, 1); !strings.Contains(done[0].Prompt.Text, long) || done[0].PromptTokens == 0 {
				t.Errorf("ended as %+v", done[0].Outcome)
			}
			header.Set("Content-Encoding", "br")
			status, got, body, err := chat(t.Context(), c, ask(false, 5, user("x")), header, nil)
			if status != 415 || err != nil || got.Get("Accept-Encoding") == "" {
				t.Errorf("status %d, %v, %v: %.200s", status, err, got, body)
			}
		})
	}
}
