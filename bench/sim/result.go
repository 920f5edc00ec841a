package sim

import (
	"fmt"
	"slices"
)

// Result has the measurements of one run. Times are in seconds of virtual time.
type Result struct {
	Workload    string  `json:"workload"`
	Policy      string  `json:"policy"`
	Rate        float64 `json:"rate"`
	Seed        uint64  `json:"seed"`
	Replicas    int     `json:"replicas"`
	Gateways    int     `json:"gateways"`
	Calibration string  `json:"calibration"`

	// Requests is how many there were. Finished ones were answered in full; Broken
	// ones lost their replica after the first token; Lost ones were never answered,
	// because no replica was left to try or Attempts ran out; Rejected ones are too
	// long for any replica; Shed ones were given up by the gateway's line. Retries
	// counts attempts beyond the first.
	Requests int `json:"requests"`
	Finished int `json:"finished"`
	Broken   int `json:"broken"`
	Lost     int `json:"lost"`
	Shed     int `json:"shed,omitempty"`
	Rejected int `json:"rejected"`
	Retries  int `json:"retries"`
	// Preempted counts requests that had to give their blocks back while they
	// decoded.
	Preempted int `json:"preempted"`

	// TTFT is the time to the first token, E2E that to the last, from the first
	// arrival at the gateway, over the requests that saw one.
	TTFT Dist `json:"ttft"`
	E2E  Dist `json:"e2e"`

	// PerToken is the mean time of a request's tokens after the first, over the requests with more than one. Good is how
	// many answers Config.Good took.
	PerToken Dist `json:"per_token"`
	Good     int  `json:"good,omitempty"`
	// Split is how many prompts were computed by a replica of their own, and HandedOver their tokens that were not
	// cached at the replica that decodes them.
	Split      int   `json:"split,omitempty"`
	HandedOver int64 `json:"handed_over,omitempty"`

	// PromptTokens and CachedTokens are of the requests that saw a first token, by
	// their last attempt; HitShare is their ratio. IdealShare is the share of one
	// infinite cache that received all requests in the order in which they were
	// sent. LoadedTokens are those of CachedTokens that came from CPU memory.
	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	LoadedTokens int64 `json:"loaded_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens"`
	// BelievedTokens are the prompt tokens that the policy predicted to be cached
	// at its choice (text is four bytes a token), and RightShare is the share of
	// the requests with a prediction correct to within a block.
	BelievedTokens int64   `json:"believed_tokens"`
	RightShare     float64 `json:"right_share"`
	HitShare       float64 `json:"hit_share"`
	IdealShare     float64 `json:"ideal_share"`
	// PooledShare is the share of one cache with the device blocks of all replicas
	// that evicts the least recently sent first. It is not a strict bound, but an
	// estimate of the best possible with this much memory. It ignores blocks in use.
	PooledShare float64 `json:"pooled_share"`

	// AdapterLoads is how many LoRA adapters the replicas loaded.
	AdapterLoads int `json:"adapter_loads,omitempty"`

	// Messages is how many the engines sent of their caches, and Gaps how often a
	// gateway saw that some had not come.
	Messages int `json:"messages,omitempty"`
	Gaps     int `json:"gaps,omitempty"`

	// Frames is how many the gateways published for each other, with FrameBytes in
	// total.
	Frames     int   `json:"frames,omitempty"`
	FrameBytes int64 `json:"frame_bytes,omitempty"`

	PerReplica []Replica `json:"per_replica"`
	// MaxMean is the greatest number of requests of a replica over the mean,
	// MaxMeanTokens the same of computed prompt tokens.
	MaxMean       float64 `json:"max_mean"`
	MaxMeanTokens float64 `json:"max_mean_tokens"`

	// Time is when the last request ended, Span when the last one without a
	// predecessor arrived.
	Time float64 `json:"time"`
	Span float64 `json:"span"`
	// Timeline has one Sample every TimelineStep.
	TimelineStep float64  `json:"timeline_step"`
	Timeline     []Sample `json:"timeline"`
	// Saturated says that the queues kept growing, or were long all the time: in the
	// last fifth of Span more than four requests a replica waited to be admitted, and
	// half as many again as in the middle fifth; or more than eight in the mean.
	Saturated bool `json:"saturated"`

	// FirstTokens is each request's time to first token by its index in the
	// workload, -1 if it saw none. It is recorded only with Config.Requests.
	FirstTokens []float64 `json:"first_tokens,omitempty"`
}

// Dist describes a set of times in seconds.
type Dist struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// Replica is one replica's part.
type Replica struct {
	ID           string  `json:"id"`
	Requests     int     `json:"requests"`      // attempts sent to it
	PromptTokens int64   `json:"prompt_tokens"` // of those that saw a first token
	CachedTokens int64   `json:"cached_tokens"`
	Prefilled    int64   `json:"prefilled"` // computed, again after preemptions too
	Busy         float64 `json:"busy"`      // seconds in which a step was under way
	Preempted    int     `json:"preempted"`
}

// Sample is the fleet at one time, and the outcomes of the requests that
// arrived since the sample before it.
type Sample struct {
	InFlight int     `json:"in_flight"` // requests at engines
	Waiting  int     `json:"waiting"`   // of these, not yet admitted
	Most     int     `json:"most"`      // in flight at the replica that has most
	Arrived  int     `json:"arrived"`
	TTFT     float64 `json:"ttft"` // their mean, 0 if there are none
	Hit      float64 `json:"hit"`  // their hit share
}

// distOf sorts v.
func distOf(v []float64) Dist {
	if len(v) == 0 {
		return Dist{}
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	slices.Sort(v)
	return Dist{Mean: sum / float64(len(v)), P50: quantile(v, 0.5), P90: quantile(v, 0.9), P99: quantile(v, 0.99)}
}

// quantile of a sorted list, between its neighbours.
func quantile(v []float64, q float64) float64 {
	x := q * float64(len(v)-1)
	i := int(x)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (x-float64(i))*(v[i+1]-v[i])
}

// check reports a result that cannot be.
func (r *Result) check() error {
	if r.HitShare > r.IdealShare+1e-12 {
		return fmt.Errorf("sim: %s, %s at %v: a hit share of %v is above the ideal, %v", r.Workload, r.Policy, r.Rate,
			r.HitShare, r.IdealShare)
	}
	if n := r.Finished + r.Broken + r.Lost + r.Shed + r.Rejected; n != r.Requests {
		return fmt.Errorf("sim: %s, %s at %v: %d requests ended of %d", r.Workload, r.Policy, r.Rate, n, r.Requests)
	}
	return nil
}
