package config_test

import (
	"context"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
)

func Example() {
	f, err := config.Parse([]byte(`
[[providers]]
name = "vllm-1"
api_base = "http://vllm-1:8000/v1"

[[routes]]
model = "llama"
aliases = ["gpt-4o"]
strategy = "cache_aware"
[[routes.targets]]
provider = "vllm-1"
model = "meta-llama/Llama-3.1-8B-Instruct"
`), config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := config.Build(f, config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A gateway also starts g.Run, and calls g.ReloadFile on SIGHUP or g.Watch.

	m, ok := g.Route("gpt-4o") // what the request names
	if !ok {
		fmt.Println("404")
		return
	}
	err = m.Router.Do(context.Background(), m.Prompt(router.Prompt{Text: "hello"}),
		func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			t := l.Decision().Target
			fmt.Println(t.ID, t.Ref.(*config.Target).Base, m.Rewrite(t))
			return router.Outcome{Status: 200}, nil
		})
	fmt.Println(err)
	// Output:
	// vllm-1 http://vllm-1:8000 meta-llama/Llama-3.1-8B-Instruct
	// <nil>
}
