package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmroute/router"
)

var four = []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"}

const greeting = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

// call is one stream to a processor, as Envoy opens it for a request.
type call struct {
	t      *testing.T
	stream extproc.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func dial(t *testing.T, s *service) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func open(t *testing.T, cc *grpc.ClientConn) *call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := extproc.NewExternalProcessorClient(cc).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &call{t: t, stream: stream, cancel: cancel}
}

func (c *call) send(m *extproc.ProcessingRequest) {
	c.t.Helper()
	if err := c.stream.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *call) recv() *extproc.ProcessingResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *call) ask(m *extproc.ProcessingRequest) *extproc.ProcessingResponse {
	c.t.Helper()
	c.send(m)
	return c.recv()
}

func headerMap(kv ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return m
}

func reqHeaders(end bool, kv ...string) *extproc.ProcessingRequest {
	kv = append([]string{":method", "POST", ":path", "/v1/chat/completions"}, kv...)
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{Headers: headerMap(kv...), EndOfStream: end}}}
}

func reqBody(b string, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
		RequestBody: &extproc.HttpBody{Body: []byte(b), EndOfStream: end}}}
}

// respHeaders is a reply's beginning; attributes are given as pairs.
func respHeaders(status int, end bool, attributes map[string]any, kv ...string) *extproc.ProcessingRequest {
	kv = append([]string{":status", fmt.Sprint(status)}, kv...)
	m := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extproc.HttpHeaders{Headers: headerMap(kv...), EndOfStream: end}}}
	if attributes != nil {
		s, err := structpb.NewStruct(attributes)
		if err != nil {
			panic(err)
		}
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": s}
	}
	return m
}

func respBody(b string, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(b), EndOfStream: end}}}
}

func with(m *extproc.ProcessingRequest, namespace, key string, v any) *extproc.ProcessingRequest {
	s, err := structpb.NewStruct(map[string]any{key: v})
	if err != nil {
		panic(err)
	}
	m.MetadataContext = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: s}}
	return m
}

// named returns the endpoints that an answer names, which header and metadata
// have alike; nil where it names none.
func named(t *testing.T, m *extproc.ProcessingResponse) []string {
	t.Helper()
	r := m.GetRequestBody().GetResponse()
	if m.GetRequestHeaders() != nil {
		r = m.GetRequestHeaders().GetResponse()
	}
	value := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue()
	var header string
	for _, h := range r.GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			header = string(h.GetHeader().GetRawValue())
		}
	}
	if header != value {
		t.Errorf("the header names %q, the metadata %q", header, value)
	}
	if header == "" {
		if diff := cmp.Diff([]string{"x-gateway-destination-endpoint"}, r.GetHeaderMutation().GetRemoveHeaders()); diff != "" {
			t.Errorf("a client's own endpoint passes: %s", diff)
		}
		return nil
	}
	return strings.Split(header, ",")
}

// route sends a greeting and returns what is named for it.
func (c *call) route(headers ...string) []string {
	c.t.Helper()
	if got := named(c.t, c.ask(reqHeaders(false, headers...))); got != nil {
		c.t.Errorf("%v is named before the body has come", got)
	}
	return named(c.t, c.ask(reqBody(greeting, true)))
}

func refusal(t *testing.T, m *extproc.ProcessingResponse) (status int, retryAfter string) {
	t.Helper()
	r := m.GetImmediateResponse()
	if r == nil {
		t.Fatalf("not refused: %v", m)
	}
	for _, h := range r.GetHeaders().GetSetHeaders() {
		if h.GetHeader().GetKey() == "retry-after" {
			retryAfter = string(h.GetHeader().GetRawValue())
		}
	}
	return int(r.GetStatus().GetCode()), retryAfter
}

// stages lists who ended how, in order: "10.0.0.1:8000 finished".
func stages(es []ended) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.Target.ID+" "+e.Stage.String())
	}
	return out
}

func TestEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want int
	}{{"by default", Config{}, 3}, {"one", Config{Endpoints: 1}, 1}, {"more than there are", Config{Endpoints: 9}, 4}} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.cfg, patience, four...)
			c := open(t, dial(t, s))
			got := c.route()
			seen := map[string]bool{}
			for _, e := range got {
				seen[e] = true
			}
			if len(got) != tt.want || len(seen) != len(got) {
				t.Errorf("named %v, want %d different ones", got, tt.want)
			}
			if n := s.inFlight(); n == 0 {
				t.Error("the request is not counted")
			}
			c.ask(respHeaders(200, false, nil))
			c.ask(respBody("{}", true))
			if diff := cmp.Diff([]string{got[0] + " finished"}, stages(s.take())); diff != "" {
				t.Error(diff)
			}
			if n := s.inFlight(); n != 0 {
				t.Errorf("%d in flight after the reply's end", n)
			}
		})
	}
}

