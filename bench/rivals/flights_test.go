package rivals

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

// What is in flight is compared with a list of the texts themselves.
func TestFlightsAgainstNaive(t *testing.T) {
	type request struct {
		d     router.Decision
		text  string
		token bool
	}
	rng := rand.New(rand.NewPCG(3, 4))
	f, err := newFlights(Common{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStrategy(Common{}, leastPrefill{}, f)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"a", "b", "c"}
	open := make(map[string][]*request)
	for n := range 3000 {
		id := ids[rng.IntN(len(ids))]
		switch mine := open[id]; {
		case len(mine) < 8 && rng.IntN(3) > 0:
			text := strings.Repeat("lead ", rng.IntN(4)) + fmt.Sprint(rng.IntN(6)) + strings.Repeat("x", rng.IntN(9))
			d, err := s.Pick(context.Background(), router.Prompt{Text: text}, []router.Target{{ID: id}})
			if err != nil {
				t.Fatal(err)
			}
			s.Record(d, router.Outcome{Stage: router.Sent})
			open[id] = append(mine, &request{d: d, text: text})
		case len(mine) > 0:
			i := rng.IntN(len(mine))
			if !mine[i].token && rng.IntN(2) == 0 {
				mine[i].token = true
				s.Record(mine[i].d, router.Outcome{Stage: router.FirstToken})
				break
			}
			s.Record(mine[i].d, router.Outcome{Stage: router.Finished + router.Stage(rng.IntN(3)), Reply: "said"})
			open[id] = append(mine[:i], mine[i+1:]...)
		}
		if n%50 > 0 && n < 2950 {
			continue
		}
		for _, id := range ids {
			want, prefixes := flight{}, make(map[string]bool)
			for _, r := range open[id] {
				want.requests++
				if !r.token {
					want.waiting++
				}
				for i := range r.text {
					prefixes[r.text[:i+1]] = true
				}
			}
			want.bytes = len(prefixes)
			got := flight{}
			if of := f.of[id]; of != nil {
				got = *of
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(flight{})); diff != "" {
				t.Fatalf("after %d steps, %s: %s", n+1, id, diff)
			}
		}
	}
	for _, mine := range open {
		for _, r := range mine {
			s.Record(r.d, router.Outcome{Stage: router.Canceled})
		}
	}
	if len(f.of) != 0 {
		t.Errorf("all has ended, and %d targets have something in flight", len(f.of))
	}
}
