package observe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
)

func ExampleSpeed() {
	t := router.Timing{Reply: 2 * time.Second}
	t.Outcome = router.Outcome{Stage: router.Finished, Streamed: true, OutputTokens: 101}
	fmt.Println(observe.Speed(t))
	t.Outcome.Streamed = false // it came at once
	fmt.Println(observe.Speed(t))
	// Output:
	// 50 true
	// 0 false
}

func ExampleNamed() {
	fmt.Println(observe.Named(""), observe.Named("eu"))
	// Output: default eu
}

func ExampleReasons() {
	fmt.Println(observe.Reasons("least_work"))
	fmt.Println(observe.Reasons("round_robin"))
	fmt.Println(observe.Reasons("one of your own"))
	// Output:
	// [warm spill cold empty_prompt only_target]
	// [round_robin only_target]
	// [warm cold only_target]
}

func ExampleEndings() {
	fmt.Println(observe.Endings()[0], observe.Fallbacks("lmcache_aware"))
	fmt.Println(observe.States(), observe.StreamStates())
	// Output:
	// {finished 2xx} [no_occupancy]
	// [ready unhealthy cooling tripped draining full asleep] [cold partial live resyncing down]
}

// Each list has words that the function with that name gives, and bounds grow.
func TestListsAreTheFunctions(t *testing.T) {
	for _, s := range observe.StreamStates() {
		if observe.StreamState(s) != s {
			t.Errorf("stream state %s", s)
		}
	}
	for _, s := range []string{"precise_cache_aware", "lmcache_aware", "cache_aware", "pipeline", ""} {
		causes := make(map[string]bool)
		for _, r := range observe.Reasons(s) {
			if observe.Reason(r) != string(r) {
				t.Errorf("reason %s", r)
			}
			if c := observe.Fallback(s, r); c != "" {
				causes[c] = true
			}
		}
		for _, c := range observe.Fallbacks(s) {
			if !causes[c] {
				t.Errorf("%s: no reason for the fallback %s", s, c)
			}
		}
		if len(causes) != len(observe.Fallbacks(s)) {
			t.Errorf("%s: %v", s, causes)
		}
	}
	for _, b := range [][]float64{observe.FirstTokenBounds, observe.DurationBounds, observe.SpeedBounds} {
		for i := 1; i < len(b); i++ {
			if b[i] <= b[i-1] {
				t.Errorf("%v does not grow", b)
			}
		}
	}
}
