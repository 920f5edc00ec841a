package admission_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

func ExampleNew() {
	queue, err := admission.New(admission.Config{
		Requests: 64, // at each target
		MaxWait:  10 * time.Second,
		Class: func(ctx context.Context, p router.Prompt) admission.Class {
			return admission.Class{Tenant: p.Account}
		},
	})
	if err != nil {
		panic(err)
	}
	r := newRouter(queue)
	lease, err := r.Route(context.Background(), router.Prompt{Text: "Hello"})
	if err != nil {
		panic(err)
	}
	lease.Done(router.Outcome{Status: 200})
	fmt.Println(lease.Decision().Target.ID, queue.Stats().Waiting)
	// Output: a 0
}

// newRouter returns a Router with the queue over one target.
func newRouter(q *admission.Queue) *router.Router {
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "a"}}); err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	return router.New(strategy, fleet, router.Options{Queue: q})
}

// A request that was shed says why, and when to come again.
func ExampleQueue() {
	q, err := admission.New(admission.Config{Requests: 1, MaxWait: time.Millisecond})
	if err != nil {
		panic(err)
	}
	r := newRouter(q)
	first, err := r.Route(context.Background(), router.Prompt{})
	if err != nil {
		panic(err)
	}
	defer first.Done(router.Outcome{})
	_, err = r.Route(context.Background(), router.Prompt{})
	var none *router.NoTargetError
	if errors.As(err, &none) {
		fmt.Println(none.Status(), none.Shed, none.Full)
	}
	fmt.Println(admission.Causes())
	// Output:
	// 429 too_long 1
	// [served ended canceled too_long too_many too_large]
}

// A simulation has a clock of its own, and requests that do not block.
func ExampleNewStepped() {
	now := time.Unix(0, 0)
	line, err := admission.NewStepped(admission.Config{MaxWait: time.Minute}, func() time.Time { return now })
	if err != nil {
		panic(err)
	}
	full := true
	w := &router.Waiting{Peek: func() int { return 0 }}
	w.Try = func() (router.Again, bool) { return router.Again{}, full }
	line.Enter(context.Background(), w, func(err error) { fmt.Println("ended:", err) })
	fmt.Println(line.Step().Sub(now), line.Stats().Waiting)
	now, full = now.Add(time.Second), false
	fmt.Println(line.Step().IsZero(), line.Stats().Waiting)
	// Output:
	// 100ms 1
	// ended: <nil>
	// true 0
}
