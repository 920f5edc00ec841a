package loadview_test

import (
	"fmt"

	"github.com/warmroute/router/loadview"
)

// A host that has loaded an adapter at a member says so, and requests for it go there again.
func ExampleView_Loaded() {
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := v.Set([]loadview.Member{{ID: "vllm-1"}}); err != nil {
		panic(err)
	}
	fmt.Println(v.Loaded("vllm-1", "sql")) // it has not said that it lacks it
	// Output: false
}
