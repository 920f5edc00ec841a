package scorer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func plugin(t testing.TB, s router.Strategy) *Plugin {
	t.Helper()
	return must[*Plugin](t)(New(Config{Strategy: s}))
}

func targets(ids ...string) []router.Target {
	var out []router.Target
	for _, id := range ids {
		out = append(out, router.Target{ID: id, Load: router.Load{Known: true}})
	}
	return out
}

var long = router.Prompt{Text: strings.Repeat("all work and no play ", 100)}

func TestNew(t *testing.T) {
	var c *router.ConfigError
	if _, err := New(Config{Strategy: struct{ router.Strategy }{}}); !errors.As(err, &c) || c.Field != "Strategy" {
		t.Errorf("a strategy that explains nothing: %v", err)
	}
	if _, err := New(Config{Strategy: newLeastWork(t), MaxAge: -1}); !errors.As(err, &c) || c.Field != "MaxAge" {
		t.Errorf("a negative age: %v", err)
	}
}

// recorder keeps the stages that a strategy records.
type recorder struct {
	*leastwork.Strategy
	mu     sync.Mutex
	stages map[router.Stage]int
}

func (r *recorder) Record(d router.Decision, o router.Outcome) {
	r.mu.Lock()
	r.stages[o.Stage]++
	r.mu.Unlock()
	r.Strategy.Record(d, o)
}

// A scheduler that never learns how a request ended sets MaxAge.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{Strategy: must[*leastwork.Strategy](t)(leastwork.New(leastwork.Config{})),
			stages: map[router.Stage]int{}}
		p := must[*Plugin](t)(New(Config{Strategy: r, MaxAge: time.Minute}))
		all := targets("a", "b")
		other := router.Prompt{Text: strings.Repeat("something else altogether ", 100)}
		var lost []*Choice
		for i := range 100 {
			lost = append(lost, p.Chosen(t.Context(), router.Prompt{Text: fmt.Sprint(i, long.Text)}, all[0]))
		}
		told := p.Chosen(t.Context(), long, all[1])
		told.Ended(router.Outcome{Stage: router.Finished, Status: 200})
		time.Sleep(time.Minute - 1)
		p.Score(t.Context(), other, all)
		if n := r.stages[router.Canceled]; n != 0 {
			t.Errorf("%d ended too early", n)
		}
		time.Sleep(time.Nanosecond)
		late := p.Chosen(t.Context(), other, all[0]) // any call will do
		late.Ended(router.Outcome{Stage: router.Finished})
		if n := r.stages[router.Canceled]; n != 100 || p.open.Len() != 0 {
			t.Errorf("%d of 100 ended, %d are kept", n, p.open.Len())
		}
		lost[0].Ended(router.Outcome{Stage: router.Finished})
		if n := r.stages[router.Finished]; n != 2 {
			t.Errorf("%d finished, want 2: one was taken for canceled before", n)
		}
		// The prompts stay known.
		if s := p.Score(t.Context(), router.Prompt{Text: "7" + long.Text}, all); s[0] <= s[1] {
			t.Errorf("the prompt was forgotten: %v", s)
		}
	})
}

func TestFilter(t *testing.T) {
	all := targets("a", "b", "c")
	all[1].State = router.Cooling
	got := plugin(t, must[*leastwork.Strategy](t)(leastwork.New(leastwork.Config{}))).Filter(all)
	if diff := cmp.Diff([]router.Target{all[0], all[2]}, got); diff != "" {
		t.Error(diff)
	}
}

// TestScores holds for every strategy: one score for each endpoint, in their order,
// 0 to 1, and the greatest where the strategy itself would go.
func TestScores(t *testing.T) {
	for name, s := range map[string]router.Strategy{
		"least_work":  must[*leastwork.Strategy](t)(leastwork.New(leastwork.Config{})),
		"cache_aware": must[*cacheaware.Strategy](t)(cacheaware.New(cacheaware.Config{})),
		"round_robin": must[*roundrobin.Strategy](t)(roundrobin.New(roundrobin.Config{})),
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(t, s)
			all := targets("a", "b", "c", "d")
			all[0].State = router.Unhealthy
			c := p.Chosen(t.Context(), long, all[2])
			c.FirstToken()
			c.Ended(router.Outcome{Stage: router.Finished})
			scores := p.Score(t.Context(), long, all)
			d, err := s.Pick(t.Context(), long, all)
			if err != nil || len(scores) != len(all) {
				t.Fatal(scores, err)
			}
			for i, e := range all {
				if scores[i] < 0 || scores[i] > 1 || e.State != router.Ready && scores[i] != 0 {
					t.Errorf("%s: %v", e.ID, scores[i])
				}
				if e.ID != d.Target.ID && name != "round_robin" && scores[i] >= scores[index(all, d.Target.ID)] {
					t.Errorf("scores %v, but the strategy takes %s", scores, d.Target.ID)
				}
			}
			if name != "round_robin" && d.Target.ID != "c" {
				t.Errorf("%s was taken, c is warm", d.Target.ID)
			}
			if name == "round_robin" && scores[index(all, d.Target.ID)] != 1 {
				t.Errorf("scores %v, but it is the turn of %s", scores, d.Target.ID)
			}
		})
	}
}

