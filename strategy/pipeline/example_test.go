package pipeline_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// node is what this gateway keeps in Target.Ref.
type node struct {
	zone string
	lora bool
}

// A filter and a scorer of the caller's own: adapters are sent to targets that
// have loaded them, and a replica in this zone is worth half as much as a full
// match.
func Example() {
	adapters := pipeline.FilterFunc(func(_ context.Context, o *pipeline.Offer, keep []bool) {
		for i := range o.Targets {
			keep[i] = o.Prompt.Adapter == "" || o.Targets[i].Ref.(node).lora
		}
	})
	near := pipeline.ScorerFunc(func(_ context.Context, o *pipeline.Offer, scores []float64) {
		for i := range o.Targets {
			if o.Targets[i].Ref.(node).zone == "eu-1" {
				scores[i] = 1
			}
		}
	})
	s, err := pipeline.New(pipeline.Config{
		Filters: []pipeline.Filter{adapters},
		Scorers: []pipeline.Weighted{{Name: "zone", Scorer: near, Weight: 0.5}},
	})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "near", Ref: node{"eu-1", true}, Load: router.Load{Known: true, InFlight: 1}},
		{ID: "far", Ref: node{"eu-2", true}, Load: router.Load{Known: true}},
		{ID: "plain", Ref: node{"eu-1", false}, Load: router.Load{Known: true}},
	}
	for _, d := range s.Details(context.Background(), router.Prompt{Adapter: "sql", Text: "hello"}, targets) {
		fmt.Printf("%s %.2f %s\n", d.Target.ID, d.Score, d.Reason)
		for _, p := range d.Parts {
			fmt.Printf("  %s %.2f x %g\n", p.Name, p.Score, p.Weight)
		}
	}
	// Output:
	// near 0.69 cold
	//   static 1.00 x 1
	//   load 0.80 x 2
	//   affinity 0.00 x 1
	//   zone 1.00 x 0.5
	// far 0.67 lower_score
	//   static 1.00 x 1
	//   load 1.00 x 2
	//   affinity 0.00 x 1
	//   zone 0.00 x 0.5
	// plain 0.00 filtered
}
