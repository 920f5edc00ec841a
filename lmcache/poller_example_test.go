package lmcache_test

import (
	"fmt"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/lmcache"
)

// A cache that was not polled yet is neutral: nothing is known of it. Targets can
// be changed while Run runs.
func ExamplePoller_Set() {
	p, err := lmcache.New(lmcache.Config{Targets: []lmcache.Target{{ID: "gpu-1", Endpoint: "http://gpu-1:8100/status"}}})
	if err != nil {
		panic(err)
	}
	err = p.Set([]lmcache.Target{
		{ID: "gpu-1", Endpoint: "http://gpu-1:8100/status"},
		{ID: "gpu-2", Endpoint: "http://gpu-2:8100/status"},
	})
	if err != nil {
		panic(err)
	}
	for _, s := range p.Snapshot() {
		fmt.Println(s.ID, s.State, s.State.Neutral(), s.Failures)
	}
	fmt.Println(p.SetEgress(egress.Policy{AllowHosts: []string{"gpu-1"}}))
	err = p.Set([]lmcache.Target{{ID: "gpu-3", Endpoint: "http://169.254.169.254/status"}})
	fmt.Println(err != nil)
	// Output:
	// gpu-1 unknown true 0
	// gpu-2 unknown true 0
	// <nil>
	// true
}