func TestRequestModes(t *testing.T) {
	s := serve(t, Config{}, patience, four...)
	cc := dial(t, s)
	t.Run("no body", func(t *testing.T) {
		if got := named(t, open(t, cc).ask(reqHeaders(true))); len(got) != 3 {
			t.Errorf("named %v", got)
		}
	})
	t.Run("a body that is not sent here", func(t *testing.T) {
		m := reqHeaders(false)
		m.ProtocolConfig = &extproc.ProtocolConfiguration{ResponseBodyMode: filter.ProcessingMode_STREAMED}
		if got := named(t, open(t, cc).ask(m)); len(got) != 3 {
			t.Errorf("named %v", got)
		}
	})
	t.Run("garbage", func(t *testing.T) {
		c := open(t, cc)
		c.ask(reqHeaders(false))
		if got := named(t, c.ask(reqBody("\x00{[", true))); len(got) != 3 {
			t.Errorf("named %v", got)
		}
	})
	for _, trailers := range []bool{false, true} {
		t.Run(fmt.Sprintf("full duplex, trailers %v", trailers), func(t *testing.T) {
			s.idle(t)
			s.take()
			c := open(t, cc)
			m := reqHeaders(false)
			m.ProtocolConfig = &extproc.ProtocolConfiguration{
				RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}
			c.send(m)
			long := strings.Replace(greeting, "hello", strings.Repeat("hello ", 30000), 1)
			c.send(reqBody(long[:1000], false))
			c.send(reqBody(long[1000:], !trailers))
			if trailers {
				c.send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}})
			}
			if got := named(t, c.recv()); len(got) != 3 {
				t.Errorf("named %v", got)
			}
			var passed []byte
			for end := false; !end && len(passed) < len(long); {
				b := c.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
				passed, end = append(passed, b.GetBody()...), b.GetEndOfStream()
				if end == trailers && len(passed) == len(long) {
					t.Errorf("the body ends the stream: %v", end)
				}
				if len(b.GetBody()) == 0 || len(b.GetBody()) > 64<<10 {
					t.Fatalf("a piece of %d bytes", len(b.GetBody()))
				}
			}
			if string(passed) != long {
				t.Error("the body did not pass as it was")
			}
			if trailers && c.recv().GetRequestTrailers() == nil {
				t.Error("the trailers are not answered")
			}
			c.ask(respHeaders(200, false, nil))
			b := c.ask(respBody("data: x", true)).GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if string(b.GetBody()) != "data: x" || !b.GetEndOfStream() {
				t.Errorf("the reply's piece passed as %v", b)
			}
			done := s.take()
			if len(done) != 1 || done[0].Stage != router.Finished || !strings.Contains(done[0].Prompt.Text, "hello hello") {
				t.Errorf("ended: %v", stages(done))
			}
		})
	}
}

