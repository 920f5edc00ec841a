// Package pick holds what the strategies share: how a weight and a load are
// read, how a tie is broken fairly, and how candidates are listed.
//
// Nothing here allocates but [NoTarget] and [Candidates], nothing keeps a slice,
// and no result depends on the order in which targets are offered: sums are
// taken in fixed point, and ties go by the targets' IDs and one random number.
// Targets with equal IDs are taken for one replica named twice; of such twins
// the first that is as good as any is used.
//
// A strategy's Pick goes like this:
//
//	s := pick.Scan(targets)
//	if s.Ready == 0 {
//		return router.Decision{}, pick.NoTarget(targets)
//	}
//	tie := pick.Tie{Seed: rand()} // one draw for each Pick, whatever it finds
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
//	return pick.Decision(p, &targets[tie.Best()], router.ReasonLeastLoad), nil
package pick

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/warmroute/router"
)

// Rand returns f, or the global source of math/rand/v2 where f is nil.
func Rand(f func() uint64) func() uint64 {
	if f == nil {
		return rand.Uint64
	}
	return f
}

// Weights beyond these bounds count as the nearest of them, so that no quotient
// of two is infinite or 0.
const minWeight, maxWeight = 1e-100, 1e100

// Weight returns t's capacity relative to the others, from 1e-100 to 1e100: 1
// where Weight is 0, negative, NaN or infinite.
func Weight(t *router.Target) float64 {
	if t.Weight > 0 && t.Weight <= math.MaxFloat64 {
		return min(max(t.Weight, minWeight), maxWeight)
	}
	return 1
}

// maxRequests bounds what one target's counters may say, so that sums of them
// stay exact.
const maxRequests = 1 << 40

// Requests returns how many requests t has in flight and queued, 0 where its
// load is unknown. Negative counters count as 0.
func Requests(t *router.Target) float64 {
	if !t.Load.Known {
		return 0
	}
	return float64(min(max(t.Load.InFlight, 0), maxRequests)) + float64(min(max(t.Load.Queued, 0), maxRequests))
}

// Summary is what one look over the offered targets tells about the Ready ones.
// The loads are those of [Summary.Load].
type Summary struct {
	// Ready is the number of Ready targets, Known how many of them have a known
	// load.
	Ready, Known int
	// Only is the index of the last Ready target, the only one where Ready is 1;
	// -1 where there is none.
	Only int
	// MinWeight is the smallest Weight of a Ready target; 1 where there is none.
	MinWeight float64
	// Least, Most and Mean are taken over the Ready targets whose load is known;
	// 0 where there is none.
	Least, Most, Mean float64
}

// Scan looks over targets.
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
	s.Least = math.Inf(1)
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready || !t.Load.Known {
			continue
		}
		l := s.Load(t)
		s.Known++
		s.Least = min(s.Least, l)
		s.Most = max(s.Most, l)
		sum.Add(l)
	}
	if s.Known == 0 {
		s.Least = 0
		return s
	}
	// The bounds make the mean of equal loads exactly that load, which rounding
	// in the sum would not.
	s.Mean = min(max(sum.Float()/float64(s.Known), s.Least), s.Most)
	return s
}

// Load returns (InFlight + Queued) / (Weight / the smallest Ready Weight), in
// requests. A target of unknown load counts at the mean of the known ones; where
// none is known, all loads are 0.
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

// Overloaded reports whether t carries more than slack requests and more than
// factor times beyond the least load: load > Least + slack and
// load > factor x Least. A target of unknown load never is.
func (s *Summary) Overloaded(t *router.Target, slack, factor float64) bool {
	if !t.Load.Known {
		return false
	}
	l := s.Load(t)
	return l > s.Least+slack && l > factor*s.Least
}

// Sum adds up numbers from 0 to 2^41 in steps of 2^-20, so that the order of the
// summands does not matter. The zero Sum is 0.
type Sum struct{ hi, lo uint64 }

const sumStep = 1 << 20

// Add adds x, which is taken for 0 or 2^41 where it is outside.
func (s *Sum) Add(x float64) {
	if !(x > 0) {
		return
	}
	q := uint64(math.Round(min(x, 2*maxRequests) * sumStep))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, q, 0)
	s.hi += carry
}

// Float returns the sum.
func (s *Sum) Float() float64 {
	return (math.Ldexp(float64(s.hi), 64) + float64(s.lo)) / sumStep
}

// NoTarget returns the *router.NoTargetError for targets, none of which is
// Ready.
func NoTarget(targets []router.Target) error {
	e := &router.NoTargetError{Offered: len(targets)}
	for i := range targets {
		if targets[i].State != router.Ready {
			e.NotReady++
		}
	}
	return e
}

// Decision returns the decision to send p to t where nothing was matched.
func Decision(p router.Prompt, t *router.Target, reason router.Reason) router.Decision {
	n, u := p.Length()
	return router.Decision{Prompt: p, Target: *t, Length: n, Unit: u, Reason: reason}
}
