package pipeline

import (
	"context"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
)

// scratch is the memory and the result of one look at the targets.
type scratch struct {
	offer Offer // the input of filters and scorers
	key   textcache.Key
	found textcache.Targets // the data of all offered targets

	targets []router.Target // the candidates, if some were dropped
	cached  []int           // of each of targets
	at      []int           // the index in found of each of targets
	worth   []int           // of each of offer.Targets
	keep    []bool
	explain bool
	dropped []router.Candidate // by filters, if explain is set

	score []float64   // of one scorer
	parts [][]float64 // of each scorer, if explain is set
	sums  []float64   // weighted
	mean  []float64

	home string // ID of the target that the session is bound to
	pin  bool   // and a candidate has it that is not overloaded
}

// look fills r and reports whether there is a candidate. trace may be nil.
func (s *Strategy) look(ctx context.Context, r *scratch, p *router.Prompt, targets []router.Target, trace *Trace) bool {
	r.key = r.found.KeyOf(p)
	s.cache.Look(&r.key, targets, &r.found)
	for i, n := range r.found.Cached {
		r.found.Cached[i] = r.key.Units(n)
	}
	r.offer = Offer{
		Prompt: *p, Targets: targets[:len(targets):len(targets)], Cached: r.found.Cached[:len(targets):len(targets)],
		Length: r.key.Units(r.key.Size()), Unit: r.key.Unit(),
	}
	r.dropped, r.parts, r.home, r.pin = r.dropped[:0], r.parts[:0], "", false
	s.filter(ctx, r, trace)
	if len(r.offer.Targets) == 0 {
		return false
	}
	s.session(r, p)
	if r.pin && !r.explain { // nothing else decides
		return true
	}
	o := &r.offer
	r.worth = s.cache.Worth(&textcache.Prompt{
		Key: &r.key, Targets: &r.found, At: o.at, Held: o.Cached, Size: o.Length,
	}, o.Targets, r.worth)
	o.worth = r.worth
	s.rate(ctx, r, trace)
	return true
}

// filter drops the targets that are not Ready and those that the filters drop.
// The least load and the greatest weight are those of the rest.
func (s *Strategy) filter(ctx context.Context, r *scratch, trace *Trace) {
	o := &r.offer
	r.keep = resize(r.keep, len(o.Targets))
	left := 0
	for i := range o.Targets {
		r.keep[i] = o.Targets[i].State == router.Ready
		if r.keep[i] {
			left++
		}
	}
	r.compact(left)
	o.summary = strategy.Scan(o.Targets)
	for n, f := range s.cfg.Filters {
		before := len(o.Targets)
		if before == 0 {
			return
		}
		keep := resize(r.keep, before)
		for i := range keep {
			keep[i] = true
		}
		f.Filter(ctx, o, keep)
		left := 0
		for _, k := range keep {
			if k {
				left++
			}
		}
		if left == 0 {
			if trace != nil && trace.NoneLeft != nil {
				trace.NoneLeft(ctx, NoneLeft{Filter: n, Dropped: before, Relaxed: s.cfg.RelaxFilters})
			}
			if s.cfg.RelaxFilters {
				continue
			}
		}
		if left < before {
			r.compact(left)
			o.summary = strategy.Scan(o.Targets)
		}
	}
}

// compact leaves the candidates that are to be kept. It never writes to the
// offered slice.
func (r *scratch) compact(left int) {
	o := &r.offer
	if left == len(o.Targets) {
		return
	}
	ts, cs, at := slices.Grow(r.targets[:0], left), slices.Grow(r.cached[:0], left), slices.Grow(r.at[:0], left)
	for i := range o.Targets { // o.Targets may be r.targets: writing stays behind reading
		switch {
		case r.keep[i]:
			ts, cs, at = append(ts, o.Targets[i]), append(cs, o.Cached[i]), append(at, o.place(i))
		case r.explain:
			c := router.Candidate{Target: o.Targets[i], Cached: o.Cached[i], Length: o.Length, Unit: o.Unit,
				Reason: ReasonFiltered}
			if c.Target.State != router.Ready {
				c.Reason = router.ReasonOf(c.Target.State)
			}
			r.dropped = append(r.dropped, c)
		}
	}
	r.targets, r.cached, r.at = ts, cs, at
	o.Targets, o.Cached, o.at = ts[:left:left], cs[:left:left], at[:left:left]
}

// rate sums up the scores of each candidate.
func (s *Strategy) rate(ctx context.Context, r *scratch, trace *Trace) {
	n := len(r.offer.Targets)
	r.sums = resize(r.sums, n)
	clear(r.sums)
	for k := range s.scorers {
		w := &s.scorers[k]
		score := resize(r.score, n)
		r.score = score
		clear(score)
		if r.idle(*w) {
			if r.explain {
				r.parts = append(r.parts, slices.Clone(score))
			}
			continue
		}
		w.Scorer.Score(ctx, &r.offer, score)
		bad := BadScores{Scorer: w.Name}
		for i, x := range score {
			if !(x >= 0 && x <= 1) {
				if bad.Count == 0 {
					bad.Target, bad.Score = r.offer.Targets[i].ID, x
				}
				bad.Count++
				score[i] = clamp(x)
			}
			r.sums[i] += w.Weight * score[i]
		}
		if bad.Count > 0 && trace != nil && trace.BadScores != nil {
			trace.BadScores(ctx, bad)
		}
		if r.explain {
			r.parts = append(r.parts, slices.Clone(score))
		}
	}
}

func clamp(x float64) float64 {
	if x > 0 { // not NaN
		return min(x, 1)
	}
	return 0
}

// session finds the target of the prompt's session, and whether the session may stay.
func (s *Strategy) session(r *scratch, p *router.Prompt) {
	k, ok := keyOf(p)
	if !ok || s.cfg.SessionTTL < 0 {
		return
	}
	if r.home, ok = s.home(k); !ok {
		return
	}
	for i := range r.offer.Targets {
		if r.offer.Targets[i].ID == r.home && !s.overloaded(r, i) {
			r.pin = true
			return
		}
	}
}

func (s *Strategy) pinned(r *scratch, i int) bool {
	return r.pin && r.offer.Targets[i].ID == r.home && !s.overloaded(r, i)
}

func (s *Strategy) overloaded(r *scratch, i int) bool {
	return r.offer.summary.Overloaded(&r.offer.Targets[i], s.cfg.OverloadSlack, s.cfg.OverloadFactor)
}

// means returns the weighted mean of each candidate's scores.
func (r *scratch) means(weights float64) []float64 {
	r.mean = resize(r.mean, len(r.sums))
	for i, sum := range r.sums {
		r.mean[i] = quotient(sum, weights)
	}
	return r.mean
}

// resize returns a slice of length n, s itself if it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
