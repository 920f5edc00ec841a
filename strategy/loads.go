package strategy

import (
	"math"

	"github.com/warmroute/router"
)

// Weights beyond these bounds count as the nearest of them, so that no quotient of two is infinite or 0.
const minWeight, maxWeight = 1e-100, 1e100

// Weight returns t's capacity relative to the others, from 1e-100 to 1e100. It is 1 if t.Weight is 0, negative, NaN or
// infinite.
func Weight(t *router.Target) float64 {
	if t.Weight > 0 && t.Weight <= math.MaxFloat64 {
		return min(max(t.Weight, minWeight), maxWeight)
	}
	return 1
}

// maxRequests bounds each of a target's counters, so that sums of them stay exact.
const maxRequests int64 = 1 << 40

// Requests returns how many requests t has in flight and queued, 0 if its load is unknown. Negative
// counters count as 0, and each counts up to 2^40.
func Requests(t *router.Target) float64 {
	if !t.Load.Known {
		return 0
	}
	return requests(t.Load.InFlight) + requests(t.Load.Queued)
}

func requests(n int) float64 { return float64(min(max(int64(n), 0), maxRequests)) }

// Summary is the result of one pass over the offered targets. It is about those that are Ready. Loads are those of
// [Summary.Load].
type Summary struct {
	// Ready is the number of Ready targets, Known how many of them have a known load.
	Ready, Known int
	// Only is the index of the last Ready target, so of the only one if Ready is 1. It is -1 if there is none.
	Only int
	// MinWeight is the smallest Weight of a Ready target, 1 if there is none.
	MinWeight float64
	// Least and Mean are taken over the Ready targets of known load. They are 0 if there is none.
	Least, Mean float64
}

// Scan returns the summary of targets.
func Scan(targets []router.Target) Summary {
	s := Summary{Only: -1, MinWeight: math.Inf(1)}
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		s.Ready++
		s.Only = i
		s.MinWeight = min(s.MinWeight, Weight(t))
	}
	if s.Ready == 0 {
		s.MinWeight = 1
		return s
	}
	var sum Sum
	most := 0.0
	s.Least = math.Inf(1)
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready || !t.Load.Known {
			continue
		}
		l := s.Load(t)
		s.Known++
		s.Least = min(s.Least, l)
		most = max(most, l)
		sum.Add(l)
	}
	if s.Known == 0 {
		s.Least = 0
		return s
	}
	// The bounds make the mean of equal loads exactly that load, which rounding in the sum would not.
	s.Mean = min(max(sum.Float()/float64(s.Known), s.Least), most)
	return s
}

// Load returns (InFlight + Queued) / (Weight / MinWeight), in requests. A target of unknown load counts at the mean of
// the known ones; if none is known, all loads are 0.
func (s *Summary) Load(t *router.Target) float64 {
	if !t.Load.Known {
		return s.Mean
	}
	n, w := Requests(t), Weight(t)
	if w == s.MinWeight {
		return n
	}
	return n / (w / s.MinWeight)
}

// Overloaded reports whether t's load is both more than Least + slack requests and more than factor
// times Least. A target of unknown load never is.
func (s *Summary) Overloaded(t *router.Target, slack, factor float64) bool {
	if !t.Load.Known {
		return false
	}
	l := s.Load(t)
	return l > s.Least+slack && l > factor*s.Least
}

// LoadScore returns a Candidate's Score for load alone: 1 at the least known load, and 1/(1+d) for a load d requests
// beyond it.
func (s *Summary) LoadScore(t *router.Target) float64 {
	return 1 / (1 + max(s.Load(t)-s.Least, 0))
}

// OnlyOr returns router.ReasonOnly if a single target is Ready, otherwise reason.
func (s *Summary) OnlyOr(reason router.Reason) router.Reason {
	if s.Ready == 1 {
		return router.ReasonOnly
	}
	return reason
}
