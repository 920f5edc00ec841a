package rivals

import "github.com/warmroute/router"

// AIBrixConfig is AIBrix's prefix-cache policy. The zero AIBrixConfig is that of
// its release 0.5.
//
//	imbalanced: max - min > Gap requests -> only the targets with the fewest requests may match
//	those that match at least one block, by the percentage of blocks that match (whole per cents,
//	  the most first), then by requests (the fewest first):
//	  the first one with at most mean + Sigma x deviation requests
//	none -> the fewest requests
//
// Requests are those that the gateway knows to be running there (here: in flight).
// The deviation is the population's (assumed). Its Helm chart sets 16 and 2 in
// place of 8 and 1.
//
// Sources: vllm-project/aibrix pkg/plugins/gateway/algorithms/prefix_cache.go and
// README.md; pkg/utils/prefixcacheindexer/hash.go.
type AIBrixConfig struct {
	Common
	// Gap is in requests. 0 means 8.
	Gap float64
	// GateFactor, if not 0, selects the newer, milder gate: max > GateFactor x
	// (mean + 1) and max - min >= Gap. Its default there is 2.
	GateFactor float64
	// Sigma is how many deviations above the mean a matching target may be. 0 means
	// 1.
	Sigma float64
	// BlockBytes is the size of a block of text. 0 means 128, the chart's.
	BlockBytes int
}

// NewAIBrix returns the policy that c describes, or an error that names the bad
// field.
func NewAIBrix(c AIBrixConfig) (*Strategy, error) {
	block := float64(c.BlockBytes)
	err := set("AIBrixConfig",
		value("Gap", &c.Gap, 8, 0, huge),
		value("GateFactor", &c.GateFactor, 0, 0, huge),
		value("Sigma", &c.Sigma, 1, 0, huge),
		value("BlockBytes", &block, 128, 1, 1<<20))
	if err != nil {
		return nil, err
	}
	c.BlockBytes = int(block)
	return newStrategy(c.Common, aibrix{c}, nil)
}

type aibrix struct{ c AIBrixConfig }

func (a aibrix) choose(v *view) (int, router.Reason) {
	load := v.loads(v.vals[0], inFlight)
	s := v.spread(load)
	gated := s.most-s.least > a.c.Gap
	if a.c.GateFactor > 0 {
		gated = s.most > a.c.GateFactor*(s.mean+1) && s.most-s.least >= a.c.Gap
	}
	unmatched := v.vals[1]
	may := v.filter(func(i int) bool {
		matched, total := v.blocks(i, a.c.BlockBytes)
		if matched == 0 || gated && load[i] > s.least || load[i] > s.mean+a.c.Sigma*s.deviation {
			return false
		}
		unmatched[i] = -float64(matched * 100 / total)
		return true
	})
	if len(may) > 0 {
		return v.least(may, unmatched, load), ""
	}
	return v.least(v.ready, load, nil), ""
}
