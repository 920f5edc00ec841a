package roundrobin_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/roundrobin"
)

func Example() {
	s, err := roundrobin.New(roundrobin.Config{})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{{ID: "small"}, {ID: "big", Weight: 2}, {ID: "gone", State: router.Draining}}
	for range 6 {
		d, err := s.Pick(context.Background(), router.Prompt{}, targets)
		if err != nil {
			panic(err)
		}
		fmt.Print(d.Target.ID, " ")
	}
	// Output: big small big big small big
}
