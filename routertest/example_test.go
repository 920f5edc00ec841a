package routertest_test

import (
	"fmt"

	"github.com/warmroute/router/routertest"
)

// A strategy that cannot keep a law says so in Options.Skip, by its name and with
// the reason.
func ExampleLaws() {
	for _, law := range routertest.Laws() {
		fmt.Println(law)
	}
	// Output:
	// offered
	// no_target
	// lengths
	// order
	// ties
	// unchanged
	// not_kept
	// canceled
	// extremes
	// records
	// unsent
	// repeated
	// scopes
	// explained
	// agrees
	// ranked
	// quiet
	// forgets
	// prepared
	// storm
}
