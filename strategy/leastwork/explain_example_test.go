package leastwork_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy/leastwork"
)

// With an index the engines' own events say what is cached: here vllm-2 holds a
// prompt that this process has never sent.
func ExampleStrategy_Explain() {
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		panic(err)
	}
	s, err := leastwork.New(leastwork.Config{Index: index})
	if err != nil {
		panic(err)
	}
	p := router.Prompt{Tokens: make([]uint32, 4000)}
	stored := kvindex.Event{Kind: kvindex.Stored, Group: -1, BlockSize: 16, Tokens: p.Tokens[:3200]}
	for i := range 200 {
		stored.Hashes = append(stored.Hashes, uint64(i))
	}
	if err := index.Apply("vllm-1", 0, kvindex.Batch{}); err != nil {
		panic(err)
	}
	if err := index.Apply("vllm-2", 0, kvindex.Batch{Events: []kvindex.Event{stored}}); err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "vllm-1", Load: router.Load{Known: true}},
		{ID: "vllm-2", Load: router.Load{Known: true, Prefill: 8000}},
	}
	for _, c := range s.Explain(context.Background(), p, targets, nil) {
		fmt.Printf("%s: %d of %d %s cached, score %.2f, %s\n", c.Target.ID, c.Cached, c.Length, c.Unit, c.Score, c.Reason)
	}
	// Output:
	// vllm-2: 3200 of 4000 tokens cached, score 1.00, warm
	// vllm-1: 0 of 4000 tokens cached, score 0.60, colder
}

// The strategy is notified of an engine that lost its cache;
// loadview.Trace.Forget is where a fleet does it.
func ExampleStrategy_Forget() {
	s, err := leastwork.New(leastwork.Config{MaxBytes: 32 << 20})
	if err != nil {
		panic(err)
	}
	p := router.Prompt{Text: strings.Repeat("All happy families are alike. ", 100)}
	targets := []router.Target{{ID: "vllm-1", Load: router.Load{Known: true}}}
	d, err := s.Pick(context.Background(), p, targets)
	if err != nil {
		panic(err)
	}
	s.Record(d, router.Outcome{Stage: router.Sent})
	fmt.Println(s.Stats().Bytes, s.Explain(context.Background(), p, targets, nil)[0].Cached)
	s.Forget("vllm-1")
	fmt.Println(s.Explain(context.Background(), p, targets, nil)[0].Cached)
	// Output:
	// 3000 3000
	// 0
}
