// Package pipeline sends each prompt through three stages: filters drop
// candidates, scorers judge those that are left, and the best sum of scores wins.
// All three are open to the caller.
//
// In addition, sessions stay at the target that served them last.
//
// It is for those who have filters or scorers of their own to add, or sessions
// that must stay. For the time to the first token alone package leastwork is
// better on most simulated workloads, by more than a fifth on many
// (bench/RESULTS.md).
package pipeline

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "pipeline"

// The reasons of this strategy in addition to those of package router. Decisions
// have ReasonSession and ReasonBestScore.
const (
	ReasonSession    router.Reason = "session"         // it served the session last
	ReasonBestScore  router.Reason = "best_score"      // the greatest score, or the Selector's choice, with affinity off
	ReasonLowerScore router.Reason = "lower_score"     // a scorer other than load and affinity decides against it
	ReasonNotSession router.Reason = "another_session" // another target serves the session
	ReasonFiltered   router.Reason = "filtered"        // a filter dropped it
)

// Strategy picks by these rules:
//
//  1. Targets that are not Ready and those that a filter drops are out. What
//     follows looks at the candidates that are left and at nothing else.
//  2. A prompt of a session that is remembered goes to the target that served
//     the session last, unless that is not among the candidates or is overloaded.
//     It is not forgotten for that: only when another target has shown the first
//     token of a reply does the session move there, and a failure of its target
//     releases it at once.
//  3. Otherwise the greatest weighted sum of the scores wins; among equal ones, if
//     affinity is on, the target that holds most of the prompt, then the one with
//     the fewest recorded prompts for its Weight; among those, a random one.
//
// With the defaults,
//
//	sum = Weight / the greatest Weight + 2 x 4 / (4 + d) + Cached / Length
//
// with d the load beyond the least one, and a load of (InFlight + Queued) /
// (Weight / the smallest Weight). A target of unknown load has the mean of those
// known.
//
// So that an idle fleet spreads, Cached counts here by these rules: less than a
// tenth of the prompt is nothing; it is rounded down to 50ths of the prompt; and if a
// target has more than 8 recorded prompts and half again as many as the one with the
// fewest, a beginning that 32 or more recorded prompts have counts there as much as
// elsewhere. Offer.Cached is as it was sent.
//
// A prompt is recorded when it is sent, so the next Pick sees it, and taken back
// if the request fails before its first token. A Strategy is safe for
// concurrent use.
type Strategy struct {
	cfg     Config
	scorers []Weighted
	weights float64 // their sum
	adapter float64 // of it, the adapters' scorer
	cache   *textcache.Cache
	scratch sync.Pool    // of *scratch
	peers   peering.Node // nil: none
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
	_ router.Preparer  = (*Strategy)(nil)
)

// New returns a Strategy. The error is a *router.ConfigError for each field that is
// not allowed, joined.
func New(c Config) (*Strategy, error) {
	c = c.WithDefaults()
	if err := c.open(); err != nil {
		return nil, err
	}
	s := &Strategy{cfg: c, scorers: c.scorers(), cache: textcache.New(c.Trie), peers: peering.Of(c.Share)}
	s.cache.Join(c.Share)
	for _, w := range s.scorers {
		s.weights += w.Weight
		if _, ok := w.Scorer.(adapterScorer); ok {
			s.adapter = w.Weight
		}
	}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Stats returns the size of the record of prompts.
func (s *Strategy) Stats() trie.Stats { return s.cfg.Trie.Stats() }

// Trie and Sessions return the records, for the Strategy that replaces this one.
func (s *Strategy) Trie() *trie.Trie    { return s.cfg.Trie }
func (s *Strategy) Sessions() *Sessions { return s.cfg.Sessions }

// memo is the data that a Decision carries from Pick to Record.
type memo struct {
	cache   textcache.Memo
	visit   visit
	work    float64       // tokens to prefill until the first token
	adapter *adapters.Use // nil if the prompt has none
}

// Pick chooses a target. It draws one random number a call if there is a
// candidate, and allocates the Memo alone.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return s.pick(ctx, &p, targets, s.scratch.Get().(*scratch))
}

// Prepare matches p with the targets that were offered lately. No filter or scorer is
// called.
func (s *Strategy) Prepare(_ context.Context, p router.Prompt) any {
	r := s.scratch.Get().(*scratch)
	s.cache.Prepare(&p, &r.found)
	return r
}

// PickPrepared is Pick for a prompt that Prepare has matched. It takes in the prompts
// that were sent since.
func (s *Strategy) PickPrepared(ctx context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	r, ok := prepared.(*scratch)
	if !ok {
		r = s.scratch.Get().(*scratch)
	}
	return s.pick(ctx, &p, targets, r)
}

func (s *Strategy) pick(ctx context.Context, p *router.Prompt, targets []router.Target,
	r *scratch) (router.Decision, error) {
	defer s.put(r)
	if !s.look(ctx, r, p, targets, s.cfg.Trace) {
		return router.Decision{}, noTarget(targets)
	}
	i := s.choose(ctx, r)
	return router.Decision{
		Prompt: *p,
		Target: r.offer.Targets[i],
		Cached: r.offer.Cached[i],
		Length: r.offer.Length,
		Unit:   r.offer.Unit,
		Reason: s.reason(r, i),
		Memo:   &memo{cache: *textcache.NewMemo(r.key), work: r.offer.work(i)},
	}, nil
}

