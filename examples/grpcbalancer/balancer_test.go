package grpcbalancer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var registered atomic.Int64

// names gives each Balancer a name of its own: gRPC's registry is for the process.
func names() string { return fmt.Sprintf("warmroute_%d", registered.Add(1)) }

func body(text string, stream bool) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":%t}`, text, stream)
}

func fast() vllmtest.Config { return vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20} }

// receive reads a stream to its end and returns how many messages came.
func receive(st interface{ RecvMsg(any) error }) (int, error) {
	for n := 0; ; n++ {
		if err := st.RecvMsg(new(wrapperspb.StringValue)); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

func TestNew(t *testing.T) {
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for field, cfg := range map[string]Config{"Router": {Fleet: fleet},
		"Fleet": {Router: router.New(nil, fleet, router.Options{})}} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestOutcome(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	tried, stop := context.WithTimeoutCause(t.Context(), 0, router.ErrAttemptTimeout)
	defer stop()
	<-tried.Done()
	rpc := func(c codes.Code) balancer.DoneInfo {
		return balancer.DoneInfo{Err: status.Error(c, ""), BytesSent: true}
	}
	push := rpc(codes.ResourceExhausted)
	push.Trailer = metadata.Pairs("grpc-retry-pushback-ms", "1500")
	for _, c := range []struct {
		name string
		ctx  context.Context
		info balancer.DoneInfo
		want router.Outcome
	}{
		{"ok", t.Context(), balancer.DoneInfo{BytesSent: true, BytesReceived: true},
			router.Outcome{Stage: router.Finished, Status: 200}},
		{"not sent", t.Context(), balancer.DoneInfo{}, router.Outcome{NotSent: true}},
		{"canceled", t.Context(), rpc(codes.Canceled), router.Outcome{Stage: router.Canceled}},
		{"own deadline", ended, rpc(codes.DeadlineExceeded), router.Outcome{Stage: router.Canceled, Status: 504}},
		{"the bound of a try", tried, rpc(codes.DeadlineExceeded), router.Outcome{Stage: router.Failed}},
		{"the bound of a try, canceled", tried, rpc(codes.Canceled), router.Outcome{Stage: router.Failed}},
		{"server's deadline", t.Context(), rpc(codes.DeadlineExceeded), router.Outcome{Stage: router.Failed, Status: 504}},
		{"unavailable", t.Context(), rpc(codes.Unavailable), router.Outcome{Stage: router.Failed, Status: 503}},
		{"full", t.Context(), push, router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: 1500 * time.Millisecond}},
		{"internal", t.Context(), rpc(codes.Internal), router.Outcome{Stage: router.Failed, Status: 500}},
		{"wrong", t.Context(), rpc(codes.InvalidArgument), router.Outcome{Stage: router.Failed, Status: 400}},
	} {
		if diff := cmp.Diff(c.want, outcome(c.ctx, c.info), cmpopts.IgnoreFields(router.Outcome{}, "Err")); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestConversationStays(t *testing.T) {
	for _, by := range []string{"message", "context", "metadata", "bare"} {
		t.Run(by, func(t *testing.T) {
			h := newHost(t, 4, fast(), map[string]mode{"bare": bare}[by])
			text := strings.Repeat("all work and no play ", 100)
			for i := range 6 {
				ctx := t.Context()
				req := body(text, by != "message")
				switch by {
				case "context", "bare":
					p, err := prompt.FromChat([]byte(req))
					if err != nil {
						t.Fatal(err)
					}
					ctx = WithPrompt(ctx, p)
				case "metadata":
					ctx = metadata.AppendToOutgoingContext(ctx, KeyText, text, KeySession, "s", KeyModel, "m")
				}
				if by == "message" {
					if _, err := h.chat(ctx, req); err != nil {
						t.Fatal(i, err)
					}
				} else {
					st, err := h.open(ctx, req)
					if err != nil {
						t.Fatal(i, err)
					}
					if n, err := receive(st); n < 3 || err != nil {
						t.Fatal(i, n, err)
					}
				}
				text += "and another turn of it "
			}
			used := 0
			for _, s := range h.servers {
				if s := s.replica.Stats(); s.Requests > 0 {
					used++
					if s.CachedTokens*2 < s.PromptTokens {
						t.Errorf("%d of %d tokens were cached", s.CachedTokens, s.PromptTokens)
					}
				}
			}
			if used != 1 {
				t.Errorf("one conversation went to %d servers", used)
			}
			if h.stages(router.Finished) != 6 || by != "bare" && h.first != 6 {
				t.Errorf("%d finished, %d first tokens", h.stages(router.Finished), h.first)
			}
		})
	}
}

// TestStates follows a server that goes, one that comes back, and one that the
// resolver takes away.
func TestStates(t *testing.T) {
	h := newHost(t, 3, fast(), full)
	h.servers[0].stop()
	h.ready(t, 2)
	if s := h.fleet.Snapshot()[0].Target; s.State != router.Unhealthy || s.ID != h.servers[0].addr {
		t.Errorf("%+v", s)
	}
	for i := range 10 {
		if _, err := h.chat(t.Context(), body(fmt.Sprint(i), false)); err != nil {
			t.Fatal(err)
		}
	}
	h.servers[0].start(t)
	h.ready(t, 3)
	h.resolver.UpdateState(h.addresses(2))
	until(t, "two members", func() bool { return len(h.fleet.Snapshot()) == 2 })
	h.resolver.UpdateState(h.addresses(3))
	h.ready(t, 3)

	for _, s := range h.servers {
		s.stop()
	}
	h.ready(t, 0)
	if _, err := h.chat(t.Context(), body("x", false)); status.Code(err) != codes.Unavailable {
		t.Errorf("all are gone: %v", err)
	}
	h.servers[2].start(t)
	h.ready(t, 1)
	if _, err := h.chat(t.Context(), body("x", false)); err != nil {
		t.Errorf("one is back: %v", err)
	}
}

// TestFailover: an RPC that a server turns down goes to one that it has not tried.
func TestFailover(t *testing.T) {
	h := newHost(t, 3, fast(), full)
	text := strings.Repeat("all work and no play ", 100)
	for i := range 3 {
		if _, err := h.chat(t.Context(), body(text, false)); err != nil {
			t.Fatal(i, err)
		}
		if i < 2 { // also selects the next one
			n := slices.IndexFunc(h.servers, func(s *server) bool {
				st := s.replica.Stats()
				return st.Finished > 0 &&
					st.Faulted == 0
			})
			if err := h.servers[n].replica.SetFaults(vllmtest.Faults{Status: 503}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := h.stages(router.Failed); n < 2 {
		t.Errorf("%d attempts failed", n)
	}
	for _, s := range h.servers {
		s.replica.SetFaults(vllmtest.Faults{Status: 503})
	}
	if _, err := h.chat(t.Context(), body(text, false)); status.Code(err) != codes.Unavailable {
		t.Errorf("all turn it down: %v", err)
	}
	if _, err := h.chat(t.Context(), "no JSON"); err == nil {
		t.Error("nonsense was answered")
	}
}

func TestCancel(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{ReplyTokens: 4000}, full)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := h.open(ctx, body("x", true))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.RecvMsg(new(wrapperspb.StringValue)); err != nil {
		t.Fatal(err)
	}
	if l := h.fleet.Snapshot()[0].Target.Load; l.InFlight != 1 || l.Prefill != 0 {
		t.Errorf("at the first message: %+v", l)
	}
	cancel()
	h.idle(t)
	until(t, "the replica sees it", func() bool { return h.servers[0].replica.Stats().Aborted == 1 })
	until(t, "it was canceled", func() bool { return h.stages(router.Canceled) == 1 })

	// The deadline of a client is not the server's fault.
	h.servers[0].replica.SetFaults(vllmtest.Faults{Hang: true})
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := h.chat(ctx, body("x", false)); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	h.idle(t)
	if n := h.stages(router.Failed); n != 0 {
		t.Errorf("%d failed", n)
	}
}

// TestKill kills one of four servers under load, and starts it again. An RPC with
// a reply that had not begun must not fail; one in the midst of its reply can be
// saved by nobody.
func TestKill(t *testing.T) {
	h := newHost(t, 4, vllmtest.Config{TimeScale: 0.05, ReplyTokens: 20}, full)
	const clients, each = 8, 30
	var wg sync.WaitGroup
	var sent, failed, broke atomic.Int64
	victim := make(chan *server, 1)
	for c := range clients {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("client %d says ", c), 40)
			for i := range each {
				switch sent.Add(1) {
				case clients * each / 3:
					v := h.servers[h.busiest(t)]
					v.stop()
					victim <- v
				case clients * each * 2 / 3:
					(<-victim).start(t)
				}
				text += fmt.Sprint(" turn ", i)
				var err error
				n := 0
				if c%2 == 0 {
					_, err = h.chat(t.Context(), body(text, false))
				} else {
					p, _ := prompt.FromChat([]byte(body(text, true)))
					st, e := h.open(WithPrompt(t.Context(), p), body(text, true))
					if err = e; err == nil {
						n, err = receive(st)
					}
				}
				switch {
				case err == nil:
				case n > 0:
					broke.Add(1)
				default:
					failed.Add(1)
					t.Log(c, i, err)
				}
			}
		})
	}
	wg.Wait()
	h.idle(t)
	t.Logf("grpcbalancer: one of four killed: %d requests, %d attempts failed, %d requests failed that another could "+
		"serve, %d broke off in the midst",
		sent.Load(), h.stages(router.Failed), failed.Load(), broke.Load())
	if failed.Load() != 0 {
		t.Errorf("%d failed", failed.Load())
	}
	h.ready(t, 4)
}

// TestAddedLatency logs the latency that the choice adds at one client, against
// gRPC's own round_robin, in turns.
func TestAddedLatency(t *testing.T) {
	cfg := vllmtest.Config{Instant: true, ReplyTokens: 20}
	hosts := []*host{newHost(t, 4, cfg, plain), newHost(t, 4, cfg, full)}
	req := body(strings.Repeat("all work and no play ", 700), false) // 14 KB
	var took [2][]time.Duration
	for i := range 2 * 400 {
		start := time.Now()
		if _, err := hosts[i%2].chat(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		took[i%2] = append(took[i%2], time.Since(start))
	}
	for i := range took {
		slices.Sort(took[i])
	}
	without, with := took[0][200], took[1][200]
	t.Logf("grpcbalancer: p50 at one client: %v without, %v with, added %v", without, with, with-without)
}
