package observe

import (
	"slices"
	"time"

	"github.com/warmroute/router"
)

// Default is the name of a route, fleet, index or line that was given none: an empty
// label is none at all to Prometheus.
const Default = "default"

// Named returns name, or Default if it is empty.
func Named(name string) string {
	if name == "" {
		return Default
	}
	return name
}

// Reasons returns the reasons to be expected of a strategy of the library's, by its
// name; of another one, warm and cold. Series that are made of them at the start begin
// at 0, and warm is there as well as cold before the first request. The slice is the caller's.
func Reasons(strategy string) []router.Reason {
	rs := slices.Clone(reasons[strategy])
	if rs == nil {
		rs = []router.Reason{router.ReasonWarm, router.ReasonCold}
	}
	return append(rs, router.ReasonOnly)
}

var byCached = []router.Reason{router.ReasonWarm, router.ReasonSpill, router.ReasonCold, router.ReasonEmpty}

var reasons = map[string][]router.Reason{
	"cache_aware":     byCached,
	"least_work":      byCached,
	"consistent_hash": {router.ReasonHash, router.ReasonHashOverflow, router.ReasonEmpty},
	"least_load":      {router.ReasonLeastLoad},
	"lmcache_aware":   {router.ReasonWarm, "cache_capacity", router.ReasonLeastLoad, router.ReasonRandom},
	"pipeline": append([]router.Reason{"session", "best_score", router.ReasonLeastLoad, router.ReasonRandom},
		byCached...),
	"power_of_two": {router.ReasonPowerOfTwo},
	"precise_cache_aware": append([]router.Reason{"no_tokens_least_load", "no_tokens_text", "untrusted_least_load",
		"untrusted_text"}, byCached...),
	"random":      {router.ReasonRandom},
	"round_robin": {router.ReasonRoundRobin},
}

// Fallbacks returns the values of Fallback to be expected of a strategy. The slice is
// the caller's.
func Fallbacks(strategy string) []string {
	switch strategy {
	case "precise_cache_aware":
		return []string{"no_tokens", "untrusted"}
	case "lmcache_aware":
		return []string{"no_occupancy"}
	}
	return nil
}

// Ending is an outcome and a class of status that attempts often have.
type Ending struct{ Outcome, Code string }

// Endings returns the endings to be expected. The slice is the caller's.
func Endings() []Ending {
	return []Ending{{"finished", "2xx"}, {"failed", "4xx"}, {"failed", "5xx"}, {"failed", "none"},
		{"canceled", "2xx"}, {"canceled", "none"}}
}

// States returns the names of the states of targets, as State has them. The slice is
// the caller's.
func States() []string {
	var all []string
	for s := router.Ready; s <= router.Asleep; s++ {
		all = append(all, s.String())
	}
	return all
}

// StreamStates returns the names of the states of event streams, as StreamState has
// them. The slice is the caller's.
func StreamStates() []string { return []string{"cold", "partial", "live", "resyncing", "down"} }

// Bounds of histograms, in seconds but for the last, which are tokens a second.
// The slices are not to be changed.
var (
	FirstTokenBounds = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160}
	DurationBounds   = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640}
	SpeedBounds      = []float64{1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000}
)

// Speed returns the output tokens a second of a reply, from the first token to the end.
// ok is false if the reply did not end as it should or did not come in parts, or if the
// engine reported fewer than two tokens.
func Speed(t router.Timing) (tokensPerSecond float64, ok bool) {
	o := &t.Outcome
	if o.Stage != router.Finished || !o.Streamed || o.OutputTokens < 2 || t.Reply <= 0 {
		return 0, false
	}
	return float64(o.OutputTokens-1) * float64(time.Second) / float64(t.Reply), true
}
