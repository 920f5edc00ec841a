// Package precisecacheaware sends each prompt to the target that holds the
// greatest leading part of its blocks, by the engines' own events, less the
// target's load.
//
// It needs Prompt.Tokens, and an index that the caller feeds with the engines'
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
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "precise_cache_aware"

// The reasons that no other strategy gives. The first four are those of all
// decisions that the fallback made about a prompt that is not empty: why it had to,
// and which it is. With Config.FallbackStrategy they are "no_tokens_" and
// "untrusted_", with its name.
const (
	ReasonNoTokensLeastLoad router.Reason = "no_tokens_least_load" // the prompt has no Tokens; the least loaded
	ReasonNoTokensText      router.Reason = "no_tokens_text"       // the prompt has no Tokens; by cache_aware's rules
	// no Index, or no Ready target's stream is trusted; the least loaded
	ReasonUntrustedLeastLoad router.Reason = "untrusted_least_load"
	// no Index, or no Ready target's stream is trusted; by cache_aware's rules
	ReasonUntrustedText router.Reason = "untrusted_text"
	// ReasonNeutral is found only in candidates that would not be taken: the
	// target's own stream is not trusted, and at the mean of the others it is not
	// the best.
	ReasonNeutral router.Reason = "untrusted"
)

// Strategy picks the Ready target of the greatest
//
//	(cached - PrefillWeight x waiting) / length - (load - least) / worth
//
// with cached the number of the prompt's length tokens that the target holds, load
// its (InFlight + Queued) / (Weight / the smallest Ready Weight), least the least
// load of a Ready target, and worth the greater of WorthRequests and WorthShare x
// least; waiting is its Prefill / Weight beyond the least one of a Ready target.
// An unknown load counts at the mean of the others. So a target with any cached
// part is left when it has more than worth requests beyond the least.
//
// Cached counts as:
//
//   - if the target's stream can be trusted, the number of the Index: whole
//     blocks, at most all tokens but the last. A share less than HeldShare counts
//     as nothing here.
//   - for the time of PresumeFor, the prompt sent there, if that is more.
//   - if its stream cannot be trusted and the prompt has Text too, the share of
//     the text that it was sent before, as in cache_aware.
//   - if it cannot be and there is no Text, the mean of the trusted Ready ones:
//     it neither wins nor loses by its cache. The Decision and Explain report 0
//     cached tokens for it, because none are known.
//
// If a target has more than 8 recorded prompts and half again as many as the one with the fewest, a beginning that 32
// or more recorded prompts share counts on it only as much as on the others, as in least_work: a common system prompt
// is computed once on each target.
//
// Ties are decided by the known cached part, if it is at least HeldShare; then by
// the fewest recorded prompts; then by any cached part; then by a draw.
//
// The fallback decides for a prompt without Tokens, and for any if no Ready
// target's stream can be trusted; Reason names it.
//
// A prompt is recorded when it is sent, and removed if the request fails before
// its first token. A Strategy is safe for concurrent use.
type Strategy struct {
	cfg      Config
	cache    *textcache.Cache
	tokens   *tokencache.Cache
	fallback fallback
	learns   bool      // the trie is read
	scratch  sync.Pool // of *scratch

	reports                         atomic.Bool // an engine said how much was cached
	judged, mismatched, presumption atomic.Int64
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
	_ router.Preparer  = (*Strategy)(nil)
)

// New returns a Strategy to which nothing was sent yet. The error is a
// *router.ConfigError for each field that is not allowed, joined.
func New(c Config) (*Strategy, error) {
	shared := c.Trie
	c = c.WithDefaults()
	text, tokens, err := c.open()
	if err != nil {
		return nil, err
	}
	s := &Strategy{cfg: c, cache: text, tokens: tokens, learns: learns(&c, shared)}
	if s.fallback, err = newFallback(&c); err != nil {
		return nil, err
	}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Stats is the size of the record and the accuracy of the Index.
type Stats struct {
	trie.Stats     // of sent prompts
	Presumed   int // prompts that are presumed resident
	// Judged is the number of finished requests at a trusted target for which the
	// engine reported the cached tokens. Mismatched is how many of them differ
	// from the prediction, and MismatchedPresumed how many of those rest on a
	// presumption. An engine that reports no cached tokens looks like one that had
	// none, so a 0 counts only once any engine reported more.
	Judged, Mismatched, MismatchedPresumed int64
}

// Stats returns the size of the record, and the mismatches so far.
func (s *Strategy) Stats() Stats {
	return Stats{
		Stats: s.cfg.Trie.Stats(), Presumed: s.tokens.Presumed(),
		Judged: s.judged.Load(), Mismatched: s.mismatched.Load(), MismatchedPresumed: s.presumption.Load(),
	}
}

// Pick chooses a target. It draws one random number a call if a target is Ready. It
// allocates only the Memo, and the key in the trie for prompts with a scope that is
// not their Model and for those without Text.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return s.PickPrepared(ctx, p, targets, nil)
}

