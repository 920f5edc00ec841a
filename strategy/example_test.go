package strategy_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// fleet has two idle targets, one of them twice as large, and a busy one.
var fleet = []router.Target{
	{ID: "busy", Load: router.Load{Known: true, InFlight: 5, Queued: 1}},
	{ID: "idle", Load: router.Load{Known: true}},
	{ID: "large", Weight: 2, Load: router.Load{Known: true}},
	{ID: "leaving", State: router.Draining},
}

// Example is a Pick: it chooses the target that has the least to do.
func Example() {
	rand := strategy.Rand(nil)
	pick := func(p router.Prompt, targets []router.Target) (router.Decision, error) {
		s := strategy.Scan(targets)
		if s.Ready == 0 {
			return router.Decision{}, strategy.NoTarget(targets)
		}
		tie, least := strategy.Tie{Seed: rand()}, math.Inf(1)
		for i := range targets {
			t := &targets[i]
			if t.State != router.Ready {
				continue
			}
			switch l := s.Load(t); {
			case l < least:
				least = l
				tie.Better(i)
			case l == least:
				tie.Equal(i, targets)
			}
		}
		return strategy.NewDecision(p, &targets[tie.Best()], s.OnlyOr(router.ReasonLeastLoad)), nil
	}
	taken := make(map[string]bool)
	for range 100 {
		d, err := pick(router.Prompt{Text: "Hello."}, fleet)
		if err != nil {
			fmt.Println(err)
		}
		taken[d.Target.ID] = true
	}
	fmt.Println(taken)
	_, err := pick(router.Prompt{}, fleet[3:])
	fmt.Println(errors.Is(err, router.ErrNoTarget))
	// Output:
	// map[idle:true large:true]
	// true
}

// A target of weight 2 carries twice as many requests at the same load. One of unknown load counts at the mean.
func ExampleScan() {
	s := strategy.Scan(fleet)
	fmt.Println(s.Ready, s.Least, s.Mean)
	large := fleet[2]
	large.Load.InFlight = 4
	fmt.Println(strategy.Weight(&large), strategy.Requests(&large), s.Load(&large))
	fmt.Println(s.Load(&router.Target{ID: "unknown"}))
	// Output:
	// 3 0 2
	// 2 4 2
	// 2
}

// Loads add up to the same sum in every order, which floats do not.
func ExampleSum() {
	var forth, back strategy.Sum
	loads := []float64{0.1, 0.2, 0.3}
	for i := range loads {
		forth.Add(loads[i])
		back.Add(loads[len(loads)-1-i])
	}
	fmt.Println(0.1+0.2+0.3 == 0.3+0.2+0.1, forth.Float() == back.Float())
	// Output: true true
}

// A target of twice the weight is drawn twice as often.
func ExampleLottery() {
	draws := make(map[string]int)
	for seed := range uint64(100_000) {
		l := strategy.Lottery{Seed: seed}
		l.Show(1, &fleet[1])
		l.Show(2, &fleet[2])
		draws[fleet[l.First()].ID]++
	}
	fmt.Printf("%.1f", float64(draws["large"])/float64(draws["idle"]))
	// Output: 2.0
}

func ExampleCandidates() {
	s := strategy.Scan(fleet)
	cs := strategy.Candidates(&router.Prompt{Text: "Hello."}, fleet, nil)
	strategy.Sort(cs, func(a, b *router.Candidate) int { return cmp.Compare(s.Load(&a.Target), s.Load(&b.Target)) })
	for i := range cs[:s.Ready] {
		cs[i].Score = s.LoadScore(&cs[i].Target)
	}
	strategy.Sharpen(cs) // nothing else is as high as the first
	for _, c := range cs {
		fmt.Printf("%.2f %s %q\n", c.Score, c.Target.ID, c.Reason)
	}
	// Output:
	// 1.00 idle ""
	// 0.57 large ""
	// 0.14 busy ""
	// 0.00 leaving "draining"
}

// The reason says whether the prompt went where the most of it is cached.
func ExampleByCached() {
	const ready, size = 3, 1000
	fmt.Println(strategy.ByCached(ready, size, 800, 800))
	fmt.Println(strategy.ByCached(ready, size, 100, 800))
	fmt.Println(strategy.ByCached(ready, size, 0, 0))
	// Output:
	// warm
	// spill
	// cold
}
