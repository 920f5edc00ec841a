package lmcache_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/warmroute/router"
	"github.com/warmroute/router/lmcache"
)

func Example() {
	// LMCache's own server would say this at /status.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"is_healthy": true, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.15}}}`)
	}))
	defer srv.Close()

	changed := make(chan lmcache.Status, 1)
	p, err := lmcache.New(lmcache.Config{
		Targets: []lmcache.Target{{ID: "gpu-1", Endpoint: srv.URL + "/status"}},
		Trace:   lmcache.Trace{Changed: func(_ lmcache.State, now lmcache.Status) { changed <- now }},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = p.Run(ctx) }()

	s := <-changed
	fmt.Println(s.ID, s.State, s.Kind, s.Occupancy, s.Free)

	// What a strategy asks: of a target without a target nothing is known.
	free := make([]float64, 2)
	p.Free([]router.Target{{ID: "gpu-1"}, {ID: "gpu-2"}}, free)
	fmt.Println(free)
	// Output:
	// gpu-1 available status 0.15 0.75
	// [0.75 NaN]
}
