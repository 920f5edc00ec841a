package precisecacheaware

import (
	"context"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/trie"
)

// fallback is the strategy that decides if no stream can be trusted or there are no token ids.
type fallback struct {
	router.Strategy
	own      bool // the caller's, which records sent prompts itself
	inserts  bool // it records its decisions in the trie of Config
	noTokens router.Reason
	distrust router.Reason
}

func newFallback(c *Config) (fallback, error) {
	f := fallback{
		Strategy: c.FallbackStrategy, own: c.FallbackStrategy != nil,
		noTokens: router.Reason("no_tokens_" + c.Fallback), distrust: router.Reason("untrusted_" + c.Fallback),
	}
	var err error
	switch {
	case f.own:
	case c.Fallback == FallbackText:
		f.inserts = true
		f.Strategy, err = cacheaware.New(cacheaware.Config{Trie: c.Trie, Rand: c.Rand, Share: c.Share})
	default:
		f.Strategy, err = leastload.New(leastload.Config{Rand: c.Rand})
	}
	return f, err
}

// reason returns the reason of all decisions about p that f makes.
func (f *fallback) reason(p *router.Prompt) router.Reason {
	switch {
	case len(p.Tokens) > 0:
		return f.distrust
	case p.Text == "":
		return router.ReasonEmpty
	}
	return f.noTokens
}

// byFallback is the result of Prepare if the fallback will decide: that of the
// fallback's own Prepare.
type byFallback struct{ prepared any }

func (f *fallback) prepare(ctx context.Context, p router.Prompt) any {
	if x, ok := f.Strategy.(router.Preparer); ok {
		return byFallback{x.Prepare(ctx, p)}
	}
	return byFallback{}
}

// pick returns f's decision. Its Memo is still f's.
func (f *fallback) pick(ctx context.Context, p router.Prompt, targets []router.Target,
	prepared any) (d router.Decision, err error) {
	if x, ok := f.Strategy.(router.Preparer); ok && prepared != nil {
		d, err = x.PickPrepared(ctx, p, targets, prepared)
	} else {
		d, err = f.Pick(ctx, p, targets)
	}
	if err == nil {
		d.Reason = f.reason(&p)
	}
	return d, err
}

func (f *fallback) explain(ctx context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	from := len(dst)
	if e, ok := f.Strategy.(router.Explainer); ok {
		dst = e.Explain(ctx, p, targets, dst)
	} else {
		dst = strategy.Candidates(&p, targets, dst)
		strategy.Sort(dst[from:], nil)
		for i := from; i < len(dst); i++ {
			if c := &dst[i]; c.Target.State == router.Ready {
				c.Score, c.Reason = math.NaN(), router.ReasonTied
			}
		}
	}
	if len(dst) > from && dst[from].Target.State == router.Ready {
		dst[from].Reason = f.reason(&p)
	}
	return dst
}

// record passes on the outcome of d. m is nil for a decision made by hand, and stage is
// the stage of o that counts for m.
func (f *fallback) record(d router.Decision, m *memo, stage router.Stage, o router.Outcome) {
	switch {
	case m != nil && m.byFallback:
		d.Memo = m.fallback
		f.Record(d, o)
	case f.own && (m == nil || stage != 0): // with its own it would count repeated stages
		d.Memo = nil
		f.Record(d, o)
	}
}

func (f *fallback) forget(id string) {
	if x, ok := f.Strategy.(router.Forgetter); ok {
		x.Forget(id)
	}
}

// learns reports whether anybody will read the trie of c.
func learns(c *Config, shared *trie.Trie) bool {
	return shared != nil || c.Index != nil || c.FallbackStrategy == nil && c.Fallback == FallbackText
}
