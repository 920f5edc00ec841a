// Package scorer gives a strategy the interface of plug-in schedulers: filter, score
// each endpoint 0 to 1, receive the choice and its end. The scheduler weighs, chooses,
// counts and sends; there is no Router, no Fleet and no Lease.
package scorer

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/warmroute/router"
)

// Config configures a Plugin.
type Config struct {
	// Strategy gives the scores. It is required, and a router.Explainer, as all of
	// the library's own strategies are.
	Strategy router.Strategy
	// MaxAge is for a scheduler that does not always learn how a request ended: an
	// older Choice is settled as Canceled at the next call of the Plugin. Its
	// prompt stays known, and it is no longer counted as in flight. The scheduler's
	// own bound of a request's time is a good value. 0: a Choice counts until
	// Ended, for ever if that is never called.
	MaxAge time.Duration
}

// Plugin scores endpoints by a strategy. It is safe for concurrent use.
type Plugin struct {
	strategy  router.Strategy
	explainer router.Explainer
	maxAge    time.Duration

	mu   sync.Mutex
	open list.List // of *Choice, the oldest first; used if there is a MaxAge
}

// New returns a Plugin. Its error is a *router.ConfigError.
func New(cfg Config) (*Plugin, error) {
	e, ok := cfg.Strategy.(router.Explainer)
	if !ok {
		return nil, &router.ConfigError{Field: "Strategy", Value: fmt.Sprintf("%T", cfg.Strategy),
			Allowed: "a router.Explainer"}
	}
	if cfg.MaxAge < 0 {
		return nil, &router.ConfigError{Field: "MaxAge", Value: cfg.MaxAge, Allowed: "0 or more"}
	}
	return &Plugin{strategy: cfg.Strategy, explainer: e, maxAge: cfg.MaxAge}, nil
}

// Filter returns the endpoints that may be chosen, in a slice of its own.
func (p *Plugin) Filter(endpoints []router.Target) []router.Target {
	var ready []router.Target
	for _, e := range endpoints {
		if e.State == router.Ready {
			ready = append(ready, e)
		}
	}
	return ready
}

// Score returns the score of each endpoint, 0 to 1, in their order; that of one
// that is not Ready is 0. The loads are the scheduler's own. It changes nothing.
// If the strategy gives no scores but an order (round_robin), equal steps
// from 1 down stand for it.
func (p *Plugin) Score(ctx context.Context, pr router.Prompt, endpoints []router.Target) []float64 {
	p.expire()
	at := make(map[string]int, len(endpoints))
	for i, e := range endpoints {
		at[e.ID] = i
	}
	scores := make([]float64, len(endpoints))
	for rank, c := range p.explainer.Explain(ctx, pr, endpoints, make([]router.Candidate, 0, len(endpoints))) {
		switch {
		case c.Target.State != router.Ready:
		case math.IsNaN(c.Score):
			scores[at[c.Target.ID]] = 1 - float64(rank)/float64(len(endpoints))
		default:
			scores[at[c.Target.ID]] = min(max(c.Score, 0), 1)
		}
	}
	return scores
}

// Choice is one request on the endpoint that the scheduler chose for it. It is
// safe for concurrent use.
type Choice struct {
	plugin   *Plugin
	decision router.Decision
	mu       sync.Mutex
	progress router.Progress

	begin time.Time
	open  *list.Element // in Plugin.open; nil: it is not there. Plugin.mu guards it.
}

// Chosen records that the request is sent to endpoint, even if other scorers
// voted for it. From now on the strategy predicts the prompt to be cached
// there. Call it once, before the next request is scored; keep the Choice with
// the request.
func (p *Plugin) Chosen(ctx context.Context, pr router.Prompt, endpoint router.Target) *Choice {
	p.expire()
	endpoint.State = router.Ready // it is chosen
	// Asked to choose among this one alone, the strategy gives the decision the memo
	// that it wants to find again in Record.
	d, err := p.strategy.Pick(ctx, pr, []router.Target{endpoint})
	if err != nil {
		d = router.Decision{Target: endpoint}
		d.Length, d.Unit = pr.Length()
	}
	d.Prompt, d.Reason = pr, router.ReasonAssigned
	c := &Choice{plugin: p, decision: d, begin: time.Now()}
	c.record(router.Outcome{Stage: router.Sent})
	if p.maxAge > 0 {
		p.mu.Lock()
		c.open = p.open.PushBack(c)
		p.mu.Unlock()
	}
	return c
}

// expire ends the choices that are older than MaxAge.
func (p *Plugin) expire() {
	if p.maxAge == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.open.Front(); e != nil && time.Since(e.Value.(*Choice).begin) >= p.maxAge; e = p.open.Front() {
		c := p.open.Remove(e).(*Choice)
		c.open = nil
		c.record(router.Outcome{Stage: router.Canceled})
	}
}

// FirstToken records that the reply began. It may be left out.
func (c *Choice) FirstToken() { c.record(router.Outcome{Stage: router.FirstToken}) }

// Ended records how the request ended: o.Stage is Finished, Failed or Canceled, and
// any other is taken for Failed. Calls after the first do nothing.
func (c *Choice) Ended(o router.Outcome) {
	if !o.Stage.Final() {
		o.Stage = router.Failed
	}
	c.plugin.mu.Lock()
	if c.open != nil {
		c.plugin.open.Remove(c.open)
		c.open = nil
	}
	c.plugin.mu.Unlock()
	c.record(o)
}

// record passes o on if it moves the request on.
func (c *Choice) record(o router.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.progress.Next(o) != 0 {
		c.plugin.strategy.Record(c.decision, o)
	}
}

// Gone reports that the endpoint with this ID, or its cache, is gone.
func (p *Plugin) Gone(id string) {
	if f, ok := p.strategy.(router.Forgetter); ok {
		f.Forget(id)
	}
}
