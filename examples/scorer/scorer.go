// Package scorer is a Warmroute strategy in the shape that plug-in schedulers
// want: filter, score each endpoint 0 to 1, be told which one was chosen and how
// it ended. The scheduler weighs, chooses, counts and sends; there is no Router,
// no Fleet and no Lease.
package scorer

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/warmroute/router"
)

// Plugin scores endpoints by a strategy. It is safe for concurrent use.
type Plugin struct {
	strategy  router.Strategy
	explainer router.Explainer
}

// New returns a Plugin that scores by s, which is a router.Explainer as all of
// the library's own strategies are.
func New(s router.Strategy) (*Plugin, error) {
	e, ok := s.(router.Explainer)
	if !ok {
		return nil, errors.New("scorer: the strategy is no router.Explainer, so it cannot tell what the others are worth")
	}
	return &Plugin{strategy: s, explainer: e}, nil
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
// Where the strategy gives no scores but an order (round_robin), equal steps
// from 1 down stand for it.
func (p *Plugin) Score(ctx context.Context, pr router.Prompt, endpoints []router.Target) []float64 {
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
	stage    router.Stage
}

// Chosen tells that the request goes to endpoint, whoever was in favour of it,
// and from now on the strategy counts on the prompt being cached there. Call it
// once, before the next request is scored; keep the Choice with the request.
func (p *Plugin) Chosen(ctx context.Context, pr router.Prompt, endpoint router.Target) *Choice {
	endpoint.State = router.Ready // it is chosen
	// Asked to choose among this one alone, the strategy gives the decision what
	// it wants to find again in Record.
	d, err := p.strategy.Pick(ctx, pr, []router.Target{endpoint})
	if err != nil {
		d = router.Decision{Target: endpoint}
		d.Length, d.Unit = pr.Length()
	}
	d.Prompt, d.Reason = pr, router.ReasonAssigned
	c := &Choice{plugin: p, decision: d}
	c.record(router.Outcome{Stage: router.Sent})
	return c
}

// FirstToken tells that the reply began. It may be left out.
func (c *Choice) FirstToken() { c.record(router.Outcome{Stage: router.FirstToken}) }

// Ended tells how the request ended: o.Stage is Finished, Failed or Canceled, and
// any other is taken for Failed. Calls after the first do nothing.
func (c *Choice) Ended(o router.Outcome) {
	if !o.Stage.Final() {
		o.Stage = router.Failed
	}
	c.record(o)
}

// record passes o on where it is further than what came before.
func (c *Choice) record(o router.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Stage <= c.stage || c.stage.Final() {
		return
	}
	c.stage = o.Stage
	c.plugin.strategy.Record(c.decision, o)
}

// Gone tells that the endpoint with this ID, or its cache, is no more.
func (p *Plugin) Gone(id string) {
	if f, ok := p.strategy.(router.Forgetter); ok {
		f.Forget(id)
	}
}
