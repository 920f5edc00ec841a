// Package cacheaware sends each prompt to the target that has been sent the
// longest part of it before, unless that target has too much to do.
//
// It needs nothing from the engines: a prompt that a target was sent counts as
// cached there. For the engines' own events, see package precisecacheaware.
package cacheaware

import (
	"cmp"
	"context"
	"math"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "cache_aware"

// Config is how the strategy works. The zero Config is the documented default.
type Config struct {
	// Threshold is the share of the prompt, above 0 and up to 1, that a target
	// must hold to be warm. 0 means 0.5.
	Threshold float64
	// OverloadSlack and OverloadFactor say when a warm target is left: when its
	// load is both more than the least load + OverloadSlack requests and more
	// than OverloadFactor times the least load. 0 means 2 and 1.5; a factor is at
	// least 1. With the defaults, a queue of two at the target that holds the
	// cache is worth waiting in, a long one is not.
	OverloadSlack, OverloadFactor float64
	// HeldShare is the share of the prompt, above 0 and up to 1, from which the
	// part that a target holds decides among the least loaded ones if none is
	// warm. 0 means 0.1. So different system prompts, each of which shares a few
	// words with the others, do not all follow the first to an idle fleet; those
	// that share this much of a request's whole text do.
	HeldShare float64
	// MaxNodes and MaxBytes bound the record, as in trie.Config: nodes of one
	// target, and bytes of text for all. 0 means 1,000,000 and 512 MiB.
	MaxNodes, MaxBytes int
	// Trie is the record, if it is to be shared; nil: a new one within MaxNodes
	// and MaxBytes, which must be 0 otherwise.
	Trie *trie.Trie
	// Share is this gateway's part in a fleet of gateways: what the others sent counts,
	// too. nil: nothing is shared.
	Share router.Peers
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one, but for Trie, which New makes.
func (c Config) WithDefaults() Config {
	c.Threshold = cmp.Or(c.Threshold, 0.5)
	c.HeldShare = cmp.Or(c.HeldShare, 0.1)
	c.OverloadSlack = cmp.Or(c.OverloadSlack, 2)
	c.OverloadFactor = cmp.Or(c.OverloadFactor, 1.5)
	textcache.WithDefaults(c.Trie, &c.MaxNodes, &c.MaxBytes)
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// open makes the Trie unless there is one. It returns a *router.ConfigError for each
// field that is not allowed, joined.
func (c *Config) open() (err error) {
	bad := configerr.List{Package: "cacheaware"}
	bad.Check(c.Threshold > 0 && c.Threshold <= 1, "Threshold", c.Threshold, "above 0 and at most 1")
	bad.Check(c.HeldShare > 0 && c.HeldShare <= 1, "HeldShare", c.HeldShare, "above 0 and at most 1")
	bad.Check(c.OverloadSlack > 0, "OverloadSlack", c.OverloadSlack, "above 0")
	bad.Check(c.OverloadFactor >= 1, "OverloadFactor", c.OverloadFactor, "at least 1")
	c.Trie, err = textcache.Open(c.Trie, c.MaxNodes, c.MaxBytes)
	bad.Add(err)
	return bad.Err()
}

// Strategy picks by these rules:
//
//  1. The score of a target is the share of the prompt, from its beginning, that
//     the target has been sent before.
//  2. If the best score reaches Threshold, the target that has it is picked,
//     unless it is overloaded; among several that are not, the least loaded.
//  3. Otherwise the least loaded target is picked; among several, the one that
//     holds most of the prompt, if that is at least HeldShare; among those, the
//     one with the fewest recorded prompts. If no load is known, the one with
//     the fewest recorded prompts stands for the least loaded.
//
// Remaining ties are drawn. A load is (InFlight + Queued) / (Weight / the smallest
// Ready Weight). An unknown load counts at the mean of the others and is never too
// much. A prompt is recorded when it is sent, so the next Pick sees it. It is
// removed if the request fails before its first token, and extended by the reply
// if Record receives one.
//
// Prompts with Tokens and no Text are matched by their tokens. A Strategy is safe
// for concurrent use.
type Strategy struct {
	cfg     Config
	cache   *textcache.Cache
	scratch sync.Pool // of *textcache.Targets
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
	_ router.Preparer  = (*Strategy)(nil)
)

// New returns a Strategy that has seen nothing yet. The error is a
// *router.ConfigError for each field that is not allowed, joined.
func New(c Config) (*Strategy, error) {
	c = c.WithDefaults()
	if err := c.open(); err != nil {
		return nil, err
	}
	s := &Strategy{cfg: c, cache: textcache.New(c.Trie)}
	s.cache.Join(c.Share)
	s.scratch.New = func() any { return new(textcache.Targets) }
	return s, nil
}

// Stats returns the size of the record.
func (s *Strategy) Stats() trie.Stats { return s.cfg.Trie.Stats() }

// view is the result of one look at the targets.
type view struct {
	strategy.Summary
	*textcache.Targets
	key  textcache.Key
	best int  // the most that a Ready target holds, in bytes of the trie
	warm bool // best reaches the threshold
	pin  bool // and one that has it is not overloaded
}

func (s *Strategy) look(p *router.Prompt, targets []router.Target, scratch *textcache.Targets) view {
	v := view{Summary: strategy.Scan(targets), Targets: scratch, key: scratch.KeyOf(p)}
	s.cache.Look(&v.key, targets, scratch)
	for i := range targets {
		if targets[i].State == router.Ready {
			v.best = max(v.best, scratch.Cached[i])
		}
	}
	v.warm = v.share(v.best) >= s.cfg.Threshold
	for i := 0; i < len(targets) && v.warm && !v.pin; i++ {
		v.pin = s.pinned(&v, targets, i)
	}
	if !v.pin {
		s.cache.LookWarmed(scratch)
	}
	return v
}

// share is the score of a target that holds n bytes.
func (v *view) share(n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(n) / float64(v.key.Size())
}

// pinned reports whether rule 2 chooses from targets[i], if the best is warm.
func (s *Strategy) pinned(v *view, targets []router.Target, i int) bool {
	t := &targets[i]
	return v.Cached[i] == v.best && t.State == router.Ready && !s.overloaded(v, t)
}

func (s *Strategy) overloaded(v *view, t *router.Target) bool {
	return v.Overloaded(t, s.cfg.OverloadSlack, s.cfg.OverloadFactor)
}

// rank has the values that the rules compare: less is better, the first part first.
type rank struct {
	load   float64
	held   int // negative
	warmed int
}

// rank returns the rank of targets[i] among those that the rule chooses from.
func (s *Strategy) rank(v *view, targets []router.Target, i int) rank {
	r := rank{load: v.Load(&targets[i])}
	if v.pin {
		return r
	}
	r.warmed = v.Warmed[i]
	if v.Known == 0 {
		r.load = float64(r.warmed)
	}
	if v.share(v.Cached[i]) >= s.cfg.HeldShare {
		r.held = -v.Cached[i]
	}
	return r
}

func (r *rank) compare(o *rank) int {
	switch {
	case r.load != o.load:
		return cmp.Compare(r.load, o.load)
	case r.held != o.held:
		return r.held - o.held
	}
	return r.warmed - o.warmed
}

// Pick chooses a target. It draws one random number a call if a target is
// Ready. It allocates only the Memo, and the key in the trie for prompts with a
// scope that is not their Model and for Tokens.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return s.PickPrepared(ctx, p, targets, nil)
}

// Prepare matches p with the targets that were offered lately.
func (s *Strategy) Prepare(_ context.Context, p router.Prompt) any {
	scratch := s.scratch.Get().(*textcache.Targets)
	s.cache.Prepare(&p, scratch)
	return scratch
}

// PickPrepared is Pick for a prompt that Prepare has matched. It takes in the prompts
// that were sent since.
func (s *Strategy) PickPrepared(_ context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	scratch, ok := prepared.(*textcache.Targets)
	if !ok {
		scratch = s.scratch.Get().(*textcache.Targets)
	}
	defer s.scratch.Put(scratch)
	v := s.look(&p, targets, scratch)
	if v.Ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	tie := strategy.Tie{Seed: s.cfg.Rand()}
	least := rank{load: math.Inf(1)}
	for i := range targets {
		if targets[i].State != router.Ready || v.pin && !s.pinned(&v, targets, i) {
			continue
		}
		r := s.rank(&v, targets, i)
		switch c := r.compare(&least); {
		case c < 0:
			least = r
			tie.Better(i)
		case c == 0:
			tie.Equal(i, targets)
		}
	}
	i := tie.Best()
	return router.Decision{
		Prompt: p,
		Target: targets[i],
		Cached: v.key.Units(v.Cached[i]),
		Length: v.key.Units(v.key.Size()),
		Unit:   v.key.Unit(),
		Reason: v.reason(),
		Memo:   textcache.NewMemo(v.key),
	}, nil
}

// reason is why the chosen target was.
func (v *view) reason() router.Reason {
	switch {
	case v.pin:
		return router.ReasonWarm
	case v.warm:
		return router.ReasonSpill
	case v.Ready == 1:
		return router.ReasonOnly
	case v.key.Size() == 0:
		return router.ReasonEmpty
	}
	return router.ReasonCold
}

// Record records the prompt that the target was sent, and removes it if the request
// failed.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, _ := d.Memo.(*textcache.Memo)
	s.cache.Record(&d, m, &o)
}

// Forget drops the prompts that the target was sent.
func (s *Strategy) Forget(id string) { s.cache.Forget(id) }
