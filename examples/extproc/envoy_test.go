package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/vllmtest"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ask makes a request's body.
func ask(stream bool, tokens int, ms ...message) string {
	m := map[string]any{"model": "m", "messages": ms, "max_tokens": tokens, "ignore_eos": true, "stream": stream}
	if stream {
		m["stream_options"] = map[string]any{"include_usage": true}
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func user(s string) message { return message{"user", s} }

// content is the text of a stream.
func content(t *testing.T, stream string) string {
	t.Helper()
	var text strings.Builder
	if !strings.HasSuffix(stream, "data: [DONE]\n\n") {
		t.Errorf("the stream does not end as one: %.200q", stream[max(0, len(stream)-200):])
	}
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Errorf("%v in %q", err, data)
		}
		for _, c := range e.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return text.String()
}

func quick() vllmtest.Config { return vllmtest.Config{TimeScale: 0.05} }

// conversations holds n conversations of several turns at once and returns how
// many later turns went where the turn before had gone, and how many there were.
func conversations(t *testing.T, c *http.Client, s *service, n, turns int) (stayed, later int) {
	t.Helper()
	s.take()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ms := []message{{"system", fmt.Sprintf("You are assistant %d. %s", i,
				strings.Repeat(fmt.Sprintf("Rule %d. ", i), 100))}}
			for turn := range turns {
				ms = append(ms, user(fmt.Sprintf("Question %d?", turn)))
				status, _, body, err := chat(t.Context(), c, ask(true, 20, ms...), http.Header{"X-Session-Id": {fmt.Sprint(i)}},
					nil)
				if status != 200 || err != nil {
					t.Errorf("status %d, %v", status, err)
					return
				}
				ms = append(ms, message{"assistant", content(t, body)})
			}
		})
	}
	wg.Wait()
	s.idle(t)
	where := map[string][]string{}
	for _, e := range s.take() {
		where[e.Prompt.Session] = append(where[e.Prompt.Session], e.Target.ID)
	}
	for _, ids := range where {
		for i := range ids[1:] {
			later++
			if ids[i] == ids[i+1] {
				stayed++
			}
		}
	}
	if later != n*(turns-1) {
		t.Errorf("%d later turns were seen, want %d", later, n*(turns-1))
	}
	return stayed, later
}

func TestEnvoy(t *testing.T) {
	const limit = 1 << 20
	rs, ids := replicas(t, 4, quick())
	s := serve(t, Config{MaxBody: limit / 2}, patience, ids...)
	c := envoy(t, s.addr, ids, "33554432", fmt.Sprint(limit))

	t.Run("a streaming chat", func(t *testing.T) {
		s.take()
		begun := 0
		status, _, body, err := chat(t.Context(), c, ask(true, 40, user("Hello?")), nil, func() { begun = s.inFlight() })
		if status != 200 || err != nil {
			t.Fatalf("status %d, %v", status, err)
		}
		text := content(t, body)
		s.idle(t)
		done := s.take()
		if len(done) != 1 {
			t.Fatalf("%d requests ended, want 1", len(done))
		}
		e := done[0]
		if e.Stage != router.Finished || e.Status != 200 || e.OutputTokens != 40 || e.PromptTokens == 0 ||
			!strings.Contains(e.Reply, text) || text == "" {
			t.Errorf("learned %+v of the reply %q", e.Outcome, text)
		}
		if begun == 0 {
			t.Error("the first event came after the stream's end")
		}
		i := slices.Index(ids, e.Target.ID)
		if n := rs[i].Stats().Finished; n != 1 {
			t.Errorf("the named replica finished %d requests, want 1", n)
		}
	})
	t.Run("conversations stay", func(t *testing.T) {
		stayed, later := conversations(t, c, s, 8, 4)
		t.Logf("%d of %d later turns stayed", stayed, later)
		if stayed*10 < later*9 {
			t.Errorf("%d of %d later turns stayed, want 9 of 10", stayed, later)
		}
	})
	t.Run("the client goes away", func(t *testing.T) {
		s.take()
		before := aborted(rs)
		ctx, cancel := context.WithCancel(t.Context())
		_, _, _, err := chat(ctx, c, ask(true, 50000, user("Go on and on.")), nil, cancel)
		if err == nil {
			t.Error("the stream ended by itself")
		}
		if done := s.ends(t, 1); len(done) != 1 || done[0].Stage != router.Canceled {
			t.Errorf("it ended as %+v", done)
		}
		s.idle(t)
		eventually(t, "the replica's own end of the request", func() bool { return aborted(rs) > before })
	})
	t.Run("a body above the limit", func(t *testing.T) {
		for name, n := range map[string]int{"the processor's": limit * 3 / 4, "Envoy's": 2 * limit} {
			status, _, body, err := chat(t.Context(), c, ask(false, 1, user(strings.Repeat("x", n))), nil, nil)
			if status != http.StatusRequestEntityTooLarge {
				t.Errorf("above %s: status %d, %v: %.200s", name, status, err, body)
			}
		}
		if status, _, _, err := chat(t.Context(), c, ask(false, 1, user(strings.Repeat("x", limit/4))), nil,
			nil); status != 200 || err != nil {
			t.Errorf("below both: status %d, %v", status, err)
		}
		s.idle(t)
	})
	t.Run("a client's own endpoint", func(t *testing.T) {
		status, _, _, err := chat(t.Context(), c, ask(false, 1, user("x")),
			http.Header{"X-Gateway-Destination-Endpoint": {"127.0.0.1:1"}}, nil)
		if status != 200 || err != nil {
			t.Errorf("status %d, %v", status, err)
		}
	})
	t.Run("200 streams", func(t *testing.T) {
		s.take()
		var wg sync.WaitGroup
		var peak atomic.Int64
		for i := range 200 {
			wg.Go(func() {
				status, _, body, err := chat(t.Context(), c, ask(true, 30, user(fmt.Sprintf("%d: tell me more", i))), nil, func() {
					peak.Store(max(peak.Load(), s.p.streams.Load())) // nearly
				})
				if status != 200 || err != nil {
					t.Errorf("status %d, %v", status, err)
					return
				}
				content(t, body)
			})
		}
		wg.Wait()
		s.idle(t)
		for _, e := range s.take() {
			if e.Stage != router.Finished {
				t.Errorf("%s ended %v: %v", e.Target.ID, e.Stage, e.Err)
			}
		}
		t.Logf("at most about %d at once", peak.Load())
	})
	t.Run("a replica dies", func(t *testing.T) { kill(t, c, s, rs, ids) })
	s.idle(t)
}

