package loadview_test

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// Two endpoints over three replicas, of which they share one. A request through
// one of them counts for both.
func ExampleView_Share() {
	chat, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	embed := chat.Share()
	for _, err := range []error{
		chat.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}),
		embed.Set([]loadview.Member{{ID: "vllm-2", Weight: 3}, {ID: "vllm-3"}}),
	} {
		if err != nil {
			panic(err)
		}
	}
	_, flight, err := chat.Choose(context.Background(), func(offered []router.Target) (router.Decision, error) {
		return router.Decision{Target: offered[1]}, nil // vllm-2
	})
	if err != nil {
		panic(err)
	}
	defer flight.Done(router.Outcome{Status: 200})
	for _, s := range embed.Snapshot() {
		fmt.Println(s.Target.ID, "weight", s.Target.Weight, "in flight", s.Target.Load.InFlight)
	}
	// Output:
	// vllm-2 weight 3 in flight 1
	// vllm-3 weight 0 in flight 0
}

// Replicas come and go one by one, as an informer reports them.
func ExampleView_Put() {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	stop := view.OnForget(func(id string) { fmt.Println("forget", id) }) // router.New does so by itself
	defer stop()
	for _, id := range []string{"pod-a", "pod-b"} {
		if err := view.Put(loadview.Member{ID: id}); err != nil {
			panic(err)
		}
	}
	fmt.Println("was there:", view.Remove("pod-a"))
	for _, s := range view.Snapshot() {
		fmt.Println(s.Target.ID)
	}
	// Output:
	// forget pod-a
	// was there: true
	// pod-b
}

// Waiting for a target while a fleet scales from zero.
func ExampleView_Changed() {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	go func() {
		if err := view.Put(loadview.Member{ID: "pod-a"}); err != nil {
			panic(err)
		}
	}()
	for {
		changed := view.Changed() // before the try, so that no change is missed
		d, flight, err := view.Choose(context.Background(), func(offered []router.Target) (router.Decision, error) {
			return first{}.Pick(context.Background(), router.Prompt{}, offered)
		})
		if err == nil {
			fmt.Println(d.Target.ID)
			flight.Done(router.Outcome{Status: 200})
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			panic(err)
		}
	}
	// Output: pod-a
}

// The defaults, of which each field can be changed.
func ExampleConfig_WithDefaults() {
	cfg := loadview.Config{
		Probe:  loadview.Probe{Interval: time.Second},
		Scrape: loadview.Scrape{Interval: 2 * time.Second},
	}.WithDefaults()
	fmt.Println("cool down after", cfg.CoolAfter, "failures for", cfg.CoolBase, "to", cfg.CoolMax)
	fmt.Println("probe every", cfg.Probe.Interval, "within", cfg.Probe.Timeout)
	fmt.Println("a page is stale after", cfg.Scrape.StaleAfter)
	// Output:
	// cool down after 3 failures for 5s to 5m0s
	// probe every 1s within 2s
	// a page is stale after 6s
}
