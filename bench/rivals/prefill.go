package rivals

import "github.com/warmroute/router"

// LMetricConfig is LMetric, which multiplies. The zero LMetricConfig is the
// paper's.
//
//	cost = P-token x BS, the least wins
//	P-token = tokens waiting for prefill at the target + those of this prompt not cached there
//	BS      = requests at the target + this one
//
// There is nothing to tune. Of equal costs (0 x anything is 0) the one with the
// fewest requests wins, as in SGLang's version. The paper's detector of cache hot
// spots, which is a second stage that is rarely at work, is left out.
//
// Sources: Zhang et al., "Simple is Better: Multiplication May Be All You Need for
// LLM Request Scheduling", OSDI 2026, arXiv:2603.15202; that P-token counts queued
// prefill: vllm-project/aibrix pkg/plugins/gateway/algorithms/l_metric_local.go;
// that it does not: llm-d/llm-d-router .../scorer/lmetric/README.md and
// sgl-project/sglang sgl-model-gateway/src/policies/lmetric.rs. That BS is counted
// with this request is from these three.
type LMetricConfig struct {
	Common
	// NewTokensOnly leaves out the tokens that wait at the target already, as
	// llm-d's and SGLang's versions do.
	NewTokensOnly bool
}

// NewLMetric returns the policy that c describes.
func NewLMetric(c LMetricConfig) (*Strategy, error) {
	return newStrategy(c.Common, lmetric{c.NewTokensOnly}, nil)
}

type lmetric struct{ newOnly bool }

func (l lmetric) choose(v *view) (int, router.Reason) {
	cost, batch := v.loads(v.vals[0], prefill), v.loads(v.vals[1], requests)
	for _, i := range v.ready {
		if l.newOnly {
			cost[i] = 0
		}
		cost[i] = (cost[i] + v.uncached(i)/v.weight(i)) * (batch[i] + 1/v.weight(i))
	}
	return v.least(v.ready, cost, batch), ""
}

// LeastPrefillConfig is the least prefill work: the target that would finish
// this prompt's prefill first, if it did nothing else.
//
//	cost = tokens waiting for prefill at the target + those of this prompt not cached there
//
// Of equal costs the one with the fewest requests wins.
//
// Source: the scripts of the "agentic-kvc" study (gitea.gahow.org/gahow/agentic-kvc,
// "least prefill work left"), which gives the cost and the order of ties; the same
// sum is llm-d's token-load-scorer without its cap.
type LeastPrefillConfig struct{ Common }

// NewLeastPrefill returns the policy that c describes.
func NewLeastPrefill(c LeastPrefillConfig) (*Strategy, error) {
	return newStrategy(c.Common, leastPrefill{}, nil)
}

type leastPrefill struct{}

func (leastPrefill) choose(v *view) (int, router.Reason) {
	cost, batch := v.loads(v.vals[0], prefill), v.loads(v.vals[1], requests)
	for _, i := range v.ready {
		cost[i] += v.uncached(i) / v.weight(i)
	}
	return v.least(v.ready, cost, batch), ""
}
