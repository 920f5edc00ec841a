package warmroute

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// `tell` makes Caddy report the target of a request, with the reason.
const tell = "header_down X-Upstream {rp.upstream.hostport}\n\t\theader_down X-Reason {rp.warmroute.reason}"

// talk holds n conversations side by side, of these many turns each, and returns
// how many of the later turns went where the one before them had gone. between is
// called before each turn. crossed counts requests on a connection that was
// closed without a byte; these are sent again if it is not nil.
func talk(t *testing.T, h *host, n, turns int, crossed *atomic.Int64, between func(i int)) (stayed, later int64) {
	t.Helper()
	var same, all, done atomic.Int64
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() {
			ms := []message{{"system", strings.Repeat(fmt.Sprintf("You are number %d. ", c), 60)}}
			last := ""
			for i := range turns {
				between(int(done.Add(1)))
				ms = append(ms, message{"user", fmt.Sprintf("question %d of %d", i, c)})
				stream := i%2 == 0
				a := h.ask(context.Background(), body(stream, 20, ms...), nil)
				for range 10 {
					if crossed == nil || a.err == nil || a.status != 0 {
						break
					}
					crossed.Add(1)
					a = h.ask(context.Background(), body(stream, 20, ms...), nil)
				}
				if a.err != nil || a.status != 200 {
					t.Errorf("conversation %d, turn %d: %d %q %v", c, i, a.status, a.body, a.err)
					return
				}
				text, err := content(a.body, stream)
				if err != nil {
					t.Errorf("conversation %d, turn %d: %v in %q", c, i, err, a.body)
					return
				}
				ms = append(ms, message{"assistant", text})
				if i > 0 {
					all.Add(1)
					if a.header.Get("X-Upstream") == last {
						same.Add(1)
					}
				}
				last = a.header.Get("X-Upstream")
			}
		})
	}
	wg.Wait()
	return same.Load(), all.Load()
}

// content is the text of a reply that ended as it should.
func content(reply string, stream bool) (string, error) {
	type choice struct {
		Message, Delta struct{ Content string }
	}
	var r struct{ Choices []choice }
	if !stream {
		if err := json.Unmarshal([]byte(reply), &r); err != nil || len(r.Choices) != 1 {
			return "", fmt.Errorf("no choice: %v", err)
		}
		return r.Choices[0].Message.Content, nil
	}
	var text strings.Builder
	for line := range strings.Lines(reply) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return text.String(), nil
		}
		r.Choices = nil
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			return "", err
		}
		for _, c := range r.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return "", fmt.Errorf("the stream has no end")
}

// conversations: they stay where their cache is.
func conversations(t *testing.T, h *host, rs []*vllmtest.Server) {
	t.Helper()
	stayed, later := talk(t, h, 8, 6, nil, func(int) {})
	if stayed*10 < later*9 {
		t.Errorf("%d of %d later turns stayed", stayed, later)
	}
	var prompt, cached, finished uint64
	for _, r := range rs {
		s := r.Stats()
		prompt, cached, finished = prompt+s.PromptTokens, cached+s.CachedTokens, finished+s.Finished
	}
	if cached*2 < prompt {
		t.Errorf("%d of %d tokens were cached", cached, prompt)
	}
	if s := h.idle(t); s.Finished != finished || s.Failed+s.Canceled+s.Unread+s.NoTarget != 0 ||
		s.CachedBytes*2 < s.LengthBytes {
		t.Errorf("%+v, the replicas finished %d", s, finished)
	}
}

