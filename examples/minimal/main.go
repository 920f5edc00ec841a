// Command minimal is the smallest gateway: it sends each prompt to the replica that
// can answer soonest.
//
//	minimal http://vllm-1:8000 http://vllm-2:8000
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/warmroute/router"
	"github.com/warmroute/router/httpproxy"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

func main() {
	h, err := newGateway(os.Args[1:])
	if err == nil {
		err = http.ListenAndServe("localhost:8080", h)
	}
	log.Fatal(err)
}

func newGateway(urls []string) (http.Handler, error) {
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		return nil, err
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for _, url := range urls {
		members = append(members, loadview.Member{ID: url})
	}
	if err := fleet.Set(members); err != nil {
		return nil, err
	}
	return httpproxy.New(httpproxy.Config{Router: router.New(strategy, fleet, router.Options{})})
}
