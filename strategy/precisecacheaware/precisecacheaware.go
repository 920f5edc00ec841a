// Package precisecacheaware sends each prompt to the target that holds the
// greatest leading part of its blocks, as the engines' own events say, less what
// the target has to do.
//
// It needs Prompt.Tokens, and an index that somebody feeds with the engines'
// events (packages kvindex and kvindex/zmqsub).
package precisecacheaware

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "precise_cache_aware"

// The reasons that no other strategy gives. The first four are those of all
// decisions that a fallback made about a prompt that is not empty: why it had to,
// and which it was.
const (
	ReasonNoTokensLeastLoad  router.Reason = "no_tokens_least_load" // the prompt has no Tokens; the least loaded
	ReasonNoTokensText       router.Reason = "no_tokens_text"       // the prompt has no Tokens; by cache_aware's rules
	ReasonUntrustedLeastLoad router.Reason = "untrusted_least_load" // no Index, or no Ready target's stream is trusted; the least loaded
	ReasonUntrustedText      router.Reason = "untrusted_text"       // no Index, or no Ready target's stream is trusted; by cache_aware's rules
	// ReasonNeutral is found only in candidates that would not be taken: the
	// target's own stream is not trusted, and at the mean of the others it is not
	// the best.
	ReasonNeutral router.Reason = "untrusted"
)

// Strategy picks the Ready target of the greatest
//
//	(cached - PrefillWeight x waiting) / length - (load - least) / worth
//
// with cached what the target holds of the prompt's length tokens, load its
// (InFlight + Queued) / (Weight / the smallest Ready Weight), least the least load
// of a Ready target, and worth the greater of WorthRequests and WorthShare x least;
// waiting is its Prefill / Weight beyond the least one of a Ready target.
// A load that is unknown counts at the mean of the others. So whatever a target
// holds, it is left when it has more than worth requests beyond the least.
//
// What counts as cached:
//
//   - where the target's stream can be trusted, what the Index says: whole blocks,
//     at most all tokens but the last. A share less than HeldShare counts as
//     nothing here.
//   - for the time of PresumeFor, what was sent there, if that is more.
//   - where its stream cannot be trusted and the prompt has Text too, the share of
//     the text that it was sent before, as cache_aware has it.
//   - where it cannot be and there is no Text, the mean of what the trusted Ready
//     ones hold: it neither wins nor loses by its cache. The Decision and Explain
//     say that it holds nothing, as that is all that is known.
//
// Equal targets are told apart by what they are known to hold, where that is at
// least HeldShare; then by the fewest recorded prompts; then by anything they hold;
// then by a draw.
//
// A prompt without Tokens, and any where no Ready target's stream can be trusted,
// is left to Config.Fallback; Reason says so.
//
// A prompt is recorded when it is sent, and taken back where the request fails
// before its first token. A Strategy is safe for concurrent use.
type Strategy struct {
	cfg       Config
	cache     *textcache.Cache
	tokens    *tokencache.Cache
	learns    bool
	leastLoad *leastload.Strategy
	scratch   sync.Pool // of *room

	reports                         atomic.Bool // an engine said how much was cached
	judged, mismatched, presumption atomic.Int64
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
)

// New returns a Strategy to which nothing was sent yet. The error is a
// *router.ConfigError for each field that is not allowed, joined.
func New(c Config) (*Strategy, error) {
	given := c.Trie != nil
	c = c.WithDefaults()
	text, tokens, err := c.open()
	if err != nil {
		return nil, err
	}
	s := &Strategy{cfg: c, cache: text, tokens: tokens, learns: given || c.Index != nil || c.Fallback == FallbackText}
	if s.leastLoad, err = leastload.New(leastload.Config{Rand: c.Rand}); err != nil {
		return nil, err
	}
	s.scratch.New = func() any { return new(room) }
	return s, nil
}

// Stats is what is remembered and how right the Index was.
type Stats struct {
	trie.Stats     // of what was sent
	Presumed   int // prompts that are presumed resident
	// Judged is the number of finished requests whose target was trusted and of
	// whose cached tokens the engine told; Mismatched how many of them differ from
	// what was predicted, and MismatchedPresumed how many of those rest on a
	// presumption. As an engine that reports no cached tokens looks like one that
	// had none, a 0 is believed once any engine reported more.
	Judged, Mismatched, MismatchedPresumed int64
}

