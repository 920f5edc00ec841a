package kvindex_test

import (
	"errors"
	"fmt"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
)

// stored is a batch in which one block of four tokens was stored.
func stored(hash uint64, tokens ...uint32) kvindex.Batch {
	return kvindex.Batch{Events: []kvindex.Event{{
		Kind: kvindex.Stored, Group: -1, BlockSize: 4, Hashes: []uint64{hash}, Tokens: tokens,
	}}}
}

// A missing message ends the trust in a target until it has been applied, as from
// the engine's replay socket, or until Reset forgets the target's blocks.
func ExampleIndex_Apply() {
	x, err := kvindex.New(kvindex.Config{MaxBlocks: 100_000})
	if err != nil {
		panic(err)
	}
	p := router.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}}
	show := func(what string, err error) {
		fmt.Println(what, x.Match(p, []string{"vllm-1"}, nil), errors.Is(err, kvindex.ErrGap))
	}
	show("message 0:", x.Apply("vllm-1", 0, stored(11, 1, 2, 3, 4)))
	show("message 2:", x.Apply("vllm-1", 2, kvindex.Batch{}))
	show("message 1:", x.Apply("vllm-1", 1, kvindex.Batch{}))
	show("message 2:", x.Apply("vllm-1", 2, kvindex.Batch{}))
	x.Reset("vllm-1")
	show("Reset:    ", nil)
	show("message 9:", x.Apply("vllm-1", 9, kvindex.Batch{}))
	// Output:
	// message 0: [4] false
	// message 2: [-1] true
	// message 1: [-1] false
	// message 2: [4] false
	// Reset:     [-1] false
	// message 9: [0] false
}

// Suspend marks a stream as out of touch. The target's blocks are kept for the time
// when it is back.
func ExampleIndex_Suspend() {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		panic(err)
	}
	if err := x.Apply("vllm-1", 0, stored(11, 1, 2, 3, 4)); err != nil {
		panic(err)
	}
	x.Suspend("vllm-1", true)
	fmt.Println(x.Trusted("vllm-1"))
	x.Suspend("vllm-1", false)
	fmt.Println(x.Trusted("vllm-1"))
	// Output:
	// false
	// true
}

// The counters to look at when predictions are wrong.
func ExampleIndex_Target() {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		panic(err)
	}
	if err := x.Apply("vllm-1", 7, stored(11, 1, 2, 3, 4)); err != nil {
		panic(err)
	}
	t, ok := x.Target("vllm-1")
	fmt.Println(ok, t.Trusted, t.Last, t.BlockSize, t.Blocks, t.Gaps)
	s := x.Stats()
	fmt.Println(s.Targets, s.Trusted, s.Blocks)
	x.Forget("vllm-1") // it left permanently
	_, ok = x.Target("vllm-1")
	fmt.Println(ok)
	// Output:
	// true true 7 4 1 0
	// 1 1 1
	// false
}

// After a message that cannot be read the blocks before it are in doubt: the state
// of the engine's cache is unknown.
func ExampleDecode() {
	b, err := kvindex.Decode([]byte{0x93, 0xcb, 0x41, 0xda, 0x30, 0x54, 0x98, 0x10, 0, 0, 0x91, 0x91, 0xb0,
		'A', 'l', 'l', 'B', 'l', 'o', 'c', 'k', 's', 'C', 'l', 'e', 'a', 'r', 'e', 'd', 0})
	fmt.Println(b.Events[0].Kind, b.Rank, err)
	_, err = kvindex.Decode([]byte{0x93, 0xcb})
	fmt.Println(err != nil)
	// Output:
	// cleared 0 <nil>
	// true
}
