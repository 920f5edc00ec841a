package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
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
// have in common; nil if it names none.
func named(t *testing.T, m *extproc.ProcessingResponse) []string {
	t.Helper()
	r := m.GetRequestBody().GetResponse()
	if m.GetRequestHeaders() != nil {
		r = m.GetRequestHeaders().GetResponse()
	}
	lb := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue()
	value := lb.GetFields()["x-gateway-destination-endpoint"].GetStringValue()
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
		if diff := cmp.Diff([]string{"x-gateway-destination-endpoint"},
			r.GetHeaderMutation().GetRemoveHeaders()); diff != "" {
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
		stage := e.Stage.String()
		if e.NotSent {
			stage = "not sent"
		}
		out = append(out, e.Target.ID+" "+stage)
	}
	return out
}
