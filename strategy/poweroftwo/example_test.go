package poweroftwo_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/poweroftwo"
)

func Example() {
	s, err := poweroftwo.New(poweroftwo.Config{})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "busy", Load: router.Load{Known: true, InFlight: 7}},
		{ID: "idle", Load: router.Load{Known: true}},
	}
	d, err := s.Pick(context.Background(), router.Prompt{Text: "hello"}, targets)
	fmt.Println(d.Target.ID, d.Reason, err)
	// Output: idle power_of_two <nil>
}
