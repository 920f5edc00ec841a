package main

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/rivals"
	"github.com/warmroute/router/loadview"
)

var begin = time.Unix(1_700_000_000, 0)

// fleet returns the fleet of a policy.
func (s *site) fleet(policy string) (router.Fleet, error) {
	n := s.scene.engines
	var members []loadview.Member
	r := &ruled{now: func() time.Duration { return s.now }, out: make([]bool, n)}
	for i := range n {
		id := fmt.Sprint("engine-", i)
		members = append(members, loadview.Member{ID: id, Ref: i})
		r.targets = append(r.targets, router.Target{ID: id, Ref: i, Load: router.Load{Known: true}})
	}
	switch policy {
	case "warmroute", lineKnown, lineLearned:
		v, err := loadview.New(loadview.Config{Now: s.time, Rand: s.rand.Uint64})
		if err != nil {
			return nil, err
		}
		return v, v.Set(members)
	case "envoy_outliers":
		r.rule = rivals.NewOutliers(n)
	case "smg_breakers":
		r.rule = rivals.NewBreakers(n)
	case "llmd_saturation":
		r.rule = rivals.NewSaturation(n, func(i int) int {
			waiting := 0
			for k, p := range s.engine[i] {
				if k == 0 || p != s.engine[i][0] {
					waiting += p.depth()
				}
			}
			return waiting
		})
	case "none":
		r.rule = rivals.NoHealth{}
	default:
		return nil, fmt.Errorf("scenes: no policy %q", policy)
	}
	return r, nil
}

// ruled is a router.Fleet with the health of a rival. It is used by one goroutine.
type ruled struct {
	rule    rivals.Health
	now     func() time.Duration
	targets []router.Target
	out     []bool
}

// Choose is that of router.Fleet.
func (r *ruled) Choose(_ context.Context, pick func([]router.Target) (router.Decision, error)) (router.Decision,
	router.Flight, error) {
	r.rule.Offer(r.now(), r.out)
	for i := range r.targets {
		r.targets[i].State = router.Ready
		if r.out[i] {
			r.targets[i].State = router.Cooling
		}
	}
	d, err := pick(r.targets)
	if err != nil {
		return d, nil, err
	}
	i := d.Target.Ref.(int)
	r.targets[i].Load.InFlight++
	return d, &ruledFlight{fleet: r, at: i}, nil
}

type ruledFlight struct {
	fleet *ruled
	at    int
	done  bool
}

// FirstToken is that of router.Flight.
func (f *ruledFlight) FirstToken() {}

// Done is that of router.Flight.
func (f *ruledFlight) Done(o router.Outcome) {
	if !f.done {
		f.done = true
		f.fleet.targets[f.at].Load.InFlight--
		f.fleet.rule.Ended(f.fleet.now(), f.at, o.Status)
	}
}

var _ router.Fleet = (*ruled)(nil)
