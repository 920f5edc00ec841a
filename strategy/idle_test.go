package strategy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/evictions"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
)

// words makes a text of n bytes or a little more.
func words(r *rand.Rand, n int) string { return evictions.Words(r, n) }

// idleFleet sends chats to replicas with unbounded caches: users of them at once, each chat of some
// turns. It returns the first turns of each replica and the share of all text that was cached at
// its target.
func idleFleet(t *testing.T, s router.Strategy, replicas, chats, turns, users int,
	system string) (first []int, cached float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(chats), 8))
	type chat struct {
		text  string
		turns int
	}
	type request struct {
		d    router.Decision
		at   int
		chat *chat
	}
	load := make([]router.Load, replicas)
	first = make([]int, replicas)
	for i := range load {
		load[i].Known = true
	}
	var inFlight []request
	held, length, begun := 0, 0, 0
	ready := []*chat{}
	for begun < chats || len(ready) > 0 || len(inFlight) > 0 {
		for len(inFlight) < users && (begun < chats || len(ready) > 0) {
			var c *chat
			if len(ready) > 0 {
				c, ready = ready[0], ready[1:]
				c.text += words(r, 200)
			} else {
				begun++
				c = &chat{text: "\xffs" + system + "\xffu" + words(r, 200+r.IntN(400))}
			}
			ts := make([]router.Target, replicas)
			for i := range ts {
				ts[i] = router.Target{ID: fmt.Sprint("replica ", i), Load: load[i]}
			}
			d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: c.text}, ts)
			if err != nil {
				t.Fatal(err)
			}
			s.Record(d, router.Outcome{Stage: router.Sent})
			at := slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == d.Target.ID })
			if c.turns == 0 {
				first[at]++
			}
			load[at].InFlight++
			held, length = held+d.Cached, length+d.Length
			inFlight = append(inFlight, request{d, at, c})
		}
		i := r.IntN(len(inFlight))
		done := inFlight[i]
		inFlight = slices.Delete(inFlight, i, i+1)
		reply := "\xffa" + words(r, 300) + "\xffu"
		s.Record(done.d, router.Outcome{Stage: router.Finished, Status: 200, Reply: reply})
		load[done.at].InFlight--
		done.chat.text += reply
		if done.chat.turns++; done.chat.turns < turns {
			ready = append(ready, done.chat)
		}
	}
	return first, float64(held) / float64(length)
}

// TestIdleFleetSpreads: unrelated chats spread over a fleet that is never busy, with a system
// prompt of 2,000 bytes that all share and without one, and the cached share is within 2% of that
// of one replica that gets everything.
func TestIdleFleetSpreads(t *testing.T) {
	makers := map[string]func(rand func() uint64) (router.Strategy, error){
		leastwork.Name: func(rand func() uint64) (router.Strategy, error) {
			return leastwork.New(
				leastwork.Config{Rand: rand})
		},
		pipeline.Name: func(rand func() uint64) (router.Strategy, error) { return pipeline.New(pipeline.Config{Rand: rand}) },
	}
	const replicas, chats = 4, 200
	for name, newStrategy := range makers {
		for _, system := range []int{0, 2000} {
			for _, turns := range []int{1, 4} {
				for _, users := range []int{1, 2, 4, 8} {
					run := func(replicas int) ([]int, float64) {
						r := rand.New(rand.NewPCG(1, 2))
						s, err := newStrategy(r.Uint64)
						if err != nil {
							t.Fatal(err)
						}
						return idleFleet(t, s, replicas, chats, turns, users, words(r, system))
					}
					first, cached := run(replicas)
					_, most := run(1)
					t.Logf("%s, system prompt of %d, %d turns, %d users: %v, cached %.3f of %.3f", name, system, turns, users, first,
						cached, most)
					if n := slices.Max(first); n > 2*chats/replicas {
						t.Errorf("%s, system prompt of %d, %d turns, %d users: %v", name, system, turns, users, first)
					}
					if cached < most-0.02 {
						t.Errorf("%s, system prompt of %d, %d turns, %d users: cached %.3f, want %.3f", name, system, turns, users,
							cached, most)
					}
				}
			}
		}
	}
}
