package file_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy"
)

func TestSharpen(t *testing.T) {
	c := func(id string, score float64, reason router.Reason) router.Candidate {
		return router.Candidate{Target: router.Target{ID: id}, Score: score, Reason: reason}
	}
	gone := c("gone", 0, "draining")
	gone.Target.State = router.Draining
	cs := []router.Candidate{
		c("a", 0.8, "warm"), c("b", 0.8, router.ReasonTied), c("c", 0.8, "colder"), c("d", 0.8, "busier"),
		c("e", 0.2, "busier"), gone,
	}
	strategy.Sharpen(cs)
	var got []float64
	for _, c := range cs {
		got = append(got, c.Score)
	}
	if diff := cmp.Diff([]float64{0.8, 0.8, 0.5, 0.5, 0.2, 0}, got); diff != "" {
		t.Error(diff)
	}
	strategy.Sharpen(nil)
	strategy.Sharpen([]router.Candidate{gone})
	nan := []router.Candidate{c("a", math.NaN(), "turn"), c("b", math.NaN(), "not_its_turn")}
	if strategy.Sharpen(nan); !math.IsNaN(nan[1].Score) {
		t.Errorf("no score became %v", nan[1].Score)
	}
}

// TestGreatestScoreIsTaken: a caller that goes by the scores of Explain takes a target that Pick
// might, whatever is cached where and however busy it is.
func TestGreatestScoreIsTaken(t *testing.T) {
	for _, c := range recorded {
		for seed := range uint64(8) {
			r := rand.New(rand.NewPCG(seed, 77))
			clock := time.Unix(1e9, 0)
			s, err := c.make(made{rand: r.Uint64, now: func() time.Time { return clock }, index: kvtest.New(t).Index})
			if err != nil {
				t.Fatal(err)
			}
			ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			var chats []router.Prompt
			for range 120 {
				p := recordedPrompt(r, chats)
				chats = append(chats, p)
				ts := recordedFleet(r, ids, seed)
				if i := r.IntN(len(ts)); r.IntN(3) == 0 {
					ts[i].Load = router.Load{Known: true, InFlight: 200}
				}
				cs := s.(router.Explainer).Explain(context.Background(), p, ts, nil)
				if bad := greatestIsFirst(cs); bad != "" {
					t.Fatalf("%s, %+v: %s", c.name, p, bad)
				}
				if d, err := s.Pick(context.Background(), p, ts); err == nil {
					s.Record(d, router.Outcome{Stage: router.Sent})
				}
			}
		}
	}
}

func greatestIsFirst(cs []router.Candidate) string {
	cs = slices.DeleteFunc(slices.Clone(cs), func(c router.Candidate) bool { return c.Target.State != router.Ready })
	for i := 1; i < len(cs); i++ {
		if c := cs[i]; c.Score >= cs[0].Score && c.Score > 0 && c.Reason != router.ReasonTied {
			return fmt.Sprintf("%s, %q, has score %v like the first, %s, %q, %v", c.Target.ID, c.Reason, c.Score,
				cs[0].Target.ID, cs[0].Reason, cs[0].Score)
		}
	}
	return ""
}
