package file_test

import (
	"fmt"

	"github.com/warmroute/router/config/file"
)

// A program adds a replica to a fleet, and looks at it before it takes it.
func ExampleDocument() {
	d, err := file.NewDocument([]byte(`
[[providers]]
name = "vllm-1"
api_base = "http://vllm-1:8000"

[[routes]]
model = "*"
targets = [{ provider = "vllm-1" }]
`))
	if err != nil {
		panic(err)
	}
	table, err := file.TableJSON([]byte(`{"api_base": "http://vllm-2:8000"}`))
	if err != nil {
		panic(err)
	}
	if err := d.SetProvider("vllm-2", table); err != nil {
		panic(err)
	}
	events, err := file.Table([]byte(`endpoint = "tcp://vllm-2:5557"`))
	if err != nil {
		panic(err)
	}
	if err := d.SetSource("vllm-2", file.SourceKVEvents, events); err != nil {
		panic(err)
	}
	f, err := file.Parse("", d.TOML(), file.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Providers(), len(f.Routes[0].Targets))
	// Output: [vllm-1 vllm-2] 2
}

// The same, from JSON.
func ExampleNewDocumentJSON() {
	d, err := file.NewDocumentJSON([]byte(`{"queue": {"enabled": true, "max_waiting": 10}}`))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s", d.TOML())
	// Output:
	// [queue]
	// enabled = true
	// max_waiting = 10
}
