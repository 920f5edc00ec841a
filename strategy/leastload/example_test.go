package leastload_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/leastload"
)

func Example() {
	s, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "small", Weight: 1, Load: router.Load{Known: true, InFlight: 2}},
		{ID: "big", Weight: 4, Load: router.Load{Known: true, InFlight: 5, Queued: 1}},
	}
	for _, c := range s.Explain(context.Background(), router.Prompt{Text: "hello"}, targets, nil) {
		fmt.Printf("%s %.2f %s\n", c.Target.ID, c.Score, c.Reason)
	}
	// Output:
	// big 1.00 least_load
	// small 0.67 busier
}
