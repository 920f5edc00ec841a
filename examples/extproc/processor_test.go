package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/membudget"
)

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
			s := serve(t, Config{}, patience, four...)
			c := open(t, dial(t, s))
			m := reqHeaders(false)
			m.ProtocolConfig = &extproc.ProtocolConfiguration{
				RequestBodyMode:  filter.ProcessingMode_FULL_DUPLEX_STREAMED,
				ResponseBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}
			c.send(m)
			long := strings.Replace(greeting, "hello", strings.Repeat("hello ", 30000), 1)
			c.send(reqBody(long[:1000], false))
			c.send(reqBody(long[1000:], !trailers))
			if trailers {
				c.send(
					&extproc.ProcessingRequest{
						Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}},
					})
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

// memory is a budget in which an account has n bytes.
func memory(account string, n int64) *membudget.Budget {
	const limit = 1 << 20
	b, err := membudget.New(membudget.Config{Limit: limit, Shares: map[string]float64{account: float64(n) / limit}})
	if err != nil {
		panic(err)
	}
	return b
}

// full is a budget in which all of an account is taken.
func full(account string) *membudget.Budget {
	b := memory(account, 1<<20)
	if err := b.Account(account).Reserve(1 << 20); err != nil {
		panic(err)
	}
	return b
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
		{name: "no memory for bodies ever", cfg: Config{Memory: memory(membudget.Bodies, 20)}, status: 413},
		{name: "no memory for prompts ever", cfg: Config{Memory: memory(membudget.Prompts, 1)}, status: 413},
		{name: "no memory for replies", cfg: Config{Memory: full(membudget.Replies)}, status: 503, after: "1"},
		{name: "no memory for bodies", cfg: Config{Memory: full(membudget.Bodies)}, status: 503, after: "1"},
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
	t.Run("a full target says when it is tried again", func(t *testing.T) {
		s := serve(t, Config{}, patience, four[0])
		cc := dial(t, s)
		c := open(t, cc)
		c.route()
		c.ask(respHeaders(429, true, nil, "retry-after", "7"))
		c = open(t, cc)
		c.ask(reqHeaders(false))
		if status, after := refusal(t, c.ask(reqBody(greeting, true))); status != 503 || after != "1" {
			t.Errorf("status %d, Retry-After %q; want 503, 1", status, after)
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
