package pipeline

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Offer is a prompt and the candidates that are left for it. It and its slices
// are lent for the length of a call: who is called does not write to them and
// keeps none of them.
type Offer struct {
	Prompt router.Prompt
	// Targets are the candidates, all of them Ready, at least one, in no
	// particular order.
	Targets []router.Target
	// Cached is the leading part of the prompt that each of Targets has been sent
	// before, Length the whole prompt, both in Unit.
	Cached []int
	Length int
	Unit   router.Unit

	summary strategy.Summary
	at      []int // the index among all offered targets of each of Targets; nil: its own
	worth   []int // how much of Cached counts for the choice
}

// place returns the index of Targets[i] among all offered targets.
func (o *Offer) place(i int) int {
	if o.at == nil {
		return i
	}
	return o.at[i]
}

// Load returns the load of Targets[i] in requests: (InFlight + Queued) / (Weight /
// the smallest Weight of Targets); for an unknown one, the mean of those known.
func (o *Offer) Load(i int) float64 { return o.summary.Load(&o.Targets[i]) }

// LeastLoad returns the least known load of Targets, 0 if none is known.
func (o *Offer) LeastLoad() float64 { return o.summary.Least }

// Filter drops candidates. It is safe for concurrent use, does not block, and is
// called by Pick, which a fleet may hold a lock around, and by Explain: once for
// all targets. A panic of it goes through; the strategy stays as it was.
type Filter interface {
	// Filter sets keep[i] to false to drop o.Targets[i]. All are true before.
	Filter(ctx context.Context, o *Offer, keep []bool)
}

// FilterFunc is a function as a Filter.
type FilterFunc func(ctx context.Context, o *Offer, keep []bool)

// Filter calls f.
func (f FilterFunc) Filter(ctx context.Context, o *Offer, keep []bool) { f(ctx, o, keep) }

// Scorer judges candidates. It is called as a Filter is, once for all targets, but
// by Pick only if no session decides.
type Scorer interface {
	// Score sets scores[i] to the score of o.Targets[i], from 0, its value before
	// the call, to 1. Other values count as the nearest of the two, NaN as 0.
	Score(ctx context.Context, o *Offer, scores []float64)
}

// ScorerFunc is a function as a Scorer.
type ScorerFunc func(ctx context.Context, o *Offer, scores []float64)

// Score calls f.
func (f ScorerFunc) Score(ctx context.Context, o *Offer, scores []float64) { f(ctx, o, scores) }

// Selector chooses by the scores. It is called as a Filter is, but by Pick alone,
// and not if a session decides.
type Selector interface {
	// Select returns the index of the one of o.Targets to take. scores[i] is the
	// weighted mean for o.Targets[i], 0..1, and rand a fresh random number. An
	// index out of range leaves it to the greatest score.
	Select(ctx context.Context, o *Offer, scores []float64, rand uint64) int
}

// SelectorFunc is a function as a Selector.
type SelectorFunc func(ctx context.Context, o *Offer, scores []float64, rand uint64) int

// Select calls f.
func (f SelectorFunc) Select(ctx context.Context, o *Offer, scores []float64, rand uint64) int {
	return f(ctx, o, scores, rand)
}

// Trace is a set of hooks for events inside Pick. Each may be nil. They are
// called as a Filter is, but by Pick alone.
type Trace struct {
	// BadScores reports that a scorer gave scores outside of 0..1, once a call
	// of the scorer.
	BadScores func(context.Context, BadScores)
	// NoneLeft reports that a filter left no candidate.
	NoneLeft func(context.Context, NoneLeft)
}

// BadScores is the report of Trace.BadScores.
type BadScores struct {
	Scorer string  // its name
	Target string  // ID of the first of the targets with a bad score
	Score  float64 // that score, as it was given
	Count  int     // how many targets had one
}

// NoneLeft is the report of Trace.NoneLeft.
type NoneLeft struct {
	Filter  int  // index in Config.Filters
	Dropped int  // candidates that were there before, all Ready
	Relaxed bool // the filter was passed over
}

func scoreStatic(_ context.Context, o *Offer, scores []float64) {
	greatest := 0.0
	for i := range o.Targets {
		greatest = max(greatest, strategy.Weight(&o.Targets[i]))
	}
	for i := range o.Targets {
		scores[i] = strategy.Weight(&o.Targets[i]) / greatest
	}
}

// loadScorer takes the difference from the least load, not the share of the
// greatest: one request more than none is little, a hundred more are not.
type loadScorer struct{ half float64 }

func (l loadScorer) Score(_ context.Context, o *Offer, scores []float64) {
	least := o.LeastLoad()
	for i := range scores {
		scores[i] = l.half / (l.half + max(o.Load(i)-least, 0))
	}
}

func scoreAffinity(_ context.Context, o *Offer, scores []float64) {
	if o.Length == 0 {
		return
	}
	for i, n := range o.worth {
		scores[i] = float64(n) / float64(o.Length)
	}
}
