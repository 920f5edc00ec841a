package strategy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/evictions"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/trie"
)

// textStrategies are made over a trie, with random numbers from seed.
var textStrategies = []struct {
	name string
	new  func(*testing.T, *trie.Trie) router.Strategy
}{
	{"least_work", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := leastwork.New(leastwork.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
	{"cache_aware", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := cacheaware.New(cacheaware.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
	{"pipeline", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := pipeline.New(pipeline.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
}

// mean plays e with some seeds.
func mean(t *testing.T, e evictions.Scene, make func(*testing.T, *trie.Trie) router.Strategy,
	evidence evictions.Evidence) evictions.Result {
	t.Helper()
	const seeds = 2
	var sum evictions.Result
	for e.Seed = range uint64(seeds) {
		record, err := trie.New(trie.Config{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Play(make(t, record), record, evidence)
		if err != nil {
			t.Fatal(err)
		}
		sum.Cached += got.Cached / seeds
		sum.TTFT += got.TTFT / seeds
		sum.Turns = got.Turns
	}
	return sum
}

// TestReportsAgainstCaches plays fleets with caches of a tenth of the chats and more, one that grows, one that
// restarts, and one that a second gateway uses. With reported cached tokens each strategy comes near to the same one
// that sees the caches. In much smaller caches no choice saves much.
func TestReportsAgainstCaches(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("one goroutine, long; make norace runs it")
	}
	near := map[string]float64{ // share of the cached share of the one that sees the caches
		"capacity 0.1":  0, // so little is cached that it is a matter of chance
		"capacity 0.25": 0.8, "capacity 0.5": 0.88, "capacity 1": 0.88, "capacity 2": 0.95,
		"1 replica, then 4": 0.8, "1 replica, then 4, in order": 0.8, "restart": 0.9, "another gateway": 0.85,
	}
	for _, c := range evictions.Scenes() {
		for _, s := range textStrategies {
			before, got, best := mean(t, c.Scene, s.new, evictions.Nothing), mean(t, c.Scene, s.new, evictions.Usage),
				mean(t, c.Scene, s.new, evictions.Caches)
			line := fmt.Sprintf("%s, %s: cached %.3f, %.0f ms to the first token, %v; without reports %.3f, %.0f ms, %v; "+
				"with the caches %.3f, %.0f ms, %v", c.Name, s.name, got.Cached, got.TTFT, got.Turns,
				before.Cached, before.TTFT, before.Turns, best.Cached, best.TTFT, best.Turns)
			t.Log(line)
			if got.Cached < min(near[c.Name]*best.Cached, best.Cached-0.04) {
				t.Error("cached too little: " + line)
			}
			if got.TTFT > 1.15*max(before.TTFT, best.TTFT)+60 {
				t.Error("too late: " + line)
			}
		}
	}
}

// TestReportsOfNothing has engines that report 0 whatever is cached: it costs the beginning alone.
func TestReportsOfNothing(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("one goroutine, long; make norace runs it")
	}
	e := evictions.Scene{Replicas: 4, Chats: 48, Turns: 960, Users: 8, Size: 4000, More: 120, Blocks: 2000, Silent: true}
	for _, s := range textStrategies {
		before, got := mean(t, e, s.new, evictions.Nothing), mean(t, e, s.new, evictions.Usage)
		if got.Cached < 0.85*before.Cached {
			t.Errorf("%s: cached %.3f, without reports %.3f", s.name, got.Cached, before.Cached)
		}
	}
}
