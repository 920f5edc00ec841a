package router_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

// gateway sends each prompt to the replica that can answer it soonest.
type gateway struct {
	router *router.Router
	client *http.Client
}

// newGateway returns a gateway over the replicas with these URLs.
func newGateway(urls ...string) (*gateway, error) {
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		return nil, err
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for _, u := range urls {
		members = append(members, loadview.Member{ID: u})
	}
	if err := fleet.Set(members); err != nil {
		return nil, err
	}
	return &gateway{router.New(strategy, fleet, router.Options{}), http.DefaultClient}, nil
}

// ask sends the text to one replica, and to another if that one fails, and returns
// the status of the reply and the replica that gave it.
func (g *gateway) ask(ctx context.Context, text string) (status int, replica string, err error) {
	p := router.Prompt{Model: "llama", Text: text}
	err = g.router.Do(ctx, p, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
		replica = l.Decision().Target.ID
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, replica, strings.NewReader(text))
		if err != nil {
			return router.Outcome{NotSent: true}, err
		}
		resp, err := g.client.Do(req)
		if err != nil {
			return router.Outcome{}, err
		}
		defer resp.Body.Close()
		status = resp.StatusCode
		return router.Outcome{Status: status}, nil
	})
	return status, replica, err
}

// A whole program: a gateway over two replicas. The second turn of a conversation
// goes to the replica that answered the first one, as long as that one is well.
func Example() {
	var replicas []*httptest.Server
	for range 2 {
		replicas = append(replicas, httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	g, err := newGateway(replicas[0].URL, replicas[1].URL)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	turn := "user: Why is the sky blue?"
	status, one, err := g.ask(ctx, turn)
	fmt.Println("turn 1:", status, err)

	turn += " assistant: Because of Rayleigh. user: And at night?"
	status, two, err := g.ask(ctx, turn)
	fmt.Println("turn 2:", status, err, "at the same replica:", two == one)

	for _, r := range replicas {
		if r.URL == two {
			r.Close() // it crashes
		} else {
			defer r.Close()
		}
	}
	status, three, err := g.ask(ctx, turn)
	fmt.Println("again: ", status, err, "at the same replica:", three == one)
	// Output:
	// turn 1: 200 <nil>
	// turn 2: 200 <nil> at the same replica: true
	// again:  200 <nil> at the same replica: false
}
