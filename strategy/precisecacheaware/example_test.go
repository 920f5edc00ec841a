package precisecacheaware_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// Two engines, one of which has said that it holds the first blocks of a prompt.
func Example() {
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		panic(err)
	}
	strategy, err := precisecacheaware.New(precisecacheaware.Config{Index: index})
	if err != nil {
		panic(err)
	}

	// What package kvindex/zmqsub does: each engine's messages, decoded, in order.
	prompt := router.Prompt{Model: "llama", Tokens: make([]uint32, 100)}
	for i := range prompt.Tokens {
		prompt.Tokens[i] = uint32(i)
	}
	stored := kvindex.Event{
		Kind: kvindex.Stored, Group: -1, BlockSize: 16,
		Hashes: []uint64{11, 12, 13, 14}, Tokens: prompt.Tokens[:64],
	}
	if err := index.Apply("vllm-1", 0, kvindex.Batch{Events: []kvindex.Event{stored}}); err != nil {
		panic(err)
	}
	if err := index.Apply("vllm-2", 0, kvindex.Batch{}); err != nil { // alive, and empty
		panic(err)
	}

	route := func(p router.Prompt, busy1, busy2 int) {
		d, err := strategy.Pick(context.Background(), p, []router.Target{
			{ID: "vllm-1", Load: router.Load{Known: true, InFlight: busy1}},
			{ID: "vllm-2", Load: router.Load{Known: true, InFlight: busy2}},
		})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s, %s: %d of %d %s cached\n", d.Target.ID, d.Reason, d.Cached, d.Length, d.Unit)
	}
	route(prompt, 2, 0) // worth waiting for
	route(prompt, 9, 0) // too busy
	route(router.Prompt{Model: "llama", Text: "no token ids"}, 1, 0)
	index.Suspend("vllm-1", true) // the connections are lost
	index.Suspend("vllm-2", true)
	route(prompt, 1, 0)

	// Output:
	// vllm-1, warm: 64 of 100 tokens cached
	// vllm-2, spill: 0 of 100 tokens cached
	// vllm-2, no_tokens_least_load: 0 of 12 bytes cached
	// vllm-2, untrusted_least_load: 0 of 100 tokens cached
}
