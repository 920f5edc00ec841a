package main

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	grpcmetadata "google.golang.org/grpc/metadata"
)

// TestAttacks: whatever comes over a connection, others are served, and at the end nothing is counted.
func TestAttacks(t *testing.T) {
	trailers := &extproc.ProcessingRequest{
		Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}},
	}
	for name, messages := range map[string][]*extproc.ProcessingRequest{
		"nothing":        nil,
		"headers alone":  {reqHeaders(false)},
		"a body first":   {reqBody(greeting, true)},
		"a reply first":  {respHeaders(200, false, nil), respBody("{}", true)},
		"trailers first": {trailers, trailers},
		"the reply before all": {reqHeaders(false), respBody("{}", true),
			respHeaders(200, true, nil), reqBody(greeting, true)},
		"headers again":        {reqHeaders(true), reqHeaders(true), reqHeaders(false), reqBody(greeting, true)},
		"an empty message":     {{}},
		"half a body":          {reqHeaders(false), reqBody(greeting[:9], false)},
		"deep JSON":            {reqHeaders(false), reqBody(`{"messages":`+strings.Repeat(`[{"content":`, 1<<16), true)},
		"short members":        {reqHeaders(false), reqBody(`{`+strings.Repeat(`"a":1,`, 1<<17)+`"b":1}`, true)},
		"a body that is large": {reqHeaders(false), reqBody(strings.Repeat("x", 3<<20), true)},
		"no reply":             {reqHeaders(false), reqBody(greeting, true)},
		"a reply without end": {reqHeaders(false), reqBody(greeting, true), respHeaders(200, false, nil),
			respBody("data: {", false)},
		"a status of its own":   {reqHeaders(true), respHeaders(-7, false, nil), respBody("{}", true)},
		"another's endpoint":    {reqHeaders(true), respHeaders(200, true, map[string]any{"upstream.address": "10.9.9.9:1"})},
		"a name that is unlike": {reqHeaders(true, ":path", strings.Repeat("/..", 1<<16))},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Config{MaxBody: 2 << 20, MaxStreams: 32}, patience, four...)
			hostile, good := dial(t, s), dial(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			for range 24 {
				stream, err := extproc.NewExternalProcessorClient(hostile).Process(ctx)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for {
						if _, err := stream.Recv(); err != nil {
							return
						}
					}
				})
				for _, m := range messages {
					if stream.Send(m) != nil {
						break // the processor has ended the stream
					}
				}
			}
			c := open(t, good)
			if got := c.route(); len(got) == 0 {
				t.Error("a good request is not routed")
			}
			c.ask(respHeaders(200, false, nil))
			c.ask(respBody("{}", true))
			c.cancel()
			cancel()
			wg.Wait()
			s.idle(t)
			replied := slices.ContainsFunc(messages, func(m *extproc.ProcessingRequest) bool {
				return m.GetResponseHeaders() != nil // Envoy's word on an endpoint is believed
			})
			for _, m := range s.view.Snapshot() {
				if m.Failures != 0 && !replied {
					t.Errorf("%s is blamed", m.Target.ID)
				}
			}
		})
	}
}

// TestFloods: streams without a message take no place, metadata is bounded, and connections that speak something else
// harm nobody.
func TestFloods(t *testing.T) {
	s := serve(t, Config{MaxStreams: 4}, patience, four...)
	hostile := dial(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 64 {
		if _, err := extproc.NewExternalProcessorClient(hostile).Process(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		strings.Repeat("\xff", 1<<10)} {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, text)
	}
	much := grpcmetadata.AppendToOutgoingContext(ctx, "x-much", strings.Repeat("x", 1<<20))
	if stream, err := extproc.NewExternalProcessorClient(dial(t, s)).Process(much); err == nil {
		if _, err := stream.Recv(); err == nil {
			t.Error("metadata of 1 MiB is taken")
		}
	}
	c := open(t, dial(t, s))
	if got := c.route(); len(got) == 0 {
		t.Error("a good request is not routed")
	}
	c.ask(respHeaders(200, true, nil))
	c.cancel()
	cancel()
	s.idle(t)
}
