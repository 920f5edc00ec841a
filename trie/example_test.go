package trie_test

import (
	"fmt"

	"github.com/warmroute/router/trie"
)

// Two replicas were sent conversations with the same beginning. One descent
// returns how much of a new text each of them holds.
func Example() {
	t, err := trie.New(trie.Config{MaxBytes: 64 << 20})
	if err != nil {
		panic(err)
	}
	system := "You are the clerk of a small railway. "
	t.Insert("llama", system+"When does the first train leave?", "vllm-1")
	t.Insert("llama", system+"Is there a buffet?", "vllm-2")

	ids := []string{"vllm-1", "vllm-2", "vllm-3"}
	asked := system + "When does the first train leave? And the last one?"
	fmt.Println(t.Match("llama", asked, ids, nil), "of", len(asked))
	fmt.Println(t.Match("another model", asked, ids, nil))

	fmt.Println("prompts:", t.Warmed(ids, nil))
	s := t.Stats()
	fmt.Println(s.Prompts, "prompts,", s.Bytes, "bytes: what is shared counts once")
	// Output:
	// [70 38 0] of 88
	// [0 0 0]
	// prompts: [1 1 0]
	// 2 prompts, 88 bytes: what is shared counts once
}

// A reply is cached too: it takes the place of the prompt that it answers.
func ExampleTrie_Extend() {
	t, err := trie.New(trie.Config{})
	if err != nil {
		panic(err)
	}
	t.Insert("llama", "Why is the sky blue? ", "vllm-1")
	t.Extend("llama", "Why is the sky blue? ", "Because of Rayleigh. ", "vllm-1")
	fmt.Println(t.Match("llama", "Why is the sky blue? Because of Rayleigh. Who?", []string{"vllm-1"}, nil))
	fmt.Println(t.Stats().Prompts)
	// Output:
	// [42]
	// 1
}

// A request that failed before its first token is taken back. What other
// requests brought there stays, until the replica itself is gone.
func ExampleTrie_Remove() {
	t, err := trie.New(trie.Config{})
	if err != nil {
		panic(err)
	}
	ids := []string{"vllm-1"}
	t.Insert("llama", "You are brief. Hello", "vllm-1")
	t.Insert("llama", "You are brief. Goodbye", "vllm-1")

	t.Remove("llama", "You are brief. Goodbye", "vllm-1")
	fmt.Println(t.Match("llama", "You are brief. Goodbye", ids, nil))

	t.Forget("vllm-1")
	fmt.Println(t.Match("llama", "You are brief. Goodbye", ids, nil))
	// Output:
	// [15]
	// [0]
}
