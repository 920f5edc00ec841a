package loadview_test

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/vllmtest"
)

// Choose is what a Router calls. The choice is counted before anybody else chooses.
func ExampleView_Choose() {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	ctx := context.Background()
	p := router.Prompt{Text: "Why is the sky blue?"}
	_, flight, err := view.Choose(ctx, func(offered []router.Target) (router.Decision, error) {
		return first{}.Pick(ctx, p, offered)
	})
	if err != nil {
		panic(err)
	}
	load := func() {
		for _, s := range view.Snapshot() {
			fmt.Println(s.Target.ID, s.Target.Load.InFlight, "in flight,", s.Target.Load.Prefill, "tokens to prefill")
		}
	}
	load()
	flight.Done(router.Outcome{Stage: router.Finished, Status: 200})
	load()
	// Output:
	// vllm-1 1 in flight, 5 tokens to prefill
	// vllm-2 0 in flight, 0 tokens to prefill
	// vllm-1 0 in flight, 0 tokens to prefill
	// vllm-2 0 in flight, 0 tokens to prefill
}

// To take a replica out: let it drain until nothing is in flight there, then
// leave it out of the next Set. Strategies are notified through Trace.Forget.
func ExampleView_SetDraining() {
	view, err := loadview.New(loadview.Config{Trace: loadview.Trace{
		Left:   func(id string, inFlight int) { fmt.Println(id, "left with", inFlight, "in flight") },
		Forget: func(id string) { fmt.Println("forget", id) }, // the strategies' Forget
	}})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	if err := view.SetDraining("vllm-1", true); err != nil {
		panic(err)
	}
	l, err := router.New(first{}, view, router.Options{}).Route(context.Background(), router.Prompt{Text: "hello"})
	if err != nil {
		panic(err)
	}
	fmt.Println("new requests go to", l.Decision().Target.ID)
	l.Done(router.Outcome{Status: 200})
	if view.Snapshot()[0].Target.Load.InFlight == 0 {
		if err := view.Set([]loadview.Member{{ID: "vllm-2"}}); err != nil {
			panic(err)
		}
	}
	// Output:
	// new requests go to vllm-2
	// vllm-1 left with 0 in flight
	// forget vllm-1
}

// Run reads the engines' metrics pages, so that the queues which other gateways
// made are seen too.
func ExampleView_Run() {
	engine := vllmtest.NewServer(vllmtest.Config{})
	defer engine.Close()
	view, err := loadview.New(loadview.Config{Scrape: loadview.Scrape{Interval: 10 * time.Millisecond}})
	if err != nil {
		panic(err)
	}
	err = view.Set([]loadview.Member{{ID: "vllm-1", Metrics: engine.MetricsURL(), Health: engine.URL + "/health"}})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- view.Run(ctx) }()

	e, ok := view.Engine("vllm-1")
	for ; !ok; e, ok = view.Engine("vllm-1") {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(e.Dialect, e.Running, "running,", e.Waiting, "waiting")
	stop()
	fmt.Println(<-ended)
	// Output:
	// vllm 0 running, 0 waiting
	// context canceled
}

// A gateway with another source for the queues says what it knows by itself.
func ExampleView_SetQueued() {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}, {ID: "vllm-3"}}); err != nil {
		panic(err)
	}
	for id, n := range map[string]int{"vllm-1": 6, "vllm-2": 2} {
		if err := view.SetQueued(id, n); err != nil {
			panic(err)
		}
	}
	for _, s := range view.Snapshot() {
		fmt.Println(s.Target.ID, s.Target.Load.Queued, s.QueuedKnown) // vllm-3: the others' mean
	}
	fmt.Println(view.SetQueued("vllm-4", 1))
	// Output:
	// vllm-1 6 true
	// vllm-2 2 true
	// vllm-3 4 false
	// loadview: no such member: SetQueued of "vllm-4"
}
