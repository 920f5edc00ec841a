package router_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
)

// Do chooses, counts, fails over and settles. Here the first replica that is
// tried is overloaded, and the other one answers.
func ExampleRouter_Do() {
	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})

	p := router.Prompt{Model: "llama", Text: "Why is the sky blue?"}
	err = r.Do(context.Background(), p, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
		// Send the request to l.Decision().Target here, with ctx.
		if l.Attempt() == 1 {
			fmt.Println("attempt 1: 503")
			return router.Outcome{Status: http.StatusServiceUnavailable}, nil
		}
		l.FirstToken() // when the first bytes of the reply's body come
		fmt.Println("attempt 2: 200")
		return router.Outcome{Status: http.StatusOK}, nil
	})
	fmt.Println("error:", err)
	// Output:
	// attempt 1: 503
	// attempt 2: 200
	// error: <nil>
}

// Route and Retry are for gateways that keep the loop to themselves.
func ExampleRouter_Route() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, view, router.Options{})
	send := func(l *router.Lease) router.Outcome { // stands for an HTTP request
		if l.Attempt() == 1 {
			return router.Outcome{Err: fmt.Errorf("connection refused")}
		}
		return router.Outcome{Status: http.StatusOK}
	}

	ctx := context.Background()
	l, err := r.Route(ctx, router.Prompt{Model: "llama", Text: "Why is the sky blue?"})
	for err == nil {
		o := send(l)
		if o.Err == nil && o.Status < 400 {
			l.Done(o)
			break
		}
		fmt.Println("attempt", l.Attempt(), "failed:", o.Err)
		l, err = l.Retry(ctx, o) // settles the lease, and gives one on another target
	}
	if err != nil {
		fmt.Println("no reply:", err)
		return
	}
	fmt.Println("attempt", l.Attempt(), "finished")
	for _, s := range view.Snapshot() {
		fmt.Println(s.Target.ID, "has", s.Target.Load.InFlight, "in flight")
	}
	// Output:
	// attempt 1 failed: connection refused
	// attempt 2 finished
	// vllm-1 has 0 in flight
	// vllm-2 has 0 in flight
}

// Explain reports, for each replica, the part predicted to be cached and why
// the next request would go there or not. It changes nothing.
func ExampleRouter_Explain() {
	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		panic(err)
	}
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}, {ID: "vllm-3"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, view, router.Options{})
	ctx := context.Background()

	// One turn of a conversation was served by vllm-2, and vllm-3 is to be
	// replaced.
	turn := "You are helpful. Why is the sky blue?"
	l, err := r.Assign(ctx, router.Prompt{Model: "llama", Text: turn}, "vllm-2")
	if err != nil {
		panic(err)
	}
	l.Done(router.Outcome{Status: http.StatusOK})
	if err := view.SetDraining("vllm-3", true); err != nil {
		panic(err)
	}

	candidates, err := r.Explain(ctx, router.Prompt{Model: "llama", Text: turn + " And at night?"})
	if err != nil {
		panic(err)
	}
	for _, c := range candidates {
		fmt.Printf("%s: %d of %d %v cached, %d in flight, score %.2f: %s\n",
			c.Target.ID, c.Cached, c.Length, c.Unit, c.Target.Load.InFlight, c.Score, c.Reason)
	}
	// Output:
	// vllm-2: 37 of 51 bytes cached, 0 in flight, score 0.73: warm
	// vllm-1: 0 of 51 bytes cached, 0 in flight, score 0.00: colder
	// vllm-3: 0 of 51 bytes cached, 0 in flight, score 0.00: draining
}

// The prefill of a prompt that another target decodes: only the decode's times are the
// request's.
func ExampleAside() {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "prefill"}}); err != nil {
		panic(err)
	}
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	r := router.New(strategy, view, router.Options{Trace: router.Trace{
		Timed: func(context.Context, router.Timing) { fmt.Println("a request's time") },
	}})
	l, err := r.Route(router.Aside(context.Background()), router.Prompt{Text: "Why is the sky blue?"})
	if err != nil {
		panic(err)
	}
	l.Done(router.Outcome{Status: 200})
	fmt.Println("no time of a request's")
	// Output: no time of a request's
}
