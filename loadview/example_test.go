package loadview_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// first picks the first Ready target; a strategy of the library goes in its
// place.
type first struct{}

func (first) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	for _, t := range targets {
		if t.State == router.Ready {
			return router.Decision{Prompt: p, Target: t, Length: len(p.Text)}, nil
		}
	}
	return router.Decision{}, &router.NoTargetError{Offered: len(targets), NotReady: len(targets)}
}

func (first) Record(router.Decision, router.Outcome) {}

func Example() {
	view, err := loadview.New(loadview.Config{
		CoolAfter: 1,
		Trace: loadview.Trace{StateChanged: func(id string, from, to router.State) {
			fmt.Println(id, "is", to)
		}},
	})
	if err != nil {
		panic(err)
	}
	err = view.Set([]loadview.Member{
		{ID: "vllm-1", Ref: "http://10.0.0.1:8000"},
		{ID: "vllm-2", Ref: "http://10.0.0.2:8000", Weight: 2},
	})
	if err != nil {
		panic(err)
	}

	r := router.New(first{}, view, router.Options{Backoff: -1})
	err = r.Do(context.Background(), router.Prompt{Text: "Why is the sky blue?"},
		func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			t := l.Decision().Target
			fmt.Println("sent to", t.Ref)
			if t.ID == "vllm-1" {
				return router.Outcome{}, errors.New("connection refused")
			}
			for _, s := range view.Snapshot() {
				fmt.Println(s.Target.ID, s.Target.State, s.Target.Load.InFlight, "in flight")
			}
			return router.Outcome{Status: 200}, nil
		})
	fmt.Println("error:", err)
	// Output:
	// sent to http://10.0.0.1:8000
	// vllm-1 is cooling
	// sent to http://10.0.0.2:8000
	// vllm-1 cooling 0 in flight
	// vllm-2 ready 1 in flight
	// error: <nil>
}
