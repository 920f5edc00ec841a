package observe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
)

// Hooks for a Router that count with a metrics library of one's own, here a map.
func Example() {
	counts := map[string]int{}
	models, targets := observe.NewNames(100), observe.NewTargets(1000, nil)
	var usage observe.Usage
	trace := router.Trace{
		Routed: func(_ context.Context, i router.RouteInfo) {
			d := i.Decision
			counts["picks "+observe.Reason(d.Reason)+" "+targets.Get("", d.Target.ID)+" "+models.Get(d.Prompt.Model)]++
			if observe.Spill(d.Reason) {
				counts["spills"]++
			}
			if cause := observe.Fallback("precise_cache_aware", d.Reason); cause != "" {
				counts["fallbacks "+cause]++
			}
		},
		Done: func(_ context.Context, d router.Decision, o router.Outcome) {
			counts["attempts "+observe.Stage(o.Stage)+" "+observe.Code(o.Status)]++
			if predicted, reported, ok := usage.Judge(d, o); ok {
				counts["predicted"] += predicted
				counts["reported"] += reported
			}
		},
	}
	d := router.Decision{
		Prompt: router.Prompt{Model: "llama"}, Target: router.Target{ID: "http://user:key@vllm-1:8000"},
		Cached: 750, Length: 1000, Reason: router.ReasonWarm,
	}
	trace.Routed(context.Background(), router.RouteInfo{Decision: d})
	trace.Done(context.Background(), d, router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 240,
		CachedTokens: 160})
	fmt.Println(counts)
	// Output: map[attempts finished 2xx:1 picks warm http://vllm-1:8000 llama:1 predicted:180 reported:160]
}

// The values of labels.
func Example_labels() {
	d := router.Decision{Cached: 3, Length: 4}
	share, ok := observe.Share(d)
	fmt.Println(share, ok)
	fmt.Println(observe.Cause(router.Outcome{Stage: router.Failed, Status: 503}), "is one of", observe.Causes())
	fmt.Println(observe.NoTarget(&router.NoTargetError{}), "is one of", observe.NoTargets())
	fmt.Println(observe.NoTarget(errors.New("the host's own")))
	fmt.Println(observe.State(router.Cooling), observe.StreamState("live"), observe.StreamState("odd"))
	fmt.Println(observe.Missing(7, 10), "messages are missing")
	fmt.Println(observe.Target("http://user:key@vllm-1:8000/v1?key=k"), observe.Clean("a\xffb"))
	// Output:
	// 0.75 true
	// 5xx is one of [connection timeout 408 429 5xx]
	// empty_fleet is one of [empty_fleet not_ready excluded shed error]
	// error
	// cooling live other
	// 2 messages are missing
	// http://vllm-1:8000/v1 ab
}

// The bounds of a Config.
func ExampleBounds() {
	bounds := observe.Bounds{Package: "mymetrics"}
	bounds.Check("MaxTargets", 100)
	bounds.Check("MaxRoutes", -1)
	fmt.Println(bounds.Err())
	// Output: mymetrics: MaxRoutes is -1; it must be 0 or more
}
