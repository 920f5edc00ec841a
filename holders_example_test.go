package router_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

// A response is kept by the engine that made it, so the request that continues it goes there.
func ExampleNewHolders() {
	holders, err := router.NewHolders(router.HoldersConfig{
		MaxIDs: 10_000,
		Bound:  func(id, target string) { fmt.Println("other gateways learn that", id, "is at", target) },
	})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-0"}, {ID: "vllm-1"}}); err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{Holders: holders})

	ctx := context.Background()
	l, err := r.Assign(ctx, router.Prompt{Model: "llama"}, "vllm-1")
	if err != nil {
		panic(err)
	}
	l.Made("resp_1") // as soon as the reply names it
	l.Done(router.Outcome{Status: 200})

	l, err = r.Route(ctx, router.Prompt{Model: "llama", Must: []string{"resp_1"}})
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Decision().Target.ID, l.Decision().Reason)
	l.Done(router.Outcome{Status: 200})
	// Output:
	// other gateways learn that resp_1 is at vllm-1
	// vllm-1 state
}
