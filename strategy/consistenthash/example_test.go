package consistenthash_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/consistenthash"
)

// Two gateways that know nothing of each other send a session to the same
// target.
func Example() {
	targets := []router.Target{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}}
	for _, text := range []string{"hello", "hello, and another turn"} {
		gateway, err := consistenthash.New(consistenthash.Config{})
		if err != nil {
			panic(err)
		}
		d, err := gateway.Pick(context.Background(), router.Prompt{Session: "alice", Text: text}, targets)
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Target.ID, d.Reason)
	}
	// Output:
	// a consistent_hash
	// a consistent_hash
}
