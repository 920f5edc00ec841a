package rivals

import (
	"math"

	"github.com/warmroute/router"
)

// LLMDWeightedConfig is llm-d's default profile: three scorers, weighed and added;
// the greatest sum wins. The zero LLMDWeightedConfig is the default, 3 : 2 : 2.
//
//	prefix = blocks of the prompt that match / blocks of the prompt
//	queue  = (longest queue - own) / (longest - shortest), 1 if all are equal
//	kv     = 1 - share of the KV cache in use
//
// The original reads the waiting requests and the KV cache's usage from the
// engines' metrics. Here they are estimated from the requests in flight:
//
//   - waiting: requests without a first token, less the one that is being
//     prefilled; of the requests that others have there (Load.Queued) the same
//     share waits.
//   - usage: the distinct text of the prompts in flight, in tokens, / KVTokens, at
//     most 1. A lead that several of them share counts once, as in the engine;
//     generated tokens are not known and not counted.
//
// Sources: llm-d/llm-d-router pkg/epp/config/loader/defaults.go (3, 2, 2, and the
// greatest sum); pkg/epp/framework/plugins/scheduling/scorer: prefix/README.md,
// queuedepth/queue.go, kvcacheutilization/kvcache_utilization.go. The blocks are
// the engine's (autoTune of approx-prefix-cache-producer).
type LLMDWeightedConfig struct {
	Common
	// Prefix, Queue and KV are the weights. If all are 0 they are 3, 2 and 2.
	Prefix, Queue, KV float64
	// BlockTokens is the engine's block. 0 means 16, vLLM's default.
	BlockTokens int
	// KVTokens is the size of one target's KV cache. 0 means 300,032: 586 blocks
	// of 512 tokens, llm-d's figure for a 70B model on two H100.
	KVTokens int
}

// NewLLMDWeighted returns the policy that c describes, or an error that names the
// bad field.
func NewLLMDWeighted(c LLMDWeightedConfig) (*Strategy, error) {
	if c.Prefix == 0 && c.Queue == 0 && c.KV == 0 {
		c.Prefix, c.Queue, c.KV = 3, 2, 2
	}
	block, kv := float64(c.BlockTokens), float64(c.KVTokens)
	err := set("LLMDWeightedConfig",
		value("Prefix", &c.Prefix, 0, 0, huge), value("Queue", &c.Queue, 0, 0, huge), value("KV", &c.KV, 0, 0, huge),
		value("BlockTokens", &block, 16, 1, 1<<20),
		value("KVTokens", &kv, 586*512, 1, math.MaxInt32))
	if err != nil {
		return nil, err
	}
	c.BlockTokens, c.KVTokens = int(block), int(kv)
	f, err := newFlights(c.Common)
	if err != nil {
		return nil, err
	}
	return newStrategy(c.Common, llmdWeighted{c, f}, f)
}

type llmdWeighted struct {
	c       LLMDWeightedConfig
	flights *flights
}

func (l llmdWeighted) choose(v *view) (int, router.Reason) {
	cost, queue := v.vals[0], v.vals[1]
	l.flights.each(v, func(i int, f flight) {
		queue[i] = waiting(f, v.targets[i].Load.Queued) / v.weight(i)
		usage := min(float64(f.bytes)/bytesPerToken/float64(l.c.KVTokens), 1)
		cost[i] = -l.c.Prefix*v.blockShare(i, l.c.BlockTokens*bytesPerToken) - l.c.KV*(1-usage)
	})
	s := v.spread(queue)
	for _, i := range v.ready {
		score := 1.0
		if s.most > s.least {
			score = (s.most - queue[i]) / (s.most - s.least)
		}
		cost[i] -= l.c.Queue * score
	}
	return v.least(v.ready, cost, nil), ""
}

// waiting estimates an engine's queue, as LLMDWeightedConfig says.
func waiting(f flight, queued int) float64 {
	if f.waiting == 0 {
		return 0
	}
	return float64(f.waiting-1) + float64(clamp(queued))*float64(f.waiting)/float64(f.requests)
}

// LLMDAffinityConfig is llm-d's prefix-cache-affinity-filter in front of its
// token-load-scorer. Its guides recommend this if prefill is the bottleneck.
// The zero LLMDAffinityConfig is their defaults.
//
//	sticky: targets with at least Threshold of the prompt's blocks; none -> all may be picked
//	load of a target: its tokens in flight, which are those not cached and without a first token
//	best sticky load - best other load > MaxPenalty x Throughput -> all may be picked
//	else -> only the sticky ones
//	of these, the least min(load + this prompt's uncached tokens, Cap)
//
// MaxPenalty and Throughput matter only as their product, 286,704 tokens. The
// filter's random exploration is off by default, and left out.
//
// Sources: llm-d/llm-d-router pkg/epp/framework/plugins/scheduling:
// filter/prefixcacheaffinity/README.md and plugin.go, scorer/tokenload/token_load.go;
// .../requestcontrol/dataproducer/inflightload/README.md.
type LLMDAffinityConfig struct {
	Common
	// Threshold is the share of the prompt's blocks, up to 1. 0 means 0.8.
	Threshold float64
	// MaxPenalty is in seconds. 0 means 18.
	MaxPenalty float64
	// Throughput is an unloaded target's prefill, in tokens a second. 0 means
	// 15,928, theirs for a 32B model on two H100.
	Throughput float64
	// Cap is in tokens. 0 means 4,194,304.
	Cap float64
	// BlockTokens is the engine's block. 0 means 16, vLLM's default.
	BlockTokens int
}

// NewLLMDAffinity returns the policy that c describes, or an error that names the
// bad field.
func NewLLMDAffinity(c LLMDAffinityConfig) (*Strategy, error) {
	block := float64(c.BlockTokens)
	err := set("LLMDAffinityConfig",
		value("Threshold", &c.Threshold, 0.8, 0, 1),
		value("MaxPenalty", &c.MaxPenalty, 18, 0, huge),
		value("Throughput", &c.Throughput, 15928, 1, huge),
		value("Cap", &c.Cap, 4<<20, 1, huge),
		value("BlockTokens", &block, 16, 1, 1<<20))
	if err != nil {
		return nil, err
	}
	c.BlockTokens = int(block)
	return newStrategy(c.Common, llmdAffinity{c}, nil)
}

type llmdAffinity struct{ c LLMDAffinityConfig }

func (l llmdAffinity) choose(v *view) (int, router.Reason) {
	load := v.loads(v.vals[0], prefill)
	sticky, others := math.Inf(1), math.Inf(1)
	set := v.filter(func(i int) bool {
		if v.blockShare(i, l.c.BlockTokens*bytesPerToken) >= l.c.Threshold {
			sticky = min(sticky, load[i])
			return true
		}
		others = min(others, load[i])
		return false
	})
	if len(set) == 0 || sticky-others > l.c.MaxPenalty*l.c.Throughput {
		set = v.ready
	}
	for _, i := range set {
		load[i] = min(load[i]+v.uncached(i)/v.weight(i), l.c.Cap)
	}
	return v.least(set, load, nil), ""
}
