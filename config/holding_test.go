package config_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
)

const twoRoutes = `
[[providers]]
name = "a"
api_base = "http://a:8000"
[[providers]]
name = "b"
api_base = "http://b:8000"
[[routes]]
model = "llama"
targets = [{ provider = "a" }]
[[routes]]
model = "qwen-*"
targets = [{ provider = "b" }]
`

// A request that names no model goes to the route with the target that has its state.
func ExampleGateway_Holding() {
	f, err := config.Parse([]byte(twoRoutes), config.Options{})
	if err != nil {
		panic(err)
	}
	g, err := config.Build(f, config.Options{})
	if err != nil {
		panic(err)
	}
	g.Holders().Bind("resp_1", "b")
	m, ok := g.Holding([]string{"resp_1"})
	fmt.Println(m.Route, ok)
	_, ok = g.Holding([]string{"resp_2"})
	fmt.Println(ok)
	// Output:
	// qwen-* true
	// false
}

// What one route's target has made is known to all routes, over reloads too, until the
// target is gone.
func TestHolding(t *testing.T) {
	holders := new(router.Holders)
	o := config.Options{Holders: holders}
	f, err := config.Parse([]byte(twoRoutes), o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := config.Build(f, o)
	if err != nil || g.Holders() != holders {
		t.Fatal(g, err)
	}
	m, _ := g.Route("llama")
	l, err := m.Router.Route(t.Context(), m.Prompt(router.Prompt{}))
	if err != nil {
		t.Fatal(err)
	}
	l.Done(router.Outcome{Status: 200, Made: []string{"resp_1"}})
	if f, err = config.Parse([]byte(twoRoutes+"strategy = \"round_robin\"\n"), o); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(f); err != nil {
		t.Fatal(err)
	}
	m, ok := g.Holding([]string{"unknown", "resp_1"})
	if !ok || m.Route != "llama" || m.Requested != "" || m.Model != "llama" {
		t.Errorf("%+v, %v", m, ok)
	}
	if l, err = m.Router.Route(context.Background(), router.Prompt{Must: []string{"resp_1"}}); err != nil {
		t.Fatal(err)
	}
	if l.Decision().Reason != router.ReasonState {
		t.Errorf("%+v", l.Decision())
	}
	l.Done(router.Outcome{Status: 404})
	g.View().Forget("a") // its engine restarted
	if m, ok := g.Holding([]string{"resp_1"}); ok {
		t.Errorf("%+v", m)
	}
}
