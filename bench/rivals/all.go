package rivals

import (
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// Entry is one policy to measure.
type Entry struct {
	// Name is in snake case.
	Name string
	// Source names the project of the policy, and its constants.
	Source string
	// New returns a new strategy that shares nothing with those before and draws
	// its random numbers from rand, which is safe for concurrent use; nil means the
	// global source of math/rand/v2.
	New func(rand func() uint64) router.Strategy
}

// All returns every policy with its documented defaults.
func All() []Entry {
	return []Entry{
		{Name: "sglang_threshold", Source: "SGLang and vLLM router, cache_aware as launched: 0.3, 64, 1.5",
			New: func(r func() uint64) router.Strategy {
				return made(NewThreshold(ThresholdConfig{Common: Common{Rand: r}}))
			}},
		{Name: "vllm_router_threshold", Source: "vLLM router and SGLang, cache_aware as a library: 0.5, 32, 1.1",
			New: func(r func() uint64) router.Strategy {
				c := LibraryThreshold()
				c.Rand = r
				return made(NewThreshold(c))
			}},
		{Name: "chwbl", Source: "KubeAI PrefixHash: 125 %, the first 100 bytes, 256 places",
			New: func(r func() uint64) router.Strategy {
				return made(NewCHWBL(CHWBLConfig{Common: Common{Rand: r}}))
			}},
		{Name: "llmd_weighted", Source: "llm-d default profile: prefix 3, queue 2, KV usage 2 (the latter two estimated)",
			New: func(r func() uint64) router.Strategy {
				return made(NewLLMDWeighted(LLMDWeightedConfig{Common: Common{Rand: r}}))
			}},
		{Name: "llmd_affinity", Source: "llm-d prefix-cache-affinity-filter with token-load-scorer: 0.8, 286,704 tokens",
			New: func(r func() uint64) router.Strategy {
				return made(NewLLMDAffinity(LLMDAffinityConfig{Common: Common{Rand: r}}))
			}},
		{Name: "lmetric", Source: "LMetric (OSDI 2026): prefill tokens, queued ones too, x batch size",
			New: func(r func() uint64) router.Strategy {
				return made(NewLMetric(LMetricConfig{Common: Common{Rand: r}}))
			}},
		{Name: "lmetric_new_tokens", Source: "LMetric as in llm-d and SGLang: new prefill tokens x batch size",
			New: func(r func() uint64) router.Strategy {
				return made(NewLMetric(LMetricConfig{Common: Common{Rand: r}, NewTokensOnly: true}))
			}},
		{Name: "least_prefill", Source: "least prefill work left", New: func(r func() uint64) router.Strategy {
			return made(NewLeastPrefill(LeastPrefillConfig{Common: Common{Rand: r}}))
		}},
		{Name: "dynamo", Source: "NVIDIA Dynamo KV router: overlap credit 1, prefill scale 1, temperature 0",
			New: func(r func() uint64) router.Strategy {
				return made(NewDynamo(DynamoConfig{Common: Common{Rand: r}}))
			}},
		{Name: "prodstack_loadaware", Source: "vLLM production stack, load-aware: beta 1",
			New: func(r func() uint64) router.Strategy {
				return made(NewLoadAware(LoadAwareConfig{Common: Common{Rand: r}}))
			}},
		{Name: "prodstack_prefixaware", Source: "vLLM production stack, prefix-aware: 128 bytes",
			New: func(r func() uint64) router.Strategy {
				return made(NewPrefixAware(PrefixAwareConfig{Common: Common{Rand: r}}))
			}},
		{Name: "prodstack_session", Source: "vLLM production stack, session", New: func(r func() uint64) router.Strategy {
			return made(NewSession(SessionConfig{Common: Common{Rand: r}}))
		}},
		{Name: "aibrix", Source: "AIBrix 0.5 prefix-cache: 8 requests, mean + 1 sigma",
			New: func(r func() uint64) router.Strategy {
				return made(NewAIBrix(AIBrixConfig{Common: Common{Rand: r}}))
			}},
		{Name: "aibrix_gate", Source: "AIBrix prefix-cache with its newer gate: 2 x (mean + 1), 8 requests, mean + 1 sigma",
			New: func(r func() uint64) router.Strategy {
				return made(NewAIBrix(AIBrixConfig{Common: Common{Rand: r}, GateFactor: 2}))
			}},
		{Name: "round_robin", Source: "in turn", New: func(func() uint64) router.Strategy {
			return made(roundrobin.New(roundrobin.Config{}))
		}},
		{Name: "least_requests", Source: "fewest requests", New: func(r func() uint64) router.Strategy {
			return made(leastload.New(leastload.Config{Rand: r}))
		}},
		{Name: "random", Source: "at random", New: func(r func() uint64) router.Strategy {
			return made(random.New(random.Config{Rand: r}))
		}},
	}
}

// made is for the constant configs of All, of which a test makes each.
func made[S router.Strategy](s S, err error) router.Strategy {
	if err != nil {
		panic(fmt.Sprintf("rivals: %v", err))
	}
	return s
}
