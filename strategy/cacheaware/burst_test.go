package cacheaware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// fleet returns a Router with a cache_aware strategy over engines of the given
// weights.
func fleet(t *testing.T, weights ...float64) *router.Router {
	t.Helper()
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ms []loadview.Member
	for i, w := range weights {
		ms = append(ms, loadview.Member{ID: fmt.Sprint("engine-", i), Weight: w})
	}
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
	src, mu := seeded(9), sync.Mutex{}
	s := mustNew(t, cacheaware.Config{Rand: func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return src()
	}})
	return router.New(s, v, router.Options{})
}

var system = strings.Repeat("You are the assistant of a shop that sells lamps. ", 160) // 8 KB

func question(rng *rand.Rand, turn int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nturn %d: ", turn)
	for range 60 {
		fmt.Fprintf(&b, "word%d ", rng.IntN(1000))
	}
	return b.String()
}

// A burst that shares one system prompt spreads over the fleet, by weight,
// although the first engine to hold it is the best match for all that follow.
func TestBurstSpreads(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []float64
	}{
		{"8 equal engines", []float64{1, 1, 1, 1, 1, 1, 1, 1}},
		{"one of twice the weight", []float64{1, 2, 1, 1}},
	} {
		r := fleet(t, c.weights...)
		rng := rand.New(rand.NewPCG(1, 1))
		sum := 0.0
		for _, w := range c.weights {
			sum += w
		}
		got := map[string]int{}
		for n := 1; n <= 20*len(c.weights); n++ {
			l, err := r.Route(context.Background(), router.Prompt{Model: "m", Text: system + question(rng, 0)})
			if err != nil {
				t.Fatal(err)
			}
			got[l.Decision().Target.ID]++
			// min + 2 and 1.5 min are what a warm engine may have, and one more that
			// was sent there then; min is at most the fair share.
			for i, w := range c.weights {
				fair := float64(n) / sum
				if load := float64(got[fmt.Sprint("engine-", i)]) / w; load > max(fair+2, 1.5*fair)+1 {
					t.Fatalf("%s: %v after %d requests", c.name, got, n)
				}
			}
		}
		// Not exactly even: a few bytes in which two questions begin alike make one
		// engine the best match, until it has too much to do.
		for i, w := range c.weights {
			if n, fair := float64(got[fmt.Sprint("engine-", i)]), 20*float64(len(c.weights))*w/sum; n < 0.75*fair ||
				n > 1.25*fair {
				t.Errorf("%s: %v, engine-%d should have about %.0f", c.name, got, i, fair)
			}
		}
	}
}

// Conversations under one system prompt, 32 at once on 8 engines, each next turn
// sent when the reply ends: they begin on all engines and stay there.
func TestConversationsStay(t *testing.T) {
	r := fleet(t, 1, 1, 1, 1, 1, 1, 1, 1)
	rng := rand.New(rand.NewPCG(2, 2))
	type conversation struct {
		text  string
		turn  int
		at    string
		lease *router.Lease
	}
	open := make([]*conversation, 32)
	requests := map[string]int{}
	stayed, later, cached, length := 0, 0, 0, 0
	for range 5000 {
		i := rng.IntN(len(open))
		c := open[i]
		if c != nil { // its reply ends
			reply := "\nreply: " + strings.Repeat(fmt.Sprint(rng.IntN(1000), " "), 200)
			c.lease.FirstToken()
			c.lease.Done(router.Outcome{Status: 200, Reply: reply})
			c.text += reply
		}
		if c == nil || c.turn == 10 {
			c = &conversation{text: system}
			open[i] = c
		}
		c.turn++
		c.text += question(rng, c.turn)
		l, err := r.Route(context.Background(), router.Prompt{Model: "m", Text: c.text})
		if err != nil {
			t.Fatal(err)
		}
		d := l.Decision()
		if c.turn > 1 {
			later++
			if d.Target.ID == c.at {
				stayed++
			}
		}
		c.lease, c.at = l, d.Target.ID
		requests[c.at]++
		cached, length = cached+d.Cached, length+d.Length
	}
	most := 0
	for _, n := range requests {
		most = max(most, n)
	}
	stay, hit, uneven := float64(stayed)/float64(later), float64(cached)/float64(length), float64(most)*8/5000
	t.Logf("%.3f of the later turns stay, %.3f of the bytes are cached, the busiest engine has %.2f of its share", stay,
		hit, uneven)
	if stay < 0.85 || hit < 0.85 || uneven > 1.1 {
		t.Errorf("%.3f stay, %.3f cached, %.2f uneven; %v", stay, hit, uneven, requests)
	}
}
