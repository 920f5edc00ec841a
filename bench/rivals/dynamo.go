package rivals

import "github.com/warmroute/router"

// DynamoConfig is the KV router of NVIDIA Dynamo at temperature 0. The zero
// DynamoConfig is its default.
//
//	cost = PrefillScale x max(0, prefill - OverlapCredit x overlap) + decode, in blocks; the least wins
//	prefill = (tokens waiting for prefill at the target + tokens of this prompt) / block
//	overlap = blocks of this prompt cached at the target
//	decode  = distinct blocks of the prompts in flight at the target, this one added
//
// So a cached prefix that is in use there already costs nothing twice. The blocks in
// flight are known from the sent prompts, as in the original; generated tokens do
// not count, as by its default. Here parts of blocks count in prefill and decode.
// The older overlap_score_weight is PrefillScale. The queue in which the router
// itself keeps requests while every target is busy, and the credits for lower tiers
// of cache, are omitted.
//
// Sources: ai-dynamo/dynamo lib/kv-router/src/scheduling/selector.rs and config.rs
// (1.0, 1.0, 0); docs.nvidia.com/dynamo, "Routing Concepts" and "Configuration and
// Tuning".
type DynamoConfig struct {
	Common
	// OverlapCredit is the credit of a cached block, up to 1. 0 means 1.
	OverlapCredit float64
	// PrefillScale weighs prefill against decode. 0 means 1.
	PrefillScale float64
	// BlockTokens is the engine's block. 0 means 16, vLLM's default.
	BlockTokens int
}

// NewDynamo returns the policy that c describes, or an error that names the bad
// field.
func NewDynamo(c DynamoConfig) (*Strategy, error) {
	block := float64(c.BlockTokens)
	err := set("DynamoConfig",
		value("OverlapCredit", &c.OverlapCredit, 1, 0, 1),
		value("PrefillScale", &c.PrefillScale, 1, 0, huge),
		value("BlockTokens", &block, 16, 1, 1<<20))
	if err != nil {
		return nil, err
	}
	c.BlockTokens = int(block)
	f, err := newFlights(c.Common)
	if err != nil {
		return nil, err
	}
	return newStrategy(c.Common, dynamo{c, f}, f)
}

type dynamo struct {
	c       DynamoConfig
	flights *flights
}

func (y dynamo) choose(v *view) (int, router.Reason) {
	cost := v.loads(v.vals[0], prefill)
	bytes := y.c.BlockTokens * bytesPerToken
	y.flights.each(v, func(i int, f flight) {
		overlap, _ := v.blocks(i, bytes)
		waiting := (cost[i] + v.tokens()/v.weight(i)) / float64(y.c.BlockTokens)
		decode := float64(f.bytes+v.key.Size()-f.shared) / float64(bytes)
		cost[i] = y.c.PrefillScale*max(0, waiting-y.c.OverlapCredit*float64(overlap)/v.weight(i)) + decode/v.weight(i)
	})
	return v.least(v.ready, cost, nil), ""
}
