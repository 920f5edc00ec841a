package debugui

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
)

// candidate is one target as it was judged.
type candidate struct {
	Target   string   `json:"target"`
	State    string   `json:"state"`
	Cached   int      `json:"cached"`
	Length   int      `json:"length"`
	Unit     string   `json:"unit"`
	Score    *float64 `json:"score"` // null: none
	Reason   string   `json:"reason"`
	Known    bool     `json:"known"` // the load is
	InFlight int      `json:"inFlight"`
	Queued   int      `json:"queued"`
	Prefill  int      `json:"prefill"`
	Chosen   bool     `json:"chosen"`
}

// candidates copies the first most of cs, and the one of chosen if it is a
// later one.
func candidates(cs []router.Candidate, chosen string, most int) []candidate {
	out := make([]candidate, 0, min(len(cs), most+1))
	for i := range cs {
		c := &cs[i]
		is := chosen != "" && c.Target.ID == chosen
		if i >= most && !is {
			continue
		}
		k := candidate{
			Target: shown(c.Target.ID), State: c.Target.State.String(), Cached: c.Cached, Length: c.Length,
			Unit:   c.Unit.String(),
			Reason: observe.Reason(c.Reason), Known: c.Target.Load.Known, InFlight: c.Target.Load.InFlight,
			Queued: c.Target.Load.Queued, Prefill: c.Target.Load.Prefill, Chosen: is,
		}
		if !math.IsNaN(c.Score) && !math.IsInf(c.Score, 0) {
			score := c.Score // cs is used again
			k.Score = &score
		}
		out = append(out, k)
	}
	return out
}

// memo wraps a strategy's memo with the data that the page needs.
type memo struct {
	inner any
	cands []candidate
	of    int // candidates that there were
}

// explained is a strategy that notes its candidates while the page is open.
type explained struct {
	router.Strategy
	explain router.Explainer
	page    *Page
	room    atomic.Pointer[[]router.Candidate] // the slice of the last call, to be used again
}

// Strategy wraps s so that the page gets the candidates of its decisions. Make
// the router with the returned strategy, which decides and learns as s does. If s
// is not a [router.Explainer], Strategy returns s. [Unwrap] returns s.
//
// Its data on a decision is in Decision.Memo, which identifies the decision of an
// outcome. Without the wrapper, only a strategy's own Memo that is a pointer does.
func (p *Page) Strategy(s router.Strategy) router.Strategy {
	e, ok := s.(router.Explainer)
	if !ok || p.cfg.ExplainRate < 0 {
		return s
	}
	return &explained{Strategy: s, explain: e, page: p}
}

// Unwrap returns the strategy that was passed to Page.Strategy, or s if s is not
// one of its results.
func Unwrap(s router.Strategy) router.Strategy {
	if e, ok := s.(*explained); ok {
		return e.Strategy
	}
	return s
}

func (e *explained) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return e.PickPrepared(ctx, p, targets, nil)
}

func (e *explained) PickPrepared(
	ctx context.Context, p router.Prompt, targets []router.Target, prepared any,
) (router.Decision, error) {
	pick := e.Strategy.Pick
	if x, ok := e.Strategy.(router.Preparer); ok {
		pick = func(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
			return x.PickPrepared(ctx, p, targets, prepared)
		}
	}
	now := time.Now()
	if !e.page.open(now) {
		return pick(ctx, p, targets)
	}
	var cs []router.Candidate
	if e.page.sample.take(now) {
		cs = e.look(ctx, p, targets)
	}
	d, err := pick(ctx, p, targets)
	if err != nil {
		return d, err
	}
	// Sent is not recorded yet, so Explain still describes this decision.
	if cs == nil && observe.Spill(d.Reason) && e.page.spills.take(now) {
		cs = e.look(ctx, p, targets)
	}
	d.Memo = &memo{inner: d.Memo, cands: candidates(cs, d.Target.ID, maxCandidates), of: len(cs)}
	if cs != nil {
		clear(cs) // they hold the caller's own values
		cs = cs[:0]
		e.room.Store(&cs)
	}
	return d, nil
}

// Prepare is the strategy's own, if it has one.
func (e *explained) Prepare(ctx context.Context, p router.Prompt) any {
	if x, ok := e.Strategy.(router.Preparer); ok {
		return x.Prepare(ctx, p)
	}
	return nil
}

func (e *explained) look(ctx context.Context, p router.Prompt, targets []router.Target) []router.Candidate {
	var room []router.Candidate
	if r := e.room.Swap(nil); r != nil {
		room = *r
	}
	return e.explain.Explain(ctx, p, targets, room)
}

func (e *explained) Record(d router.Decision, o router.Outcome) {
	if m, ok := d.Memo.(*memo); ok {
		d.Memo = m.inner
	}
	e.Strategy.Record(d, o)
}

// Explain is the strategy's own.
func (e *explained) Explain(
	ctx context.Context, p router.Prompt, targets []router.Target, dst []router.Candidate,
) []router.Candidate {
	return e.explain.Explain(ctx, p, targets, dst)
}

// Forget is the strategy's own, if it has one.
func (e *explained) Forget(id string) {
	if f, ok := e.Strategy.(router.Forgetter); ok {
		f.Forget(id)
	}
}
