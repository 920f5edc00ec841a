package observe_test

import (
	"fmt"

	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/share"
)

func ExampleShareLosses() {
	for _, l := range observe.ShareLosses(share.State{Failed: 2, Dropped: 3}) {
		if l.N > 0 {
			fmt.Println(l.Cause, l.N)
		}
	}
	// Output:
	// refused 2
	// too_fast 3
}
