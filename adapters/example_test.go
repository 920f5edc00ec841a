package adapters_test

import (
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
)

// Requests, pages and events show which adapters a target has; the costs are for a strategy.
func Example() {
	slots, err := adapters.New(adapters.Config{LoadTokens: 2000})
	if err != nil {
		panic(err)
	}
	slots.Page("vllm-1", adapters.Page{Slots: 2, Running: []string{"sql"}})
	use := slots.Sent("vllm-1", "chat", 700) // tokens until its first token
	use.FirstToken()
	use.End(router.Finished)
	slots.Seen("vllm-1", "chat") // in a KV event

	st, _ := slots.State("vllm-1")
	for _, a := range st.Adapters {
		fmt.Println(a.Name, a.Loaded, a.InFlight)
	}
	fmt.Println(st.Loaded(), "of", st.Slots, "slots,", st.Loads, "loads")
	fmt.Println(slots.Costs("sql", []router.Target{{ID: "vllm-1"}}, nil))
	fmt.Println(slots.Costs("code", []router.Target{{ID: "vllm-1"}}, nil), slots.Homes("code", []string{"vllm-1"}))

	slots.Unloaded("vllm-1", "sql")
	slots.Forget("vllm-1") // it was restarted
	fmt.Println(slots.Costs("sql", []router.Target{{ID: "vllm-1"}}, nil), slots.Stats().Targets)
	// Output:
	// chat true 0
	// sql true 0
	// 2 of 2 slots, 2 loads
	// [0]
	// [2000] [vllm-1]
	// [2000] 0
}

func ExampleConfig_WithDefaults() {
	c := adapters.Config{}.WithDefaults()
	fmt.Println(c.Slots, c.LoadTokens, c.MaxNames)
	// Output: 4 4096 4096
}
