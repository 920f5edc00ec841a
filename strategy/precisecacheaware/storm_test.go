package precisecacheaware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// fleet is a Router over engines that publish events when the test says so.
func fleet(t *testing.T, weights ...float64) (*router.Router, *kvtest.Engines, *clock) {
	t.Helper()
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e, c := kvtest.New(t), &clock{time.Unix(1e9, 0)}
	var ms []loadview.Member
	for i, w := range weights {
		ms = append(ms, loadview.Member{ID: fmt.Sprint("engine-", i), Weight: w})
		e.Begin(ms[i].ID)
	}
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Rand: seeded(9), Now: c.now})
	return router.New(s, v, router.Options{}), e, c
}

// A burst that shares a prefix, of which one engine alone holds all, spreads over
// the fleet by weight.
func TestHotPrefixSpreads(t *testing.T) {
	for _, weights := range [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 1, 1}} {
		for _, events := range []bool{false, true} {
			r, e, clock := fleet(t, weights...)
			e.Store("engine-0", part(0, 18))
			sum := 0.0
			for _, w := range weights {
				sum += w
			}
			got := map[string]int{}
			for n := 1; n <= 40*len(weights); n++ {
				clock.t = clock.t.Add(10 * time.Millisecond)
				p := part(n, 18)
				l, err := r.Route(context.Background(), router.Prompt{Model: "m", Tokens: p.Tokens})
				if err != nil {
					t.Fatal(err)
				}
				id := l.Decision().Target.ID
				if events {
					e.Store(id, p)
				}
				got[id]++
				fair := float64(n) / sum
				for i, w := range weights {
					// The least load is at most the fair share, so no engine has more
					// than that and what a prompt is worth, and the one that came then.
					if load := float64(got[fmt.Sprint("engine-", i)]) / w; load > fair+max(8, fair)+1 {
						t.Fatalf("weights %v, events %v: %v after %d requests", weights, events, got, n)
					}
				}
			}
			for i, w := range weights {
				if n, fair := float64(got[fmt.Sprint("engine-", i)]), 40*float64(len(weights))*w/sum; n < 0.7*fair {
					t.Errorf("weights %v, events %v: %v, engine-%d should have about %.0f", weights, events, got, i, fair)
				}
			}
		}
	}
}

// The requests of a burst stick to one engine before its first event, as far as
// the load allows, and without presumptions they would not.
func TestBurstSticks(t *testing.T) {
	for _, c := range []struct {
		presume time.Duration
		stick   bool
	}{{0, true}, {-1, false}} {
		e, clock := kvtest.New(t), &clock{time.Unix(1e9, 0)}
		var ts []router.Target
		for i := range 8 {
			ts = append(ts, busy(fmt.Sprint("engine-", i), 0))
			e.Begin(ts[i].ID)
		}
		s := mustNew(t, precisecacheaware.Config{Index: e.Index, PresumeFor: c.presume, Rand: seeded(4), Now: clock.now})
		p := part(0, 20)
		got := map[string]int{}
		for range 4 {
			d := pick(t, s, p, ts...)
			s.Record(d, router.Outcome{Stage: router.Sent})
			ts[slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == d.Target.ID })].Load.InFlight++
			got[d.Target.ID]++
		}
		if (len(got) == 1) != c.stick {
			t.Errorf("presumed for %v: %v", c.presume, got)
		}
	}
}

// Conversations, 32 at once on 8 engines with late events, begin on all engines
// under one system prompt and stay there.
func TestConversationsStay(t *testing.T) {
	r, e, clock := fleet(t, 1, 1, 1, 1, 1, 1, 1, 1)
	rng := rand.New(rand.NewPCG(2, 2))
	system := tokens(1, 64*blockSize)
	type talk struct {
		tokens []uint32
		turn   int
		at     string
		lease  *router.Lease
	}
	open := make([]*talk, 32)
	requests, stayed, later := map[string]int{}, 0, 0
	const n = 3000
	for i := range n {
		clock.t = clock.t.Add(30 * time.Millisecond)
		at := rng.IntN(len(open))
		c := open[at]
		if c != nil { // its reply ends, and the engine reports it
			c.lease.FirstToken()
			c.lease.Done(router.Outcome{Status: 200})
			e.Store(c.at, router.Prompt{Tokens: c.tokens})
		}
		if c == nil || c.turn == 8 {
			c = &talk{tokens: slices.Clone(system)}
			open[at] = c
		}
		c.turn++
		c.tokens = append(slices.Clone(c.tokens), tokens(1000+i, 100+rng.IntN(300))...)
		l, err := r.Route(context.Background(), router.Prompt{Model: "m", Tokens: c.tokens})
		if err != nil {
			t.Fatal(err)
		}
		id := l.Decision().Target.ID
		if c.turn > 1 {
			later++
			if id == c.at {
				stayed++
			}
		}
		c.lease, c.at = l, id
		requests[id]++
	}
	most := 0
	for _, k := range requests {
		most = max(most, k)
	}
	stay, uneven := float64(stayed)/float64(later), float64(most)*8/n
	t.Logf("%.3f of the later turns stay, the busiest engine has %.2f of its share", stay, uneven)
	if stay < 0.9 || uneven > 1.25 {
		t.Errorf("%.3f stay, %.2f uneven: %v", stay, uneven, requests)
	}
}

// All of it at once, while engines store, fall silent and start over.
func TestAtOnce(t *testing.T) {
	e := kvtest.New(t)
	var ts []router.Target
	for i := range 8 {
		ts = append(ts, busy(fmt.Sprint("engine-", i), i%3))
		e.Begin(ts[i].ID)
	}
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Fallback: "text", PresumeFor: time.Millisecond})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 300 {
			id := ts[i%8].ID
			switch i % 7 {
			case 0:
				e.Index.Reset(id)
			case 1:
				e.Index.Suspend(id, i%2 == 0)
			default:
				e.Store(id, part(i%5, 10))
			}
		}
	})
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				p := part(i%5, 10)
				if g%2 == 0 {
					p.Text = fmt.Sprint("the text of ", i%5)
				}
				d, err := s.Pick(context.Background(), p, ts)
				if err != nil || d.Cached < 0 || d.Cached > d.Length {
					t.Errorf("%+v, %v", d, err)
					return
				}
				s.Record(d, router.Outcome{Stage: router.Sent})
				s.Record(d, router.Outcome{Stage: router.Finished + router.Stage(i%3), PromptTokens: 1, CachedTokens: i % 2})
				if i%50 == 0 {
					s.Forget(d.Target.ID)
					s.Explain(context.Background(), p, ts, nil)
					s.Stats()
				}
			}
		})
	}
	wg.Wait()
}