func TestSubset(t *testing.T) {
	for _, tt := range []struct {
		name   string
		subset any
		want   []string // in any order; nil: 503
	}{
		{"a list", []any{four[1], four[3]}, []string{four[1], four[3]}},
		{"a text", four[2] + ", " + four[0], []string{four[0], four[2]}},
		{"with unknown ones", []any{"10.9.9.9:1", four[1]}, []string{four[1]}},
		{"only unknown ones", []any{"10.9.9.9:1"}, nil},
		{"empty", []any{}, nil},
		{"an empty text", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, Config{}, patience, four...)
			c := open(t, dial(t, s))
			c.ask(with(reqHeaders(false), "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", tt.subset))
			m := c.ask(reqBody(greeting, true))
			if tt.want == nil {
				if status, _ := refusal(t, m); status != 503 {
					t.Errorf("status %d, want 503", status)
				}
				return
			}
			got := map[string]bool{}
			for _, e := range named(t, m) {
				got[e] = true
			}
			want := map[string]bool{}
			for _, e := range tt.want {
				want[e] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	sick := func(s *service) {
		for _, id := range four {
			s.view.SetUnhealthy(id, true)
		}
	}
	for _, tt := range []struct {
		name   string
		cfg    Config
		before func(*service)
		body   string
		status int // 0: it goes on
		after  string
		named  int
	}{
		{name: "none is ready", before: sick, status: 503},
		{name: "none is ready, pass on", cfg: Config{PassOn: true}, before: sick},
		{name: "none is ready, fail open", cfg: Config{Options: router.Options{FailOpen: true}}, before: sick, named: 3},
		{name: "all are full", cfg: Config{MaxLoad: 5, RetryAfter: 1100 * time.Millisecond}, before: func(s *service) {
			for _, id := range four {
				s.view.SetQueued(id, 5)
			}
		}, status: 429, after: "2"},
		{name: "one is not full", cfg: Config{MaxLoad: 5}, before: func(s *service) {
			for _, id := range four[1:] {
				s.view.SetQueued(id, 5)
			}
			s.view.SetQueued(four[0], 4)
		}, named: 3},
		{name: "a large body", cfg: Config{MaxBody: 20}, status: 413},
		{name: "too many bodies", cfg: Config{MaxBodies: 20}, status: 503, after: "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.cfg, patience, four...)
			if tt.before != nil {
				tt.before(s)
			}
			c := open(t, dial(t, s))
			c.ask(reqHeaders(false))
			m := c.ask(reqBody(greeting, true))
			if tt.status == 0 {
				if got := named(t, m); len(got) != tt.named {
					t.Errorf("named %v, want %d", got, tt.named)
				}
				c.cancel()
			} else if status, after := refusal(t, m); status != tt.status || after != tt.after {
				t.Errorf("status %d, Retry-After %q; want %d, %q", status, after, tt.status, tt.after)
			}
			s.idle(t)
		})
	}
	t.Run("a cool-down says when", func(t *testing.T) {
		s := serve(t, Config{}, patience, four[0])
		cc := dial(t, s)
		c := open(t, cc)
		c.route()
		c.ask(respHeaders(429, true, nil, "retry-after", "7"))
		c = open(t, cc)
		c.ask(reqHeaders(false))
		if status, after := refusal(t, c.ask(reqBody(greeting, true))); status != 503 || after != "7" {
			t.Errorf("status %d, Retry-After %q; want 503, 7", status, after)
		}
	})
	t.Run("too many streams", func(t *testing.T) {
		s := serve(t, Config{MaxStreams: 2}, patience, four...)
		cc := dial(t, s)
		a, b := open(t, cc), open(t, cc)
		a.route()
		b.route()
		if status, _ := refusal(t, open(t, cc).ask(reqHeaders(false))); status != 503 {
			t.Errorf("status %d, want 503", status)
		}
		a.cancel()
		eventually(t, "the end of a stream", func() bool { return s.p.streams.Load() == 1 })
		open(t, cc).route()
	})
}

func TestEndings(t *testing.T) {
	via := func(i int, names []string, attempts int) map[string]any {
		return map[string]any{"upstream.address": names[i], "upstream.request_attempt_count": attempts, "response.code_details": "via_upstream"}
	}
	own := func(details string) map[string]any { return map[string]any{"response.code_details": details} }
	for _, tt := range []struct {
		name string
		act  func(c *call, names []string)
		want []string // "0 finished": the first of those named
	}{
		{"a whole reply", func(c *call, n []string) {
			c.ask(respHeaders(200, false, via(0, n, 1)))
			c.ask(respBody("{", false))
			c.ask(respBody("}", true))
		}, []string{"0 finished"}},
		{"trailers", func(c *call, n []string) {
			c.ask(respHeaders(200, false, via(0, n, 1)))
			c.ask(respBody("{}", false))
			c.ask(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}})
		}, []string{"0 finished"}},
		{"a 500", func(c *call, n []string) { c.ask(respHeaders(500, false, via(0, n, 1))) }, []string{"0 failed"}},
		{"a 400", func(c *call, n []string) { c.ask(respHeaders(400, false, via(0, n, 1))) }, []string{"0 failed"}},
		{"the second served", func(c *call, n []string) { c.ask(respHeaders(204, true, via(1, n, 2))) }, []string{"0 failed", "1 finished"}},
		{"the third served", func(c *call, n []string) { c.ask(respHeaders(204, true, via(2, n, 3))) }, []string{"0 failed", "1 failed", "2 finished"}},
		{"the third served, nobody counted", func(c *call, n []string) {
			c.ask(with(respHeaders(204, true, nil), "envoy.lb", "x-gateway-destination-endpoint-served", n[2]))
		}, []string{"0 failed", "1 failed", "2 finished"}},
		{"the first was passed over", func(c *call, n []string) { c.ask(respHeaders(204, true, via(1, n, 1))) }, []string{"0 canceled", "1 finished"}},
		{"an unknown one served", func(c *call, n []string) {
			c.ask(respHeaders(204, true, via(0, []string{"10.9.9.9:1"}, 2)))
		}, []string{"0 failed"}},
		{"no connection", func(c *call, n []string) {
			c.ask(respHeaders(503, false, own("upstream_reset_before_response_started{remote_connection_failure}")))
		}, []string{"0 failed"}},
		{"Envoy's own limit", func(c *call, n []string) {
			c.ask(respHeaders(503, false, own("upstream_reset_before_response_started{overflow}")))
		}, []string{"0 canceled"}},
		{"Envoy's own reply", func(c *call, n []string) { c.ask(respHeaders(408, false, own("request_overall_timeout"))) }, []string{"0 canceled"}},
		{"gone before the reply", func(c *call, n []string) { c.cancel() }, []string{"0 canceled"}},
		{"gone within the reply", func(c *call, n []string) {
			c.ask(respHeaders(200, false, via(0, n, 1)))
			c.ask(respBody("data: x\n\n", false))
			c.cancel()
		}, []string{"0 canceled"}},
		{"closed", func(c *call, n []string) { c.stream.CloseSend() }, []string{"0 canceled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, Config{}, patience, four...)
			c := open(t, dial(t, s))
			names := c.route()
			tt.act(c, names)
			eventually(t, "its end", func() bool { return s.ended() >= len(tt.want) })
			got := stages(s.take())
			for i := range got {
				for j, n := range names {
					got[i] = strings.Replace(got[i], n, fmt.Sprint(j), 1)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			c.cancel()
			s.idle(t)
			if more := s.take(); len(more) > 0 {
				t.Errorf("ended twice: %v", stages(more))
			}
		})
	}
}

func TestLearned(t *testing.T) {
	s := serve(t, Config{}, patience, four...)
	c := open(t, dial(t, s))
	c.route()
	first := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.first }
	c.ask(respHeaders(200, false, nil, "content-type", "text/event-stream"))
	if first() != 0 {
		t.Error("the header counts as the first token")
	}
	c.ask(respBody("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Good \"}}]}\n\n", false))
	if first() != 1 {
		t.Error("the first piece is not the first token")
	}
	c.ask(respBody("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"day.\"},\"finish_reason\":\"stop\"}]}\n\n"+strings.Repeat(": still here\n\n", 1000), false))
	c.ask(respBody("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n", true))
	done := s.take()
	if len(done) != 1 {
		t.Fatalf("%d ended", len(done))
	}
	o := done[0].Outcome
	if !strings.Contains(o.Reply, "Good day.") {
		t.Errorf("the reply is %q", o.Reply)
	}
	o.Reply = ""
	want := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 100, CachedTokens: 64, OutputTokens: 7}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Error(diff)
	}
}

