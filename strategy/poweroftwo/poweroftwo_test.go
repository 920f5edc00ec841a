package poweroftwo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/random"
)

func fleet(loads ...int) []router.Target {
	ts := make([]router.Target, len(loads))
	for i, n := range loads {
		ts[i] = router.Target{ID: fmt.Sprint("t", i), Load: router.Load{Known: true, InFlight: n}}
	}
	return ts
}

// With n equal weights the k-th least loaded wins all pairs with a busier one:
// 2(n-k)/(n(n-1)).
func TestChances(t *testing.T) {
	const picks, n = 20000, 5
	ts := fleet(4, 0, 3, 1, 2)
	s := newStrategy(rand.New(rand.NewPCG(1, 2)).Uint64)
	counts := make(map[int]float64)
	for range picks {
		d, err := s.Pick(context.Background(), router.Prompt{}, ts)
		if err != nil || d.Reason != router.ReasonPowerOfTwo {
			t.Fatal(d.Reason, err)
		}
		counts[d.Target.Load.InFlight]++
	}
	if counts[4] != 0 {
		t.Errorf("the busiest was taken %v times", counts[4])
	}
	x := 0.0
	for k := 1; k < n; k++ {
		e := picks * 2 * float64(n-k) / (n * (n - 1))
		x += (counts[k-1] - e) * (counts[k-1] - e) / e
	}
	if x > 16.27 { // exceeded once in 1,000 at 3 degrees of freedom
		t.Errorf("chi-square %.1f for %v", x, counts)
	}
}

// Two choices keep the fullest target near the mean; one choice does not.
func TestFlatterThanRandom(t *testing.T) {
	fullest := func(s router.Strategy) int {
		ts := fleet(make([]int, 64)...)
		most := 0
		for range 64 * 50 {
			d, err := s.Pick(context.Background(), router.Prompt{}, ts)
			if err != nil {
				t.Fatal(err)
			}
			for i := range ts {
				if ts[i].ID == d.Target.ID {
					ts[i].Load.InFlight++
					most = max(most, ts[i].Load.InFlight)
				}
			}
		}
		return most
	}
	r, err := random.New(random.Config{Rand: rand.New(rand.NewPCG(3, 4)).Uint64})
	if err != nil {
		t.Fatal(err)
	}
	two, one := fullest(newStrategy(rand.New(rand.NewPCG(3, 4)).Uint64)), fullest(r)
	if two > 54 || one < 60 {
		t.Errorf("fullest of 64 at a mean of 50: %d with two choices, %d with one", two, one)
	}
}

func TestTwoReadyTakesTheLessLoaded(t *testing.T) {
	ts := fleet(3, 2, 0)
	ts[2].State = router.Cooling
	s := newStrategy(nil)
	for range 50 {
		if d, err := s.Pick(context.Background(), router.Prompt{}, ts); err != nil || d.Target.ID != "t1" {
			t.Fatal(d.Target.ID, err)
		}
	}
}

func TestExplain(t *testing.T) {
	ts := fleet(4, 0, 1, 0)
	ts = append(ts, router.Target{ID: "u", State: router.Unhealthy})
	type row struct {
		ID     string
		Score  float64
		Reason router.Reason
	}
	var got []row
	for _, c := range newStrategy(nil).(router.Explainer).Explain(context.Background(), router.Prompt{}, ts, nil) {
		got = append(got, row{c.Target.ID, c.Score, c.Reason})
	}
	want := []row{{"t1", 1, "power_of_two"}, {"t3", 1, "tied"}, {"t2", 0.5, "tied"}, {"t0", 0.2, "busier"},
		{"u", 0, "unhealthy"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
