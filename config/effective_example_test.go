package config_test

import (
	"fmt"
	"strings"

	"github.com/warmroute/router/config"
)

// What a file means, with every default, is itself a file.
func ExampleFile_Effective() {
	f, err := config.Parse([]byte(two), config.Options{})
	if err != nil {
		panic(err)
	}
	all := f.Effective()
	_, table, _ := strings.Cut(all, "[routes.cache_aware]\n")
	fmt.Print(table)
	again, err := config.Parse([]byte(all), config.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(again.Effective() == all)
	fmt.Println(f.Policy().CheckURL("http://169.254.169.254/latest") != nil)
	// Output:
	// threshold = 0.5
	// overload_slack = 2.0
	// overload_factor = 1.5
	// held_share = 0.1
	// max_nodes = 1000000
	// max_bytes = 536870912
	// true
	// true
}

// What a page of an operator's, or metrics, look at.
func ExampleGateway_View() {
	f, err := config.Parse([]byte(two), config.Options{})
	if err != nil {
		panic(err)
	}
	g, err := config.Build(f, config.Options{})
	if err != nil {
		panic(err)
	}
	for _, s := range g.View().Snapshot() {
		fmt.Println(s.Target.ID, s.Target.State)
	}
	s, ok := g.Strategy("llama").(interface{ Forget(id string) })
	fmt.Println(s != nil, ok)
	fmt.Println(g.Index() == nil, len(g.LMCache().Snapshot())) // no kv_events, no lmcache
	// Output:
	// vllm-1 ready
	// vllm-2 ready
	// true true
	// true 0
}
