package main

import (
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/rivals"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// others returns the policies of other projects. Those that go by the name of one
// of the library's own are left out: they are it.
func others() []sim.Policy {
	var out []sim.Policy
	for _, e := range rivals.All() {
		if slices.Contains([]string{roundrobin.Name, leastload.Name, random.Name}, e.Name) {
			continue
		}
		out = append(out, sim.Policy{Name: e.Name, About: e.Source,
			New: func(v sim.Env) (router.Strategy, error) { return e.New(v.Rand), nil }})
	}
	wide := rivals.CHWBLConfig{PrefixBytes: 8192}
	return append(out, sim.Policy{Name: "chwbl_8k",
		About: "KubeAI PrefixHash as chwbl, but of the first 8,192 bytes, for prompts that all begin alike",
		New: func(v sim.Env) (router.Strategy, error) {
			c := wide
			c.Rand = v.Rand
			return rivals.NewCHWBL(c)
		}})
}
