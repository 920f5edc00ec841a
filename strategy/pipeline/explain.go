package pipeline

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Detail is a candidate with the parts of its score.
type Detail struct {
	router.Candidate
	// Parts are the scorers' scores, the built-in ones first; nil for a target
	// that is not Ready or was filtered. Those that are off are not in it.
	Parts []Part
}

// Part is one scorer's part: Score, after clamping, counts Weight times.
type Part struct {
	Name          string
	Weight, Score float64
}

// Explain lists the targets: the session's, if it is to be taken, then by score; then
// those that were filtered, then those that are not Ready. The score is the weighted
// mean of the scorers', 1 for the session's target if it is to be taken, and NaN for
// all if there is no scorer. Of equal ones, a lower rank has a lower score. A
// Selector is not called: with one, Pick may take another than the first.
func (s *Strategy) Explain(ctx context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	dst = slices.Grow(dst, len(targets))
	from := len(dst)
	for _, d := range s.Details(ctx, p, targets) {
		dst = append(dst, d.Candidate)
	}
	strategy.Sharpen(dst[from:])
	return dst
}

// Details is Explain with the parts of each score.
func (s *Strategy) Details(ctx context.Context, p router.Prompt, targets []router.Target) []Detail {
	r := &scratch{explain: true}
	s.look(ctx, r, &p, targets, nil)
	out := make([]Detail, 0, len(targets))
	o := &r.offer
	at := make([]int, len(o.Targets))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		if pa, pb := s.pinned(r, a), s.pinned(r, b); pa != pb {
			return -sign(pa)
		}
		return cmp.Or(-s.compare(r, a, b), cmp.Compare(o.Targets[a].ID, o.Targets[b].ID))
	})
	for n, i := range at {
		d := Detail{Candidate: router.Candidate{
			Target: o.Targets[i], Cached: o.Cached[i], Length: o.Length, Unit: o.Unit,
			Score: quotient(r.sums[i], s.weightsFor(r)), Reason: s.reason(r, i),
		}}
		if s.weightsFor(r) > 0 && s.pinned(r, i) {
			d.Score = 1
		}
		if n > 0 {
			d.Reason = s.passedOver(r, at[0], i)
		}
		for k, w := range s.scorers {
			if r.idle(w) {
				continue
			}
			d.Parts = append(d.Parts, Part{Name: w.Name, Weight: w.Weight, Score: r.parts[k][i]})
		}
		out = append(out, d)
	}
	slices.SortStableFunc(r.dropped, func(a, b router.Candidate) int {
		return cmp.Or(cmp.Compare(min(a.Target.State, 1), min(b.Target.State, 1)), cmp.Compare(a.Target.ID, b.Target.ID))
	})
	for _, c := range r.dropped {
		if s.weightsFor(r) == 0 && c.Target.State == router.Ready {
			c.Score = math.NaN()
		}
		out = append(out, Detail{Candidate: c})
	}
	return out
}

// passedOver says why candidate i is not the one to take.
func (s *Strategy) passedOver(r *scratch, taken, i int) router.Reason {
	switch {
	case s.pinned(r, taken) && !s.pinned(r, i):
		return ReasonNotSession
	case r.home != "" && r.offer.Targets[i].ID == r.home && s.overloaded(r, i):
		return router.ReasonOverloaded
	case s.compare(r, taken, i) == 0:
		return router.ReasonTied
	case r.sums[taken] == r.sums[i] && r.offer.worth[taken] != r.offer.worth[i]:
		return router.ReasonColder
	case r.sums[taken] == r.sums[i]:
		return router.ReasonMoreWarmed
	}
	// The scorer that took it the farthest from the one to take.
	most, name := 0.0, ""
	for k, w := range s.scorers {
		if lost := w.Weight * (r.parts[k][taken] - r.parts[k][i]); lost > most {
			most, name = lost, w.Name
		}
	}
	switch name {
	case LoadName:
		return router.ReasonBusier
	case AffinityName:
		return router.ReasonColder
	}
	return ReasonLowerScore
}