func TestHealthAndStop(t *testing.T) {
	s := serve(t, Config{}, time.Millisecond, four...)
	cc := dial(t, s)
	for _, name := range []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		r, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	c := open(t, cc)
	names := c.route()
	s.stop()
	if diff := cmp.Diff([]string{names[0] + " canceled"}, stages(s.take())); diff != "" {
		t.Error(diff)
	}
	s.idle(t)
}

func TestNewNamesFields(t *testing.T) {
	_, err := New(Config{Endpoints: -1, MaxLoad: -1, RetryAfter: -1, MaxBody: -1, MaxBodies: -1, MaxStreams: -1})
	for _, f := range []string{"Strategy", "Fleet", "Endpoints", "MaxLoad", "RetryAfter", "MaxBody ", "MaxBodies", "MaxStreams"} {
		if err == nil || !strings.Contains(err.Error(), f) {
			t.Errorf("%s is not named: %v", f, err)
		}
	}
}

// FuzzExchange holds to it that no order and no content of messages leaves
// anything counted. Every message begins with a byte for its length.
func FuzzExchange(f *testing.F) {
	pack := func(ms ...*extproc.ProcessingRequest) (out []byte) {
		for _, m := range ms {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			out = append(append(out, byte(len(b))), b...)
		}
		return out
	}
	small := `{"prompt":"x"}`
	f.Add(pack(reqHeaders(false), reqBody(small, true), respHeaders(200, false, nil), respBody("{}", true)))
	f.Add(pack(reqHeaders(false), respHeaders(503, false, map[string]any{"response.code_details": "upstream_x"}), reqBody(small, true)))
	f.Add(pack(reqHeaders(true), reqHeaders(false), respHeaders(200, true, map[string]any{"upstream.address": four[1]}), respHeaders(200, true, nil)))
	f.Add(pack(with(reqHeaders(true), "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", four[1])))
	m := reqHeaders(false)
	m.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}
	f.Add(pack(m, reqBody(small, false), &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{}}))
	s := serve(f, Config{MaxBody: 200, PassOn: true}, patience, four...)
	f.Fuzz(func(t *testing.T, data []byte) {
		x := &exchange{p: s.p, ctx: t.Context()}
		for len(data) > 0 {
			n := min(int(data[0]), len(data)-1)
			var m extproc.ProcessingRequest
			if proto.Unmarshal(data[1:1+n], &m) == nil {
				if _, err := x.handle(&m); err != nil {
					s.p.refuse(err)
					break
				}
			}
			data = data[1+n:]
		}
		x.end()
		if s.inFlight() != 0 || s.p.bodies.Load() != 0 {
			t.Fatalf("%d in flight, %d bytes", s.inFlight(), s.p.bodies.Load())
		}
		s.take()
	})
}
