package roundrobin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

func ready(weights ...float64) []router.Target {
	ts := make([]router.Target, len(weights))
	for i, w := range weights {
		ts[i] = router.Target{ID: string(rune('a' + i)), Weight: w}
	}
	return ts
}

func newStrategy(t testing.TB) *Strategy {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// turns returns the IDs of n Picks.
func turns(t testing.TB, s *Strategy, ts []router.Target, n int) string {
	var b strings.Builder
	for range n {
		d, err := s.Pick(context.Background(), router.Prompt{}, ts)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(d.Target.ID)
	}
	return b.String()
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		want    string
	}{
		{[]float64{1}, "aaa"},
		{[]float64{1, 1, 1}, "abcabcabc"},
		{[]float64{0, 7, 0, 7}, "bdbdbd"},
		{[]float64{2, 1}, "abaaba"},
		{[]float64{5, 1, 1}, "aaabcaaaaabcaa"},
		{[]float64{1e300, 1e300}, "abab"},
		{[]float64{5e-324, 5e-324}, "abab"},
	} {
		if got := turns(t, newStrategy(t), ready(c.weights...), len(c.want)); got != c.want {
			t.Errorf("weights %v: %s, want %s", c.weights, got, c.want)
		}
	}
}

// At no time is a target further than a turn or so from its exact share.
func TestWeightsAreHonouredThroughout(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		weights := make([]float64, 2+rng.IntN(10))
		sum := 0.0
		for i := range weights {
			weights[i] = 0.1 + 5*rng.Float64()
			sum += weights[i]
		}
		s, ts := newStrategy(t), ready(weights...)
		counts := make(map[string]int)
		for n := 1; n <= 3000; n++ {
			counts[turns(t, s, ts, 1)]++
			for i, w := range weights {
				if off := float64(counts[ts[i].ID]) - float64(n)*w/sum; off > 1.5 || off < -1.5 {
					t.Fatalf("weights %v: after %d picks %s is %.2f turns off", weights, n, ts[i].ID, off)
				}
			}
		}
	}
}

func TestOneThatComesBackMakesUpForNothing(t *testing.T) {
	s, ts := newStrategy(t), ready(1, 1, 1)
	turns(t, s, ts, 3)
	ts[1].State = router.Cooling
	if got := turns(t, s, ts, 100); strings.Contains(got, "b") || strings.Count(got, "a") != 50 {
		t.Fatalf("without b: %s", got)
	}
	ts[1].State = router.Ready
	if got, want := turns(t, s, ts, 9), "babcabcab"; got != want {
		t.Errorf("b came back: %s, want %s", got, want)
	}
}

func TestNewcomersGetTheirShareAtOnce(t *testing.T) {
	s, ts := newStrategy(t), ready(1, 1, 1, 1)
	turns(t, s, ts[:2], 1001)
	got := turns(t, s, ts, 40)
	for _, id := range []string{"a", "b", "c", "d"} {
		if n := strings.Count(got, id); n < 9 || n > 11 {
			t.Errorf("%s has %d of 40 turns: %s", id, n, got)
		}
	}
}

// Two sets of targets that do not meet both rotate, however much busier one is.
func TestDisjointSets(t *testing.T) {
	s, ts := newStrategy(t), ready(1, 1, 1, 1)
	var got string
	for range 4 {
		turns(t, s, ts[:2], 101)
		got += turns(t, s, ts[2:], 1)
	}
	if got != "cdcd" {
		t.Errorf("the idle pair: %s, want cdcd", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := newStrategy(t)
	for i := range 3000 {
		ts := make([]router.Target, 20)
		for j := range ts {
			ts[j].ID = fmt.Sprintf("%d-%d", i, j)
		}
		ts[0].ID = "stays"
		turns(t, s, ts, 1)
		if len(s.turns) > keep || len(s.index) != len(s.turns) || cap(s.turns) > 2*keep {
			t.Fatalf("after %d fleets: %d turns, %d in the index, room for %d", i, len(s.turns), len(s.index), cap(s.turns))
		}
		if _, ok := s.index["stays"]; !ok {
			t.Fatal("one that is always offered was forgotten")
		}
	}
}

// What is swept away does not disturb the rotation of those that are offered.
func TestSweepKeepsTheRotation(t *testing.T) {
	s := newStrategy(t)
	ts := ready(1, 1, 1)
	turns(t, s, ts, 1)
	for i := range keep - len(ts) {
		turns(t, s, []router.Target{{ID: fmt.Sprint("passer-by ", i)}}, 1)
	}
	turns(t, s, append(slices.Clone(ts), router.Target{ID: "z", State: router.Draining}), 1)
	if len(s.turns) != len(ts) {
		t.Fatalf("%d turns after a sweep, want %d", len(s.turns), len(ts))
	}
	if got := turns(t, s, ts, 4); got != "cabc" {
		t.Errorf("%s, want cabc", got)
	}
}

func TestTwinsShareATurn(t *testing.T) {
	ts := []router.Target{{ID: "a", Ref: 1}, {ID: "a", Ref: 2}, {ID: "b"}}
	if got := turns(t, newStrategy(t), ts, 6); got != "ababab" {
		t.Errorf("%s, want ababab", got)
	}
}

func TestTimeStartsOver(t *testing.T) {
	s, ts := newStrategy(t), ready(1e-6, 3e-6)
	got := turns(t, s, ts, 400)
	if strings.Count(got, "a") != 100 {
		t.Errorf("a has %d of 400 turns, want 100", strings.Count(got, "a"))
	}
	if s.turns[0].last > far {
		t.Errorf("the time is %v", s.turns[0].last)
	}
}

func TestConcurrentPicksShareOneRotation(t *testing.T) {
	s, ts := newStrategy(t), ready(1, 1, 1, 1, 1)
	var mu sync.Mutex
	counts := make(map[string]int)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 100 {
				d, _ := s.Pick(context.Background(), router.Prompt{}, ts)
				mu.Lock()
				counts[d.Target.ID]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"a": 200, "b": 200, "c": 200, "d": 200, "e": 200}, counts); diff != "" {
		t.Error(diff)
	}
}

func TestExplainListsTheNextTurns(t *testing.T) {
	s, ts := newStrategy(t), ready(1, 1, 1)
	ts = append(ts, router.Target{ID: "d", State: router.Unhealthy})
	turns(t, s, ts, 1)
	var got []string
	for _, c := range s.Explain(context.Background(), router.Prompt{}, ts, nil) {
		got = append(got, c.Target.ID+" "+string(c.Reason))
	}
	want := []string{"b round_robin", "c not_its_turn", "a not_its_turn", "d unhealthy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
