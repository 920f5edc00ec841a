package random_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/random"
)

func Example() {
	s, err := random.New(random.Config{})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{{ID: "a", State: router.Draining}, {ID: "b"}}
	d, err := s.Pick(context.Background(), router.Prompt{Text: "hello"}, targets)
	fmt.Println(d.Target.ID, d.Reason, err)
	// Output: b only_target <nil>
}
