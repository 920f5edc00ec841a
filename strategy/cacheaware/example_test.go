package cacheaware_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// Two conversations, each of which stays with the engine that holds it, until
// that engine is too busy.
func Example() {
	strategy, err := cacheaware.New(cacheaware.Config{
		Rand: func() uint64 { return 1 }, // for an example that ends the same each time
	})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "engine-a"}, {ID: "engine-b"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})

	send := func(what, text string) *router.Lease {
		lease, err := r.Route(context.Background(), router.Prompt{Model: "llama", Text: text})
		if err != nil {
			panic(err)
		}
		d := lease.Decision()
		fmt.Printf("%-20s %s, %-6s %3d of %d bytes cached, %d in flight before\n",
			what, d.Target.ID, d.Reason+":", d.Cached, d.Length, d.Target.Load.InFlight)
		return lease
	}

	cats := "system: you know all about cats. user: " + strings.Repeat("why do they purr? ", 10)
	dogs := "the rules of this house about dogs: " + strings.Repeat("may mine stay? ", 10)
	one := send("cats", cats)
	two := send("dogs", dogs)
	one.Done(router.Outcome{Status: 200, Reply: "assistant: because they can. "})
	two.Done(router.Outcome{Status: 200, Reply: "assistant: yes. "})

	cats += "assistant: because they can. user: how? "
	dogs += "assistant: yes. user: how many? "
	send("cats, second turn", cats)
	send("dogs, second turn", dogs).Done(router.Outcome{Status: 200})
	send("cats, asked again", cats)
	send("cats, and again", cats)
	send("cats, once too often", cats)
	send("cats, one more", cats)

	// Output:
	// cats                 engine-b, cold:    0 of 219 bytes cached, 0 in flight before
	// dogs                 engine-a, cold:    0 of 186 bytes cached, 0 in flight before
	// cats, second turn    engine-b, warm:  248 of 259 bytes cached, 0 in flight before
	// dogs, second turn    engine-a, warm:  202 of 218 bytes cached, 0 in flight before
	// cats, asked again    engine-b, warm:  259 of 259 bytes cached, 1 in flight before
	// cats, and again      engine-b, warm:  259 of 259 bytes cached, 2 in flight before
	// cats, once too often engine-a, spill:   0 of 259 bytes cached, 0 in flight before
	// cats, one more       engine-a, warm:  259 of 259 bytes cached, 1 in flight before
}
