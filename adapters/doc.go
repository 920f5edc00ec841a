// Package adapters models the slots in which engines keep LoRA adapters, and the cost of a load.
//
// An engine has a few slots (vLLM's max_loras, SGLang's max_loras_per_batch). A request with an adapter that is in none
// of them waits until it is loaded, and the load evicts the adapter that was used least recently. The pages of most
// engines list the adapters that have requests, not those that are loaded: an idle one is loaded and not listed. So
// [Slots] keeps its own model of each target: it sees the requests that are sent and answered, pages, KV events, and
// what other gateways sent.
//
// One Slots is given to the fleet (loadview.Config.Adapters) and to the strategies (leastwork.Config.Adapters,
// pipeline.Config.Adapters).
package adapters
