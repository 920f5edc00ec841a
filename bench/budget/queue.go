package main

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/strategy/leastload"
)

// queueRows measures what a waiting line adds to Route + Done while every target has a
// place: with nothing in flight, and with three requests at each target.
func queueRows(t *table, o *options) error {
	t.say("a waiting line in which nobody waits")
	for _, n := range []int{8, 64} {
		for _, standing := range []int{0, 3} {
			var mean [2]time.Duration // the least of the repetitions, without and with the line
			for rep := range 3 * o.reps {
				for with := range mean {
					d, err := unsaturated(n, standing, with == 1)
					if err != nil {
						return err
					}
					if rep == 0 || d < mean[with] {
						mean[with] = d
					}
				}
			}
			added := mean[1] - mean[0]
			t.check(fmt.Sprintf("Waiting line, %d targets, %d requests at each", n, standing), "<= 200 ns",
				added <= 200*time.Nanosecond, "%d ns added to %d ns of Route + Done", added.Nanoseconds(), mean[0].Nanoseconds())
		}
	}
	return nil
}

// unsaturated returns the mean time of Route + Done with least_load over n targets that
// have so many requests each.
func unsaturated(n, standing int, line bool) (time.Duration, error) {
	s, err := leastload.New(leastload.Config{})
	if err != nil {
		return 0, err
	}
	view, err := newView(n)
	if err != nil {
		return 0, err
	}
	var opts router.Options
	if line {
		if opts.Queue, err = admission.New(admission.Config{Requests: 100, Prefill: 1 << 20}); err != nil {
			return 0, err
		}
	}
	r := router.New(s, view, opts)
	for range n * standing {
		if _, err := r.Route(context.Background(), router.Prompt{Model: scope}); err != nil {
			return 0, err
		}
	}
	const calls = 5000
	start := time.Now()
	for range calls {
		if err := roundTrip(context.Background(), r, ""); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / calls, nil
}
