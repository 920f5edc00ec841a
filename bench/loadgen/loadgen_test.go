package loadgen_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/workload"
)

// TestRunIsAClosedLoop checks on virtual time that all clients are kept busy,
// never more than them, and that turns wait for the turn before.
func TestRunIsAClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workload.Chat(workload.ChatConfig{Conversations: 100, Systems: 3, SystemBytes: 100, UserBytes: 30,
			AssistantBytes: 30})
		const clients = 16
		var mu sync.Mutex
		flying, most := 0, 0
		answered := make(map[int]int)
		start := time.Now()
		sent, err := loadgen.Run(t.Context(), w.Requests, clients,
			func(_ context.Context, r workload.Request) (loadgen.Reply, error) {
				mu.Lock()
				flying++
				most = max(most, flying)
				if answered[r.Conversation] != r.Turn {
					t.Errorf("turn %d of conversation %d was sent when %d had been answered", r.Turn, r.Conversation,
						answered[r.Conversation])
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				answered[r.Conversation]++
				flying--
				return loadgen.Reply{Engine: r.Conversation}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if most != clients {
			t.Errorf("%d in flight at the most, want %d", most, clients)
		}
		least := 20 * time.Millisecond * time.Duration(len(w.Requests)) / clients
		if took := time.Since(start); took < least || took > 2*least {
			t.Errorf("took %v, want little more than %v", took, least)
		}
		seen := make(map[workload.Request]bool)
		for i, s := range sent {
			if s.Order != i || s.Took != 20*time.Millisecond || s.Engine != s.Request.Conversation {
				t.Fatalf("request %d: %+v", i, s)
			}
			seen[s.Request] = true
		}
		if len(seen) != len(w.Requests) || len(sent) != len(w.Requests) {
			t.Errorf("%d sent, %d different, want %d", len(sent), len(seen), len(w.Requests))
		}
	})
}

func TestRunEnds(t *testing.T) {
	w := workload.Chat(workload.ChatConfig{Conversations: 20, Systems: 2, SystemBytes: 50})
	broken := errors.New("broken")
	t.Run("error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			_, err := loadgen.Run(t.Context(), w.Requests, 4, func(context.Context, workload.Request) (loadgen.Reply, error) {
				i := n.Add(1)
				time.Sleep(time.Millisecond)
				if i == 10 {
					return loadgen.Reply{}, broken
				}
				return loadgen.Reply{}, nil
			})
			if !errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
			// Those that fly with the tenth, and those that follow them at the same instant.
			if got := n.Load(); got > 10+3+4 {
				t.Errorf("%d requests after an error", got-10)
			}
		})
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := loadgen.Run(ctx, w.Requests, 4, func(ctx context.Context, _ workload.Request) (loadgen.Reply, error) {
			cancel(broken)
			<-ctx.Done()
			return loadgen.Reply{}, ctx.Err()
		})
		if !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
	})
}

// TestJudge judges a fleet with figures that can be computed by hand. Texts
// begin with two bytes for the role of each message.
func TestJudge(t *testing.T) {
	conversation := func(system int, contents ...string) *workload.Conversation {
		c := &workload.Conversation{System: system}
		for i, s := range contents {
			role := []string{"assistant", "user"}[i%2]
			if i == 0 {
				role = "system"
			}
			c.Messages = append(c.Messages, workload.Message{Role: role, Content: s})
		}
		return c
	}
	w := &workload.Workload{Conversations: []*workload.Conversation{
		conversation(0, "SSSS", "aa", "bb", "cc", "dd"), // prompts of 6+4 and 6+4+4+4 bytes
		conversation(0, "SSSS", "xx", "yy"),             // 6+4
		conversation(1, "TTTT", "aa", "bb"),             // 6+4
	}}
	sent := []loadgen.Sent{
		{Request: workload.Request{Conversation: 0, Turn: 0}, Order: 0, Reply: loadgen.Reply{Engine: 0, Seq: 1}}, // 0
		// the marks: 2 at both
		{Request: workload.Request{Conversation: 2, Turn: 0}, Order: 1, Reply: loadgen.Reply{Engine: 1, Seq: 3}},
		{Request: workload.Request{Conversation: 1, Turn: 0}, Order: 2, Reply: loadgen.Reply{Engine: 0, Seq: 2}}, // 6+2 at 0
		// 2 at 1, 10 at one cache
		{Request: workload.Request{Conversation: 0, Turn: 1}, Order: 3, Reply: loadgen.Reply{Engine: 1, Seq: 4}},
	}
	got := loadgen.Judge(w, sent, 3)
	want := loadgen.Verdict{
		Requests:    []int{2, 2, 0},
		Cached:      (0 + 8 + 0 + 2) / 48.0,
		Ideal:       (0 + 8 + 2 + 10) / 48.0,
		MaxOverMean: 1.5,
		Stayed:      0,
		Openings:    2,
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
	sent[3].Engine = 0
	if got := loadgen.Judge(w, sent, 3); got.Stayed != 1 || math.Abs(got.Cached-18/48.0) > 1e-9 {
		t.Errorf("a turn that stays: %+v", got)
	}
}

// TestJudgeAgainstOneEngine compares the ideal with the result of one engine.
func TestJudgeAgainstOneEngine(t *testing.T) {
	w := workload.Chat(workload.ChatConfig{Conversations: 200})
	place := func(engine func(workload.Request) int) loadgen.Verdict {
		sent, err := loadgen.Run(t.Context(), w.Requests, 1,
			func(_ context.Context, r workload.Request) (loadgen.Reply, error) {
				return loadgen.Reply{Engine: engine(r)}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return loadgen.Judge(w, sent, 8)
	}
	one := place(func(workload.Request) int { return 3 })
	if one.Cached != one.Ideal || one.Stayed != 1 || one.MaxOverMean != 8 || one.Openings != 1 {
		t.Errorf("one engine: %+v", one)
	}
	sticky := place(func(r workload.Request) int { return r.Conversation % 8 })
	if sticky.Ideal != one.Ideal || sticky.Cached >= one.Cached || sticky.Stayed != 1 {
		t.Errorf("by conversation: %+v, one engine: %+v", sticky, one)
	}
	scattered := place(func(r workload.Request) int { return (r.Conversation + r.Turn) % 8 })
	if scattered.Cached >= sticky.Cached || scattered.Stayed != 0 {
		t.Errorf("scattered: %+v, by conversation: %+v", scattered, sticky)
	}
}