// Prepare has the fallback prepare a prompt that it will decide on. The Index is asked
// when a target is picked: its Match takes no lock and is never to be late.
func (s *Strategy) Prepare(ctx context.Context, p router.Prompt) any {
	if s.cfg.Index == nil || len(p.Tokens) == 0 {
		return s.fallback.prepare(ctx, p)
	}
	return nil
}

// PickPrepared is Pick for a prompt that was prepared.
func (s *Strategy) PickPrepared(ctx context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	if by, ok := prepared.(byFallback); ok {
		return s.pickFallback(ctx, p, targets, by.prepared)
	}
	r := s.scratch.Get().(*scratch)
	defer s.scratch.Put(r)
	v, exact := s.look(&p, targets, r)
	if !exact {
		return s.pickFallback(ctx, p, targets, nil)
	}
	i := s.best(&v, targets, s.cfg.Rand())
	held := v.exact.Held[i]
	m := &memo{text: *textcache.NewMemo(v.key), exact: v.exact.Index[i] >= 0}
	m.presumed = m.exact && held > v.exact.Index[i]
	m.indexed = s.tokens.Indexed(targets[i].ID, i, &v.exact)
	return router.Decision{
		Prompt: p, Target: targets[i], Cached: held, Length: v.size, Unit: router.Tokens,
		Reason: v.reason(s, i), Memo: m,
	}, nil
}

func (s *Strategy) pickFallback(ctx context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	d, err := s.fallback.pick(ctx, p, targets, prepared)
	if err != nil {
		return d, err
	}
	m := &memo{byFallback: true, fallback: d.Memo}
	if s.learnsOf(m) {
		m.text = *textcache.NewMemo(textcache.KeyOf(&p))
	}
	d.Memo = m
	return d, nil
}

func (s *Strategy) best(v *view, targets []router.Target, seed uint64) int {
	tie := strategy.Tie{Seed: seed}
	if i := s.spread(v, targets); i >= 0 {
		return i
	}
	least := rank{cost: math.Inf(1)}
	for i := range targets {
		if targets[i].State != router.Ready {
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

// spread returns the index of the target to take if requests of other gateways are unseen, -1 if the ranks alone
// decide.
func (s *Strategy) spread(v *view, targets []router.Target) int {
	q := s.cache.Unseen()
	if q == 0 {
		return -1
	}
	v.text.Poured = v.text.Poured[:0]
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		t := &targets[i]
		price := v.MinWeight/v.price + v.token*float64(v.size-v.scratch.worth[i])
		v.text.Poured = append(v.text.Poured, textcache.Glass{
			Index: i, Cost: s.rank(v, targets, i).cost, Price: price / strategy.Weight(t),
		})
	}
	return s.cache.Pour(&v.text, v.text.Poured, q)
}

// memo is the data that a Decision carries from Pick to Record.
type memo struct {
	router.Progress
	text       textcache.Memo
	held       *tokencache.Presumption
	fallback   any  // the fallback's own Memo
	byFallback bool // the fallback decided
	exact      bool // Cached is the Index's word
	presumed   bool // or the part presumed beyond it
	indexed    int  // as Cache.Indexed
}

// learnsOf reports whether Record passes a decision with this memo to the trie.
func (s *Strategy) learnsOf(m *memo) bool {
	return s.learns && !(m.byFallback && s.fallback.inserts)
}

// Record records the prompt that the target was sent, presumes it resident there
// for a while, and removes it if the request failed. For decisions made by hand
// the presumption ends only with its time.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, _ := d.Memo.(*memo)
	if m == nil {
		if s.learns {
			s.cache.Record(&d, nil, &o)
		}
		if o.Stage == router.Sent {
			s.tokens.Sent(&d.Prompt, d.Target.ID)
		}
		s.fallback.record(d, nil, o.Stage, o)
		return
	}
	if s.learnsOf(m) {
		s.cache.Record(&d, &m.text, &o)
	}
	stage := m.Next(o)
	s.fallback.record(d, m, stage, o)
	switch {
	case stage == router.Sent:
		m.held = s.tokens.Sent(&d.Prompt, d.Target.ID)
	case stage.Final():
		if m.TakenBack() {
			s.tokens.Drop(m.held)
		} else {
			s.tokens.Ended(&d.Prompt, d.Target.ID, m.held)
		}
		m.held = nil
		s.tokens.Report(d.Target.ID, m.indexed, &o)
		s.judge(&d, m, &o)
	}
}

// judge compares the prediction with the engine's report.
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

// Forget drops the prompts that the target was sent and its presumptions. It does
// not change the Index: its own stream reports restarts, several strategies may
// read it, and the blocks learned since a restart would be lost. A caller that
// knows better calls Index.Reset or Index.Forget.
func (s *Strategy) Forget(id string) {
	s.cache.Forget(id)
	s.tokens.Forget(id)
	s.fallback.forget(id)
}
