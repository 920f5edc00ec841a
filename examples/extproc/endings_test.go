package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/warmroute/router"
)

func TestEndings(t *testing.T) {
	via := func(i int, names []string, attempts int) map[string]any {
		return map[string]any{"upstream.address": names[i], "upstream.request_attempt_count": attempts,
			"response.code_details": "via_upstream"}
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
			c.ask(
				&extproc.ProcessingRequest{
					Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}},
				})
		}, []string{"0 finished"}},
		{"a 500", func(c *call, n []string) { c.ask(respHeaders(500, false, via(0, n, 1))) }, []string{"0 failed"}},
		{"a 400", func(c *call, n []string) { c.ask(respHeaders(400, false, via(0, n, 1))) }, []string{"0 failed"}},
		{"the second served", func(c *call, n []string) { c.ask(respHeaders(204, true, via(1, n, 2))) },
			[]string{"0 failed", "1 finished"}},
		{"the third served", func(c *call, n []string) { c.ask(respHeaders(204, true, via(2, n, 3))) },
			[]string{"0 failed", "1 failed", "2 finished"}},
		{"the third served, nobody counted", func(c *call, n []string) {
			c.ask(with(respHeaders(204, true, nil), "envoy.lb", "x-gateway-destination-endpoint-served", n[2]))
		}, []string{"0 failed", "1 failed", "2 finished"}},
		{"the first was passed over", func(c *call, n []string) { c.ask(respHeaders(204, true, via(1, n, 1))) },
			[]string{"0 not sent", "1 finished"}},
		{"an unknown one served", func(c *call, n []string) {
			c.ask(respHeaders(204, true, via(0, []string{"10.9.9.9:1"}, 2)))
		}, []string{"0 failed"}},
		{"no connection", func(c *call, n []string) {
			c.ask(respHeaders(503, false, own("upstream_reset_before_response_started{remote_connection_failure}")))
		}, []string{"0 failed"}},
		{"Envoy's own limit", func(c *call, n []string) {
			c.ask(respHeaders(503, false, own("upstream_reset_before_response_started{overflow}")))
		}, []string{"0 not sent"}},
		{"Envoy's own reply", func(c *call, n []string) {
			c.ask(respHeaders(408, false,
				own("request_overall_timeout")))
		}, []string{"0 canceled"}},
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
			got := stages(s.ends(t, len(tt.want)))
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
	c.ask(respBody("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Good \"}}]}\n\n",
		false))
	if first() != 1 {
		t.Error("the first piece is not the first token")
	}
	c.ask(respBody("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"day.\"},\"finish_reason\":\"stop\"}]}\n\n"+
		strings.Repeat(": still here\n\n", 1000), false))
	c.ask(
		respBody(
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n", true))
	done := s.take()
	if len(done) != 1 {
		t.Fatalf("%d ended", len(done))
	}
	o := done[0].Outcome
	if !strings.Contains(o.Reply, "Good day.") {
		t.Errorf("the reply is %q", o.Reply)
	}
	o.Reply = ""
	want := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 100, CachedTokens: 64, CachedReported: true,
		OutputTokens: 7, Streamed: true}
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
	if diff := cmp.Diff([]string{names[0] + " canceled"}, stages(s.ends(t, 1))); diff != "" {
		t.Error(diff)
	}
	s.idle(t)
}

func TestRun(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-target", "replica:8000"}, {"-target", "10.0.0.1:8000=0"}, {"-target", four[0], "-max-load", "-1"},
		{"-target", four[0], "-target", four[0]}, {"-target", four[0], "-listen", "nowhere"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q runs", args)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-target", "127.0.0.1:1=2", "-target", "[::1]:1", "-scrape",
			"1h"})
	}()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

func TestNewNamesFields(t *testing.T) {
	_, err := New(Config{Endpoints: -1, MaxLoad: -1, RetryAfter: -1, MaxBody: -1, MaxBodies: -1, MaxStreams: -1})
	for _, f := range []string{"Strategy", "Fleet", "Endpoints", "MaxLoad", "RetryAfter", "MaxBody ", "MaxBodies",
		"MaxStreams"} {
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
	f.Add(pack(reqHeaders(false), respHeaders(503, false, map[string]any{"response.code_details": "upstream_x"}),
		reqBody(small, true)))
	f.Add(pack(reqHeaders(true), reqHeaders(false),
		respHeaders(200, true, map[string]any{"upstream.address": four[1]}), respHeaders(200, true, nil)))
	f.Add(pack(with(reqHeaders(true), "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", four[1])))
	m := reqHeaders(false)
	m.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}
	f.Add(pack(m, reqBody(small, false),
		&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{}}))
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
