package rivals

import "github.com/warmroute/router"

// ThresholdConfig is the cache-aware policy of SGLang's and vLLM's routers. The
// zero ThresholdConfig is their launchers' default.
//
//	imbalanced: max - min > BalanceAbs and max > BalanceRel x min
//	imbalanced -> the least loaded
//	else, if the longest match / length > CacheThreshold -> the one that has it
//	else -> the least loaded
//
// where a load is the number of requests that the router has in flight, and max
// and min are taken over all targets (here: the Ready ones). Of several that hold
// the longest match one is drawn (assumed: the original's tree names one of them
// by its own order). Early versions sent a prompt without a match to the target
// with the smallest tree, as their comment still says; those read take the least
// loaded.
//
// Sources: sgl-project/sglang sgl-model-gateway/src/policies/cache_aware.rs and
// sgl-router/py_src/sglang_router/router_args.py (0.3, 64, 1.5);
// vllm-project/router src/policies/cache_aware.rs and mod.rs (0.5, 32, 1.1).
type ThresholdConfig struct {
	Common
	// CacheThreshold is the share of the prompt that must be exceeded, up to 1. 0
	// means 0.3.
	CacheThreshold float64
	// BalanceAbs is in requests. 0 means 64.
	BalanceAbs float64
	// BalanceRel is at least 1. 0 means 1.5.
	BalanceRel float64
}

// LibraryThreshold returns the defaults of the policy itself, which apply if it
// is not started by the launcher: 0.5, 32 and 1.1.
func LibraryThreshold() ThresholdConfig {
	return ThresholdConfig{CacheThreshold: 0.5, BalanceAbs: 32, BalanceRel: 1.1}
}

// NewThreshold returns the policy that c describes, or an error that names the
// bad field.
func NewThreshold(c ThresholdConfig) (*Strategy, error) {
	err := set("ThresholdConfig",
		value("CacheThreshold", &c.CacheThreshold, 0.3, 0, 1),
		value("BalanceAbs", &c.BalanceAbs, 64, 0, huge),
		value("BalanceRel", &c.BalanceRel, 1.5, 1, huge))
	if err != nil {
		return nil, err
	}
	return newStrategy(c.Common, threshold{c}, nil)
}

type threshold struct{ c ThresholdConfig }

func (t threshold) choose(v *view) (int, router.Reason) {
	load := v.loads(v.vals[0], inFlight)
	s := v.spread(load)
	imbalanced := s.most-s.least > t.c.BalanceAbs && s.most > t.c.BalanceRel*s.least
	if size := v.key.Size(); !imbalanced && size > 0 && float64(v.best)/float64(size) > t.c.CacheThreshold {
		return v.draw(v.filter(func(i int) bool { return v.Cached[i] == v.best })), router.ReasonWarm
	}
	return v.least(v.ready, load, nil), ""
}
