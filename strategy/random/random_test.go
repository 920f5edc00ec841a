package random_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

func TestChancesFollowWeights(t *testing.T) {
	ts := []router.Target{
		{ID: "a", Weight: 1}, {ID: "b", Weight: 4}, {ID: "gone", Weight: 100, State: router.Cooling}, {ID: "c", Weight: 5},
	}
	s := newStrategy(rand.New(rand.NewPCG(1, 2)).Uint64)
	const picks = 20000
	counts := make(map[string]float64)
	for range picks {
		d, err := s.Pick(context.Background(), router.Prompt{}, ts)
		if err != nil {
			t.Fatal(err)
		}
		counts[d.Target.ID]++
	}
	x := 0.0
	for id, share := range map[string]float64{"a": 0.1, "b": 0.4, "c": 0.5} {
		e := picks * share
		x += (counts[id] - e) * (counts[id] - e) / e
	}
	if x > 13.82 || len(counts) != 3 { // exceeded once in 1,000 at 2 degrees of freedom
		t.Errorf("chi-square %.1f for %v", x, counts)
	}
}

func TestNilRand(t *testing.T) {
	s := newStrategy(nil)
	ts := []router.Target{{ID: "a"}, {ID: "b"}}
	counts := make(map[string]int)
	for range 200 {
		d, err := s.Pick(context.Background(), router.Prompt{}, ts)
		if err != nil {
			t.Fatal(err)
		}
		counts[d.Target.ID]++
	}
	if len(counts) != 2 {
		t.Errorf("only %v in 200 draws", counts)
	}
}

func TestExplain(t *testing.T) {
	ts := []router.Target{{ID: "c"}, {ID: "b", State: router.Tripped}, {ID: "a"}, {ID: "d", Weight: 4}}
	type row struct {
		ID     string
		Score  float64
		Reason router.Reason
	}
	var got []row
	s := newStrategy(nil).(router.Explainer)
	for _, c := range s.Explain(context.Background(), router.Prompt{}, ts, nil) {
		got = append(got, row{c.Target.ID, c.Score, c.Reason})
	}
	want := []row{{"d", 1, "random"}, {"a", 0.25, "tied"}, {"c", 0.25, "tied"}, {"b", 0, "tripped"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