// Stats returns the size of what is remembered, and the mismatches so far.
func (s *Strategy) Stats() Stats {
	return Stats{
		Stats: s.cfg.Trie.Stats(), Presumed: s.tokens.Presumed(),
		Judged: s.judged.Load(), Mismatched: s.mismatched.Load(), MismatchedPresumed: s.presumption.Load(),
	}
}

// Pick chooses a target. It draws one random number a call where a target is
// Ready. It allocates the Memo alone, but for prompts with a scope that is not
// their Model and for those without Text, whose key in the trie is made each time.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	r := s.scratch.Get().(*room)
	defer s.scratch.Put(r)
	v := s.look(&p, targets, r)
	if v.Ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	if v.mode == byLoad {
		return s.pickByLoad(ctx, &v, p, targets)
	}
	i := s.best(&v, targets, s.cfg.Rand())
	m := &memo{exact: v.mode == byTokens && v.exact.Index[i] >= 0}
	m.presumed = m.exact && v.cached(i) > v.exact.Index[i]
	if s.learns {
		m.text = *textcache.NewMemo(v.textKey(&p))
	}
	n, u := v.length(&p)
	return router.Decision{
		Prompt: p, Target: targets[i], Cached: v.cached(i), Length: n, Unit: u,
		Reason: v.reason(s, i), Memo: m,
	}, nil
}

func (s *Strategy) pickByLoad(ctx context.Context, v *view, p router.Prompt, targets []router.Target) (router.Decision, error) {
	d, err := s.leastLoad.Pick(ctx, p, targets)
	if err != nil {
		return d, err
	}
	m := new(memo)
	if s.learns {
		m.text = *textcache.NewMemo(v.textKey(&p))
	}
	d.Reason, d.Memo = v.reason(s, 0), m
	return d, nil
}

func (s *Strategy) best(v *view, targets []router.Target, seed uint64) int {
	tie := strategy.Tie{Seed: seed}
	least := rank{cost: math.Inf(1)}
	for i := range targets {
		if s.group(v, targets, i) > 0 {
			continue
		}
		r := s.rank(v, targets, i)
		switch c := r.compare(&least); {
		case c < 0:
			least = r
			tie.Better(i)
		case c == 0:
			tie.Equal(i, targets)
		}
	}
	return tie.Best()
}

// memo is what a Decision carries from Pick to Record.
type memo struct {
	text               textcache.Memo
	held               *tokencache.Presumption
	sent, token, ended bool
	exact              bool // Cached is the Index's word
	presumed           bool // or what is presumed beyond it
}

// Record learns what the target was sent, presumes it resident there for a while,
// and takes back what came to nothing; for decisions made by hand the presumption
// just ends with its time.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, _ := d.Memo.(*memo)
	if m == nil {
		if s.learns {
			s.cache.Record(&d, nil, &o)
		}
		if o.Stage == router.Sent {
			s.tokens.Sent(&d.Prompt, d.Target.ID)
		}
		return
	}
	if s.learns {
		s.cache.Record(&d, &m.text, &o)
	}
	switch {
	case o.Stage == router.Sent && !m.sent:
		m.sent = true
		m.held = s.tokens.Sent(&d.Prompt, d.Target.ID)
	case !m.sent || m.ended:
	case o.Stage == router.FirstToken:
		m.token = true
	case o.Stage.Final():
		m.ended = true
		if o.Stage == router.Failed && !m.token && o.OutputTokens <= 0 && o.Reply == "" {
			s.tokens.Drop(m.held)
		} else {
			s.tokens.Ended(&d.Prompt, d.Target.ID, m.held)
		}
		m.held = nil
		s.judge(&d, m, &o)
	}
}

// judge compares what was predicted with what the engine reported.
func (s *Strategy) judge(d *router.Decision, m *memo, o *router.Outcome) {
	if o.CachedTokens > 0 {
		s.reports.Store(true)
	}
	if !m.exact || o.Stage != router.Finished || o.PromptTokens <= 0 || !s.reports.Load() {
		return
	}
	s.judged.Add(1)
	if o.CachedTokens == d.Cached {
		return
	}
	s.mismatched.Add(1)
	if m.presumed {
		s.presumption.Add(1)
	}
	if s.cfg.Mismatch != nil {
		s.cfg.Mismatch(d.Target.ID, d.Cached, o.CachedTokens)
	}
}

// Forget forgets what the target was sent and what is presumed of it. The Index is
// left alone: its own stream tells it of restarts, several strategies may read
// it, and what has been learned since a restart would go too. Whoever knows better
// calls Index.Reset or Index.Forget.
func (s *Strategy) Forget(id string) {
	s.cache.Forget(id)
	s.tokens.Forget(id)
}
