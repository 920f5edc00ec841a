// Package strategy is a kit for router.Strategy: it reads weights and loads, adds them up, breaks ties and lists
// candidates as the laws of package routertest demand.
//
// A Pick by least load reads like this:
//
//	s := strategy.Scan(targets)
//	if s.Ready == 0 {
//		return router.Decision{}, strategy.NoTarget(targets)
//	}
//	tie := strategy.Tie{Seed: rand()} // one random number for each Pick
//	least := math.Inf(1)
//	for i := range targets {
//		t := &targets[i]
//		if t.State != router.Ready {
//			continue
//		}
//		switch l := s.Load(t); {
//		case l < least:
//			least = l
//			tie.Better(i)
//		case l == least:
//			tie.Equal(i, targets)
//		}
//	}
//	return strategy.NewDecision(p, &targets[tie.Best()], s.OnlyOr(router.ReasonLeastLoad)), nil
//
// No result depends on the order in which targets are offered: sums are taken in fixed point, and
// ties go by the targets' IDs and one random number. Targets with equal IDs count as one replica
// that is named twice; of such twins the first that is as good as any is taken.
//
// Only [NoTarget] and [Candidates] allocate, and nothing keeps a slice.
//
// The strategies of this library are the packages below this one. A strategy can leave a part of its decisions to
// another: it calls the other's Pick, keeps its Memo inside its own, and hands both on to the other's Record.
package strategy

import (
	"math/rand/v2"

	"github.com/warmroute/router"
)

// Rand returns f, or the global source of math/rand/v2 if f is nil.
func Rand(f func() uint64) func() uint64 {
	if f == nil {
		return rand.Uint64
	}
	return f
}

// NoTarget returns the *router.NoTargetError for targets of which none is Ready.
func NoTarget(targets []router.Target) error {
	e := &router.NoTargetError{Offered: len(targets)}
	for i := range targets {
		if targets[i].State != router.Ready {
			e.NotReady++
		}
	}
	return e
}

// ByCached returns the reason for a choice by the cached part of a prompt of the given size, if n of it count on the
// target chosen and at most most of it on one of the ready targets, all in one unit.
func ByCached(ready, size, n, most int) router.Reason {
	switch {
	case ready == 1:
		return router.ReasonOnly
	case size == 0:
		return router.ReasonEmpty
	case most == 0:
		return router.ReasonCold
	case n < most:
		return router.ReasonSpill
	}
	return router.ReasonWarm
}

// NewDecision returns the decision to send p to t, with nothing cached there.
func NewDecision(p router.Prompt, t *router.Target, reason router.Reason) router.Decision {
	n, u := p.Length()
	return router.Decision{Prompt: p, Target: *t, Length: n, Unit: u, Reason: reason}
}
