package debugui_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// A router whose decisions can be watched. The page goes where the gateway's own
// pages are, not where its clients are.
func Example() {
	page, err := debugui.New(debugui.Config{Title: "Gateway 7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet, err := loadview.New(loadview.Config{Trace: page.ViewTrace(loadview.Trace{Forget: strategy.Forget})})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := router.New(page.Strategy(strategy), fleet, router.Options{Trace: page.Trace("llama", nil)})
	if err := fleet.Set([]loadview.Member{{ID: "http://vllm-1:8000"}, {ID: "http://vllm-2:8000"}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := page.Watch(debugui.Route{Name: "llama", Strategy: cacheaware.Name, Router: r, View: fleet}); err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/router/", page)
	server := httptest.NewServer(mux) // http.ListenAndServe("127.0.0.1:6060", mux)
	defer server.Close()

	lease, err := r.Route(context.Background(), router.Prompt{Model: "llama", Text: "When does the first train leave?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	lease.Done(router.Outcome{Status: 200})
	for _, path := range []string{"", "state"} {
		resp, err := http.Get(server.URL + "/debug/router/" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Header.Get("Content-Type"), strings.Contains(string(body), "first train"))
	}
	// Output:
	// text/html; charset=utf-8 false
	// application/json false
}

// The hooks of an event stream, as package zmqsub calls them.
func ExamplePage_Gap() {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// zmqsub.Trace{Gap: page.Gap, Transition: func(id string, from, to zmqsub.State, why string) {
	//	page.StreamChanged(id, from.String(), to.String(), why)
	// }}
	page.Gap("http://vllm-1:8000", 41, 44)
	page.StreamChanged("http://vllm-1:8000", "live", "resyncing", "gap")

	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/state", nil))
	fmt.Println(strings.Contains(w.Body.String(), "2 messages are missing between 41 and 44"))
	// Output: true
}