func index(ts []router.Target, id string) int {
	for i := range ts {
		if ts[i].ID == id {
			return i
		}
	}
	return -1
}

// TestTakenBack: what failed before its first token teaches nothing, and Gone
// forgets.
func TestTakenBack(t *testing.T) {
	p := plugin(t, must[*leastwork.Strategy](t)(leastwork.New(leastwork.Config{})))
	all := targets("a", "b")
	cached := func() int {
		c := p.explainer.Explain(t.Context(), long, all[:1], nil)
		return c[0].Cached
	}
	p.Chosen(t.Context(), long, all[0]).Ended(router.Outcome{Stage: router.Failed})
	if n := cached(); n != 0 {
		t.Errorf("%d bytes cached after a failure", n)
	}
	c := p.Chosen(t.Context(), long, all[0])
	c.FirstToken()
	c.Ended(router.Outcome{Status: 500})            // no Stage
	c.Ended(router.Outcome{Stage: router.Finished}) // does nothing
	c.FirstToken()                                  // nor does this
	if n := cached(); n != len(long.Text) || c.progress.Next(router.Outcome{Stage: router.Finished}) != 0 {
		t.Errorf("%d bytes cached, or the choice has not ended", n)
	}
	p.Gone("a")
	if n := cached(); n != 0 {
		t.Errorf("%d bytes cached where it is gone", n)
	}
}

func chat(text string, stream bool) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":%t}`, text, stream)
}

func newLeastWork(t testing.TB) router.Strategy {
	return must[*leastwork.Strategy](t)(leastwork.New(leastwork.Config{}))
}

func TestConversationStays(t *testing.T) {
	s, replicas := newScheduler(t, 4, vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20}, newLeastWork(t))
	text := strings.Repeat("all work and no play ", 200)
	for range 6 {
		if err := s.serve(t.Context(), chat(text, false)); err != nil {
			t.Fatal(err)
		}
		text += "and another turn of it "
	}
	used := 0
	for _, r := range replicas {
		if s := r.Stats(); s.Requests > 0 {
			used++
		}
	}
	if used != 1 {
		t.Errorf("one conversation went to %d replicas", used)
	}
}

func TestCancel(t *testing.T) {
	s, replicas := newScheduler(t, 1, vllmtest.Config{ReplyTokens: 4000}, newLeastWork(t))
	if err := replicas[0].SetFaults(vllmtest.Faults{Hang: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, chat("x", true)) }()
	for s.fleet.Snapshot()[0].Target.Load.InFlight != 1 {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestKill kills one of four replicas under load. A request with a reply that
// had not begun must not fail; one in the midst of its reply can be saved by
// nobody.
func TestKill(t *testing.T) {
	s, replicas := newScheduler(t, 4, vllmtest.Config{TimeScale: 0.05, ReplyTokens: 20}, newLeastWork(t))
	var sent, failed, broke, again atomic.Int64
	s.again = func() { again.Add(1) }
	var killed atomic.Pointer[vllmtest.Server]
	const clients, each = 8, 30
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("client %d says ", c), 40)
			for i := range each {
				if sent.Add(1) == clients*each/3 {
					victim := replicas[s.busiest()]
					killed.Store(victim)
					victim.SetFaults(vllmtest.Faults{Refuse: true})
					victim.Restart()
				}
				text += fmt.Sprint(" turn ", i)
				switch err := s.serve(t.Context(), chat(text, c%2 == 0)); {
				case err == nil:
				case errors.Is(err, errBegun):
					broke.Add(1)
				default:
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("scorer: one of four killed: %d requests, %d sent again, %d failed that another could serve, %d broke off in "+
		"the midst",
		sent.Load(), again.Load(), failed.Load(), broke.Load())
	if failed.Load() != 0 || killed.Load().Stats().Restarts != 1 || again.Load()+broke.Load() == 0 {
		t.Errorf("%d failed, %d sent again", failed.Load(), again.Load())
	}
}

// TestAddedLatency logs the latency that the plug-in adds at one client,
// against the same scheduler without it, in turns.
func TestAddedLatency(t *testing.T) {
	cfg := vllmtest.Config{Instant: true, ReplyTokens: 20}
	without, _ := newScheduler(t, 4, cfg, nil)
	with, _ := newScheduler(t, 4, cfg, newLeastWork(t))
	d := p50(t, 400, chat(strings.Repeat("all work and no play ", 700), true), without, with)
	t.Logf("scorer: p50 at one client: %v without, %v with, added %v", d[0], d[1], d[1]-d[0])
}
