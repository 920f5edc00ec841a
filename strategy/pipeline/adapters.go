package pipeline

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
)

// adapterScorer prefers targets that have the prompt's adapter loaded. It does not count for a prompt without one.
type adapterScorer struct{ slots *adapters.Slots }

func (a adapterScorer) Score(_ context.Context, o *Offer, scores []float64) {
	a.slots.Costs(o.Prompt.Adapter, o.Targets, scores[:0])
	load := a.slots.Stats().LoadTokens
	for i, c := range scores {
		scores[i] = load / (load + c)
	}
}

// work returns the tokens that Targets[i] has to prefill until the first token of the prompt.
func (o *Offer) work(i int) float64 {
	n := o.Length - o.Cached[i]
	if o.Unit != router.Tokens {
		n /= 4
	}
	return float64(max(o.Targets[i].Load.Prefill, 0) + n)
}

// recordAdapter follows the prompt's adapter, if it has one.
func (s *Strategy) recordAdapter(m *memo, d *router.Decision, stage router.Stage) {
	switch {
	case d.Prompt.Adapter == "":
	case stage == router.Sent:
		m.adapter = s.cfg.Adapters.Sent(d.Target.ID, d.Prompt.Adapter, m.work)
	case stage == router.FirstToken:
		m.adapter.FirstToken()
	case stage.Final():
		m.adapter.End(stage)
	}
}

// idle reports whether w does not count for the prompt: it has no adapter, and w is the scorer of adapters.
func (r *scratch) idle(w Weighted) bool {
	_, ok := w.Scorer.(adapterScorer)
	return ok && r.offer.Prompt.Adapter == ""
}

// weightsFor returns the sum of the weights that count for the prompt.
func (s *Strategy) weightsFor(r *scratch) float64 {
	if s.adapter == 0 || r.offer.Prompt.Adapter != "" {
		return s.weights
	}
	return s.weights - s.adapter
}