// put keeps r for a later call, without the data of this one.
func (s *Strategy) put(r *scratch) {
	clear(r.targets[:cap(r.targets)])
	r.offer, r.key, r.home = Offer{}, textcache.Key{}, ""
	s.scratch.Put(r)
}

// noTarget counts the Ready ones as Excluded: a filter dropped them.
func noTarget(targets []router.Target) error {
	e := &router.NoTargetError{Offered: len(targets)}
	for i := range targets {
		if targets[i].State == router.Ready {
			e.Excluded++
		} else {
			e.NotReady++
		}
	}
	return e
}

// choose returns the index of the candidate to take.
func (s *Strategy) choose(ctx context.Context, r *scratch) int {
	rand := s.cfg.Rand()
	if r.pin { // nothing was scored
		for i := range r.offer.Targets {
			if s.pinned(r, i) {
				return i
			}
		}
	}
	if s.cfg.Selector != nil {
		if i := s.cfg.Selector.Select(ctx, &r.offer, r.means(s.weightsFor(r)), rand); i >= 0 && i < len(r.offer.Targets) {
			return i
		}
	}
	top, equal := 0, 1
	for i := 1; i < len(r.offer.Targets); i++ {
		switch c := s.compareScore(r, i, top); {
		case c > 0:
			top, equal = i, 1
		case c == 0:
			equal++
		}
	}
	if equal == 1 {
		return top
	}
	tie := strategy.Tie{Seed: rand}
	tie.Better(top)
	for i := top + 1; equal > 1; i++ {
		if s.compareScore(r, i, top) != 0 {
			continue
		}
		equal--
		switch c := s.compareWarmed(r, i, tie.Best()); {
		case c > 0:
			tie.Better(i)
		case c == 0:
			tie.Equal(i, r.offer.Targets)
		}
	}
	return tie.Best()
}

// compare is above 0 if candidate i is better than j.
func (s *Strategy) compare(r *scratch, i, j int) int {
	return cmp.Or(s.compareScore(r, i, j), s.compareWarmed(r, i, j))
}

// compareScore compares by the scores, then by the part of the prompt that counts for the choice.
func (s *Strategy) compareScore(r *scratch, i, j int) int {
	if r.sums[i] != r.sums[j] {
		return sign(r.sums[i] > r.sums[j])
	}
	if s.cfg.AffinityWeight <= 0 {
		return 0
	}
	return cmp.Compare(r.offer.worth[i], r.offer.worth[j])
}

// compareWarmed compares candidates with equal scores by their recorded prompts.
func (s *Strategy) compareWarmed(r *scratch, i, j int) int {
	o := &r.offer
	if s.cfg.AffinityWeight <= 0 || o.Length == 0 {
		return 0
	}
	s.cache.LookWarmed(&r.found)
	return cmp.Compare(textcache.WarmedByWeight(r.found.Warmed[o.place(j)], &o.Targets[j]),
		textcache.WarmedByWeight(r.found.Warmed[o.place(i)], &o.Targets[i]))
}

func sign(more bool) int {
	if more {
		return 1
	}
	return -1
}

// reason returns why candidate i was chosen.
func (s *Strategy) reason(r *scratch, i int) router.Reason {
	o := &r.offer
	switch {
	case r.pin:
		return ReasonSession
	case len(o.Targets) == 1:
		return router.ReasonOnly
	case s.weightsFor(r) == 0 && s.cfg.Selector == nil:
		return router.ReasonRandom
	case s.cfg.AffinityWeight < 0:
		return ReasonBestScore
	}
	return strategy.ByCached(len(o.Targets), o.Length, o.worth[i], slices.Max(o.worth))
}

// Record records the prompt that the target was sent, removes it if the request
// failed, and binds the session.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, ok := d.Memo.(*memo)
	if ok {
		s.recordAdapter(m, &d, s.cache.Record(&d, &m.cache, &o))
	} else {
		s.cache.Record(&d, nil, &o)
	}
	if s.cfg.SessionTTL < 0 {
		return
	}
	k, keyed := keyOf(&d.Prompt)
	switch {
	case !keyed:
	case ok:
		s.record(&m.visit, k, d.Target.ID, &o)
	default:
		s.cfg.Sessions.recordByHand(k, d.Target.ID, &o, s.cfg.Now(), s.cfg.SessionTTL)
	}
}

// Forget drops the prompts that the target was sent, and the sessions that it served.
func (s *Strategy) Forget(id string) {
	s.cache.Forget(id)
	s.cfg.Sessions.forget(id)
	s.cfg.Adapters.Forget(id)
}

// quotient returns sum as the weighted mean of scores, NaN if there are none.
func quotient(sum, weights float64) float64 {
	if weights == 0 {
		return math.NaN()
	}
	return min(max(sum/weights, 0), 1) // rounding
}
