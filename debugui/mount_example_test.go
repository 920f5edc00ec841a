package debugui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

// A page for a router: it wraps the strategy, receives the hooks of router and
// fleet, and is mounted on an address that only operators reach.
func Example_mount() {
	page, err := debugui.New(debugui.Config{Title: "gateway 1"})
	if err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{Trace: page.ViewTrace(loadview.Trace{})})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	r := router.New(page.Strategy(strategy), fleet, router.Options{Trace: page.Trace("llama", router.Trace{})})
	if err := page.Watch(debugui.Route{Name: "llama", Strategy: leastwork.Name, Router: r, View: fleet}); err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/debug/router/", page)
	srv := httptest.NewServer(mux) // on loopback
	defer srv.Close()
	err = r.Do(context.Background(), router.Prompt{Text: "hello"},
		func(context.Context, *router.Lease) (router.Outcome, error) {
			return router.Outcome{Status: 200}, nil
		})
	if err != nil {
		panic(err)
	}
	resp, err := http.Get(srv.URL + "/debug/router/")
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}

// Who has numbers to read of a strategy, such as Stats, gets it back.
func ExampleUnwrap() {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	wrapped := page.Strategy(strategy)
	fmt.Println(debugui.Unwrap(wrapped) == router.Strategy(strategy))
	fmt.Println(debugui.Unwrap(strategy) == router.Strategy(strategy))
	// Output:
	// true
	// true
}
