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
	err = m.Router.Do(context.Background(), m.Prompt(router.Prompt{Text: "hello"}), func(_ context.Context, l *router.Lease) (router.Outcome, error) {
		t := l.Decision().Target
		fmt.Println(t.ID, t.Ref.(*config.Target).Base, m.Rewrite(t))
		return router.Outcome{Status: 200}, nil
	})
	fmt.Println(err)
	// Output:
	// vllm-1 http://vllm-1:8000 meta-llama/Llama-3.1-8B-Instruct
	// <nil>
}

func ExampleParse() {
	_, err := config.Parse([]byte(`
[[providers]]
name = "vllm-1"
api_base = "http://169.254.169.254"

[[routes]]
model = "llama"
strategy = "cash_aware"
[[routes.targets]]
provider = "vlm-1"
wieght = 0
`), config.Options{})
	for _, p := range err.(*config.Error).Problems {
		fmt.Println(p)
	}
	// Output:
	// 4:12: providers[0].api_base: http://169.254.169.254 is denied: 169.254.169.254 is cloud metadata or link-local (169.254.0.0/16); AllowLinkLocal (block_link_local = false) allows all of these, AllowHosts (allow_hosts) this host alone
	// 8:12: routes[0].strategy: "cash_aware" is not known; did you mean "cache_aware"?
	// 10:12: routes[0].targets[0].provider: there is no provider "vlm-1"; did you mean "vllm-1"?
	// 11:1: routes[0].targets[0].wieght: unknown key; did you mean "weight"?
}