// reloads: conversations go on over several of them and lose neither a request nor
// their place. What Go's server reads after its shutdown began it answers by closing
// the connection, so clients have to send that again, whatever the policy; that it
// went nowhere before is seen from the number of requests that were sent on.
func reloads(t *testing.T, h *host, again func(i int)) {
	t.Helper()
	before := h.idle(t)
	turn := make(chan struct{}, 1)
	ended := make(chan struct{})
	var n int
	go func() {
		defer close(ended)
		for range turn {
			n++
			again(n)
		}
	}()
	var crossed atomic.Int64
	stayed, later := talk(t, h, 8, 12, &crossed, func(i int) {
		if i%16 == 0 {
			select {
			case turn <- struct{}{}:
			default: // one is under way
			}
		}
	})
	close(turn)
	<-ended
	t.Logf("caddy: %d reloads under load: %d of %d later turns stayed, none failed, %d had to be sent again by the client",
		n, stayed, later, crossed.Load())
	if n == 0 || stayed*10 < later*9 {
		t.Errorf("%d reloads, %d of %d later turns stayed", n, stayed, later)
	}
	if s := h.idle(t); s.Sent != before.Sent+8*12 || s.Finished != before.Finished+8*12 {
		t.Errorf("not one state: %+v, before %+v", s, before)
	}
}

// leaves: a client that goes away in the midst of a stream is seen at the replica,
// and comes off the count.
func leaves(t *testing.T, h *host, rs []*vllmtest.Server) {
	t.Helper()
	before := h.idle(t)
	aborted := func() (n uint64) {
		for _, r := range rs {
			n += r.Stats().Aborted
		}
		return n
	}
	was := aborted()
	const n = 10
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			a := h.ask(ctx, body(true, 100_000, message{"user", fmt.Sprint("tell me a long story, ", i)}), cancel)
			if a.err == nil {
				t.Errorf("the stream ended: %d %q", a.status, a.body)
			}
		})
	}
	wg.Wait()
	if s := h.idle(t); s.Canceled != before.Canceled+n || s.Failed != before.Failed {
		t.Errorf("%+v, before %+v", s, before)
	}
	eventually(t, "the replicas see it", func() bool { return aborted() == was+n })
}

// kills one of the replicas under load, and wants every request served that had not
// begun to be answered.
func kills(t *testing.T, h *host, rs []*vllmtest.Server) {
	t.Helper()
	before := h.idle(t)
	const clients, each = 8, 30
	var wg sync.WaitGroup
	var sent, failed, broke atomic.Int64
	victim := make(chan *vllmtest.Server, 1)
	for c := range clients {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("client %d says ", c), 40)
			for i := range each {
				if sent.Add(1) == clients*each/3 {
					v := slices.MaxFunc(rs, func(a, b *vllmtest.Server) int {
						x, y := a.Stats(), b.Stats()
						return x.Running + x.Waiting - y.Running - y.Waiting
					})
					if err := v.SetFaults(vllmtest.Faults{Refuse: true}); err != nil {
						t.Error(err)
					}
					if err := v.Restart(); err != nil {
						t.Error(err)
					}
					victim <- v
				}
				text += fmt.Sprint(" turn ", i)
				stream := c%2 == 0
				a := h.ask(context.Background(), body(stream, 20, message{"user", text}), nil)
				_, err := content(a.body, stream)
				switch {
				case a.err == nil && a.status == 200 && err == nil:
				case a.status == 200 && len(a.body) > 0: // it had begun
					broke.Add(1)
				default:
					failed.Add(1)
					t.Logf("%d %q %v", a.status, a.body, a.err)
				}
			}
		})
	}
	wg.Wait()
	s := h.idle(t)
	again := int64(s.Sent-before.Sent) - sent.Load()
	t.Logf("caddy: one of four killed: %d requests, %d sent again, %d failed that another could serve, %d broke off in "+
		"the midst",
		sent.Load(), again, failed.Load(), broke.Load())
	if failed.Load() != 0 || again+broke.Load() == 0 {
		t.Errorf("%d failed, %d sent again, %d broke off", failed.Load(), again, broke.Load())
	}
	if v := (<-victim).Stats(); v.Restarts != 1 || v.Finished == 0 {
		t.Errorf("who was killed: %+v", v)
	}
}
