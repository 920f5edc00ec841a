package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
)

// A gateway makes these at its start: a strategy, a fleet, and the router that
// joins them.
func ExampleNew() {
	strategy, err := leastload.New(leastload.Config{})
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
	r := router.New(strategy, fleet, router.Options{
		Attempts: 2,                     // one more replica where the first fails
		Backoff:  10 * time.Millisecond, // before that
	})
	l, err := r.Route(context.Background(), router.Prompt{Model: "llama", Text: "Why is the sky blue?"})
	if err != nil {
		panic(err)
	}
	defer l.Done(router.Outcome{Status: http.StatusOK})
	fmt.Println(l.Decision().Reason, "attempt", l.Attempt())
	// Output: least_load attempt 1
}

// A lease is one request in flight. Whatever settles it first counts, here the
// end of the context, and later calls do nothing.
func ExampleLease() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: "vllm-1"}}); err != nil {
		panic(err)
	}
	settled := make(chan router.Stage, 1)
	r := router.New(strategy, view, router.Options{Trace: router.Trace{
		Done: func(_ context.Context, _ router.Decision, o router.Outcome) { settled <- o.Stage },
	}})

	ctx, cancel := context.WithCancel(context.Background()) // the request's own
	l, err := r.Route(ctx, router.Prompt{Text: "Why is the sky blue?"})
	if err != nil {
		panic(err)
	}
	fmt.Println("in flight:", view.Snapshot()[0].Target.Load.InFlight)
	cancel() // the client has gone away
	fmt.Println(<-settled)
	l.Done(router.Outcome{Status: http.StatusOK}) // too late
	fmt.Println("in flight:", view.Snapshot()[0].Target.Load.InFlight)
	// Output:
	// in flight: 1
	// canceled
	// in flight: 0
}

// If no replica may be picked, the error has their number and, if it is known,
// the time until one is back: a gateway answers 503 with Retry-After.
func ExampleNoTargetError() {
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
	for _, id := range []string{"vllm-1", "vllm-2"} {
		if err := view.SetUnhealthy(id, true); err != nil {
			panic(err)
		}
	}
	_, err = router.New(strategy, view, router.Options{}).Route(context.Background(), router.Prompt{Text: "hello"})
	fmt.Println(errors.Is(err, router.ErrNoTarget))
	var none *router.NoTargetError
	if errors.As(err, &none) {
		fmt.Println(none.Offered, "targets,", none.NotReady, "not ready")
	}
	// Output:
	// true
	// 2 targets, 2 not ready
}

// The hooks of a Trace fit any library for metrics or logs.
func ExampleTrace() {
	strategy, err := leastload.New(leastload.Config{})
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
	r := router.New(strategy, fleet, router.Options{Backoff: -1, Trace: router.Trace{
		Routed: func(_ context.Context, i router.RouteInfo) {
			fmt.Println("attempt", i.Attempt, "because of", i.Decision.Reason)
		},
		Retry: func(_ context.Context, i router.RetryInfo) { fmt.Println("again, after", i.Outcome.Status) },
		Done: func(_ context.Context, _ router.Decision, o router.Outcome) {
			fmt.Println(o.Stage, o.Status)
		},
	}})
	err = r.Do(context.Background(), router.Prompt{Text: "hello"},
		func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			if l.Attempt() == 1 {
				return router.Outcome{Status: http.StatusBadGateway}, nil
			}
			return router.Outcome{Status: http.StatusOK}, nil
		})
	fmt.Println(err)
	// Output:
	// attempt 1 because of least_load
	// failed 502
	// again, after 502
	// attempt 2 because of only_target
	// finished 200
	// <nil>
}

// What is sent again elsewhere, and what is not: an engine that refuses a request
// for its content would do so anywhere.
func ExampleOutcome_Retryable() {
	for _, status := range []int{200, 400, 429, 503} {
		o := router.Outcome{Stage: router.Failed, Status: status}
		if status < 400 {
			o.Stage = router.Finished
		}
		fmt.Println(status, o.Retryable())
	}
	fmt.Println("no reply", router.Outcome{Stage: router.Failed}.Retryable())
	// Output:
	// 200 false
	// 400 false
	// 429 true
	// 503 true
	// no reply true
}

// Prompts of different scopes share no cache, whatever their text is.
func ExamplePrompt_Scope() {
	base := router.Prompt{Model: "llama", Text: "hello"}
	adapted := router.Prompt{Model: "llama", Adapter: "sql", Text: "hello"}
	fmt.Println(base.Scope(), base.Scope() == adapted.Scope())
	fmt.Println(base.Length())
	// Output:
	// llama false
	// 5 bytes
}

// A strategy of one's own says with ReasonOf why a target was passed over.
func ExampleReasonOf() {
	for _, s := range []router.State{router.Unhealthy, router.Cooling, router.Tripped, router.Draining} {
		fmt.Println(s, router.ReasonOf(s))
	}
	// Output:
	// unhealthy unhealthy
	// cooling cooling
	// tripped tripped
	// draining draining
}

// counting is a strategy that counts the requests that came to something. Each
// stage counts once, whatever Record is called with.
type counting struct {
	router.Strategy
	sent, failed atomic.Int64
}

func (s *counting) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return router.Decision{Prompt: p, Target: targets[0], Memo: new(router.Progress)}, nil
}

func (s *counting) Record(d router.Decision, o router.Outcome) {
	p, ok := d.Memo.(*router.Progress)
	if !ok {
		return
	}
	switch stage := p.Next(o); {
	case stage == router.Sent:
		s.sent.Add(1)
	case stage.Final() && p.TakenBack():
		s.failed.Add(1)
	}
}

// A strategy of one's own keeps a Progress in its Memo.
func ExampleProgress() {
	var s counting
	d, _ := s.Pick(context.Background(), router.Prompt{Text: "hello"}, []router.Target{{ID: "vllm-1"}})
	for _, o := range []router.Outcome{
		{Stage: router.FirstToken},             // not sent yet: ignored
		{Stage: router.Sent},                   // counts
		{Stage: router.Failed, Status: 503},    // before the first token
		{Stage: router.Finished, Reply: "Hi."}, // it has ended already
	} {
		s.Record(d, o)
	}
	fmt.Println(s.sent.Load(), "sent,", s.failed.Load(), "failed")
	// Output: 1 sent, 1 failed
}
