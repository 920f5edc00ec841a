package pipeline_test

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// Two routes over one fleet that share their sessions: a session stays at the
// target at which it was served, though another replica has less to do.
func ExampleNewSessions() {
	sessions, err := pipeline.NewSessions(10_000)
	if err != nil {
		panic(err)
	}
	s, err := pipeline.New(pipeline.Config{Sessions: sessions, SessionTTL: time.Minute})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "vllm-1", Load: router.Load{Known: true}},
		{ID: "vllm-2", Load: router.Load{Known: true, InFlight: 1}},
	}
	p := router.Prompt{Session: "chat-7", Text: "hello"}
	d, err := s.Pick(context.Background(), p, targets)
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Target.ID, d.Reason)
	s.Record(d, router.Outcome{Stage: router.Sent})
	s.Record(d, router.Outcome{Stage: router.Finished, Status: 200})

	targets[0].Load.InFlight = 2
	d, err = s.Pick(context.Background(), p, targets)
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Target.ID, d.Reason, sessions.Len())
	// Output:
	// vllm-1 cold
	// vllm-1 session 1
}

// A selector chooses by the scores in its own way: here among the two best, by the
// random number that it is given.
func ExampleSelectorFunc() {
	twoBest := pipeline.SelectorFunc(func(_ context.Context, _ *pipeline.Offer, scores []float64, rand uint64) int {
		best, second := 0, -1
		for i := 1; i < len(scores); i++ {
			switch {
			case scores[i] > scores[best]:
				best, second = i, best
			case second < 0 || scores[i] > scores[second]:
				second = i
			}
		}
		if second >= 0 && rand%2 == 1 {
			return second
		}
		return best
	})
	s, err := pipeline.New(pipeline.Config{Selector: twoBest, Rand: func() uint64 { return 1 }})
	if err != nil {
		panic(err)
	}
	d, err := s.Pick(context.Background(), router.Prompt{Text: "hello"}, []router.Target{
		{ID: "busy", Load: router.Load{Known: true, InFlight: 9}},
		{ID: "idle", Load: router.Load{Known: true}},
		{ID: "one", Load: router.Load{Known: true, InFlight: 1}},
	})
	fmt.Println(d.Target.ID, err)
	// Output: one <nil>
}