// Where an answer takes longer than Envoy's message_timeout, Envoy goes on alone: the
// client gets its reply, and the lease ends without blame and says why.
func TestEnvoyGoesOnAlone(t *testing.T) {
	_, ids := replicas(t, 4, quick())
	s := serve(t, Config{}, patience, ids...)
	c := envoy(t, s.addr, ids, "message_timeout: 10s", "message_timeout: 0.001s")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			status, _, body, err := chat(t.Context(), c, ask(true, 30, user(fmt.Sprintf("%d: tell me more", i))), nil, nil)
			if status != 200 || err != nil {
				t.Errorf("status %d, %v", status, err)
				return
			}
			content(t, body)
		})
	}
	wg.Wait()
	s.idle(t)
	alone := 0
	for _, e := range s.take() {
		switch {
		case e.Stage == router.Finished:
		case e.Stage == router.Canceled && (errors.Is(e.Err, errAlone) || errors.Is(e.Err, context.Canceled)):
			alone++
		default:
			t.Errorf("%s ended %v: %v", e.Target.ID, e.Stage, e.Err)
		}
	}
	t.Logf("Envoy went on alone in %d of 100", alone)
}

func aborted(rs []*vllmtest.Server) (n uint64) {
	for _, r := range rs {
		n += r.Stats().Aborted
	}
	return n
}

// kill ends one of the replicas under load. A request fails where its client got
// no success. A stream is cut where Envoy had its header: engines send that first,
// and then Envoy sends nothing again. Where the client has not got the header yet,
// it receives a 502 about a protocol error, an end within the reply.
func kill(t *testing.T, c *http.Client, s *service, rs []*vllmtest.Server, ids []string) {
	s.take()
	var failed, cut, good atomic.Int64
	var wg sync.WaitGroup
	dead, half := make(chan struct{}), make(chan struct{})
	for i := range 16 {
		wg.Go(func() {
			for n := range 30 {
				if i == 0 && n == 10 {
					close(half)
				}
				if n == 20 {
					<-dead // the last ten of each come after
				}
				stream := i%2 == 0
				status, _, body, err := chat(t.Context(), c, ask(stream, 60, user(fmt.Sprintf("worker %d, question %d", i, n))),
					nil, nil)
				switch {
				case status == 200 && err == nil && (!stream || strings.HasSuffix(body, "[DONE]\n\n")):
					good.Add(1)
				case stream && (status == 200 || status == 502 && strings.Contains(body, "protocol error")):
					cut.Add(1)
				default:
					failed.Add(1)
					t.Logf("status %d, %v: %.300s", status, err, body)
				}
			}
		})
	}
	<-half
	rs[0].Close()
	close(dead)
	wg.Wait()
	s.idle(t)
	t.Logf("failed requests: %d; cut streams: %d; good: %d", failed.Load(), cut.Load(), good.Load())
	if failed.Load() > 0 {
		t.Errorf("%d requests failed that another replica could have served", failed.Load())
	}
	var blamed, others int
	for _, e := range s.take() {
		switch {
		case e.Stage != router.Failed:
		case e.Target.ID == ids[0]:
			blamed++
		default:
			others++
		}
	}
	if blamed == 0 || others > 0 {
		t.Errorf("the dead replica was blamed %d times, the others %d times", blamed, others)
	}
}
