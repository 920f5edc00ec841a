// Package lmcacheaware sends each prompt to a target with free LMCache capacity
// that is not too busy.
//
// # When occupancy misleads
//
// The occupancy of a cache says nothing about its content. With free capacity a
// new prompt can be kept without evicting others, but it does not show which cache
// has this prompt. So by occupancy alone
//
//   - the turns of a conversation follow the free capacity over the fleet, and
//     each target that gets one prefills all of it;
//   - a replica that was restarted has the emptiest cache and nothing to offer, and
//     still draws traffic until it has filled up;
//   - once all caches are full, as useful ones usually are, occupancy no longer
//     distinguishes them, and the least load decides.
//
// A cache that is full of this prompt is worth more than an empty one. If prompts
// share long leads, set Config.AffinityRequests, or use another strategy: packages
// cacheaware, leastwork and precisecacheaware look at the prompt itself. This one
// is for fleets with LMCache as the bottleneck: long prompts that are not repeated
// soon, and caches of different sizes.
package lmcacheaware

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "lmcache_aware"

// The reasons of this strategy in addition to those of package router. Decisions
// have ReasonCapacity if the LMCache of at least one target was weighed with the
// load. The others are those of candidates that are not taken.
const (
	ReasonCapacity    router.Reason = "cache_capacity"
	ReasonFuller      router.Reason = "fuller_cache"      // its cache has less free capacity
	ReasonNeutral     router.Reason = "cache_unknown"     // nothing is known of its cache
	ReasonUnavailable router.Reason = "cache_unavailable" // its cache cannot be used
)

// Source reports the free capacity of the targets' caches. *lmcache.Poller is one.
type Source interface {
	// Free sets dst[i] to the free share of the cache of targets[i], 0..1; less
	// than 0 if the cache cannot be used; NaN if nothing is known. dst is as long
	// as targets and is the Source's until it returns. It is safe for concurrent
	// use, does not block, and neither changes nor keeps targets: a fleet may
	// hold a lock around it.
	Free(targets []router.Target, dst []float64)
}

// Config is how the strategy works. The zero Config is the least load: it has no
// Source.
type Config struct {
	// Source reports the free capacity of the caches; nil: nothing is known of any.
	Source Source
	// CapacityRequests is how many requests of load the difference between an empty
	// cache and a full one is worth. 0 means 4, as many as package pipeline gives
	// for a whole match.
	CapacityRequests float64
	// StateRequests is how many requests a target with an available cache is worth
	// more than a neutral one, even if its cache is full, and a neutral one more
	// than one with an unavailable cache. 0 means 16: enough that a lower one is
	// taken only if the better ones are far busier, and little enough that the last
	// replica with a working poll is not overloaded.
	StateRequests float64
	// AffinityRequests is how many requests it is worth that a target has been sent
	// the whole prompt before; a part of it counts in proportion. 0: sent prompts
	// are neither read nor recorded.
	AffinityRequests float64
	// MaxNodes and MaxBytes bound the record of prompts, as in trie.Config:
	// nodes of one target, and bytes of text for all. 0 means 1,000,000 and 512
	// MiB. Both must be 0 if AffinityRequests is.
	MaxNodes, MaxBytes int
	// Trie is the record of prompts, if it is shared or outlives a Strategy;
	// nil: a new one within MaxNodes and MaxBytes, which must be 0 otherwise.
	// It must be nil if AffinityRequests is 0.
	Trie *trie.Trie
	// Share is this gateway's part in a fleet of gateways: what the others sent counts
	// as affinity, too. nil: nothing is shared.
	Share router.Peers
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

const maxWorth = 1e6 // requests: beyond it, additions would swallow the load

// WithDefaults returns c with the default in place of each field that is zero and
// has one, but for Trie, which New makes. MaxNodes and MaxBytes have one only if
// AffinityRequests is not 0.
func (c Config) WithDefaults() Config {
	c.CapacityRequests = cmp.Or(c.CapacityRequests, 4)
	c.StateRequests = cmp.Or(c.StateRequests, 16)
	if c.AffinityRequests != 0 {
		textcache.WithDefaults(c.Trie, &c.MaxNodes, &c.MaxBytes)
	}
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// open makes the Trie if one is needed and there is none. It returns a
// *router.ConfigError for each field that is not allowed, joined.
func (c *Config) open() (err error) {
	bad := configerr.List{Package: "lmcacheaware"}
	worth := func(field string, v float64) {
		bad.Check(v >= 0 && v <= maxWorth, field, v, fmt.Sprintf("from 0 to %v requests", maxWorth))
	}
	worth("CapacityRequests", c.CapacityRequests)
	worth("StateRequests", c.StateRequests)
	worth("AffinityRequests", c.AffinityRequests)
	if c.AffinityRequests != 0 {
		c.Trie, err = textcache.Open(c.Trie, c.MaxNodes, c.MaxBytes)
		bad.Add(err)
		return bad.Err()
	}
	bad.Check(c.Trie == nil, "Trie", "set", "nil as long as affinity is off, when nothing is remembered")
	const none = "0 as long as affinity is off, when nothing is remembered"
	bad.Check(c.MaxNodes == 0, "MaxNodes", c.MaxNodes, none)
	bad.Check(c.MaxBytes == 0, "MaxBytes", c.MaxBytes, none)
	return bad.Err()
}

// Strategy picks the Ready target of the least cost, in requests:
//
//	cost = load + CapacityRequests x (1 - free)    its cache is available
//	       load + CapacityRequests + StateRequests      nothing is known of it
//	       load + CapacityRequests + 2 x StateRequests  it is not available
//	cost -= AffinityRequests x Cached / Length
//
// with a load of (InFlight + Queued) / (Weight / the smallest Ready Weight), and
// the mean of the known ones if it is unknown. So, with equal loads and affinity
// off, available targets come before neutral ones and those before ones that are
// not available; more free capacity comes before less. Of two available targets
// with caches that differ by a share x, the busier one with the emptier cache is
// preferred exactly while it has less than x times CapacityRequests more to do: a
// load difference beyond CapacityRequests beats any difference of capacity, and
// any difference of capacity beats a small enough one of load.
//
// Among equal costs the target that holds most of the prompt is taken, if
// affinity is on, and then a random one; if no load is known at all, it is drawn
// by Weight. If nothing is known of any cache, the least load decides, and
// Decision.Reason reports it.
//
// A Strategy is safe for concurrent use. It calls Source once a Pick.
type Strategy struct {
	cfg     Config
	cache   *textcache.Cache // nil: affinity is off
	scratch sync.Pool        // of *scratch
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
	s := &Strategy{cfg: c}
	if c.Trie != nil {
		s.cache = textcache.New(c.Trie)
		s.cache.Join(c.Share)
	}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Stats returns the size of the record of prompts, zero if affinity is off.
func (s *Strategy) Stats() trie.Stats {
	if s.cfg.Trie == nil {
		return trie.Stats{}
	}
	return s.cfg.Trie.Stats()
}

// Trie returns the record of prompts, for the Strategy that replaces this one;
// nil if affinity is off.
func (s *Strategy) Trie() *trie.Trie { return s.cfg.Trie }

// scratch is the memory and the result of one look at the targets. Values for each target are
// by its index.
type scratch struct {
	strategy.Summary
	free   []float64 // as the Source said
	found  textcache.Targets
	key    textcache.Key
	length int // of the prompt, in the unit of decisions
	unit   router.Unit
	spoke  bool // the Source knows something of a Ready target
	held   bool // a Ready target holds a part of the prompt
}

// look fills r and reports whether a target is Ready.
func (s *Strategy) look(r *scratch, p *router.Prompt, targets []router.Target) bool {
	r.Summary, r.spoke, r.held = strategy.Scan(targets), false, false
	if r.Ready == 0 {
		return false
	}
	r.free = resize(r.free, len(targets))
	for i := range r.free {
		r.free[i] = math.NaN()
	}
	if s.cfg.Source != nil {
		s.cfg.Source.Free(targets, r.free)
	}
	r.length, r.unit = p.Length()
	if s.cache != nil {
		r.key = r.found.KeyOf(p)
		s.cache.Look(&r.key, targets, &r.found)
		r.length, r.unit = r.key.Units(r.key.Size()), r.key.Unit()
		for i, n := range r.found.Cached {
			r.found.Cached[i] = r.key.Units(n)
		}
	}
	for i := range targets {
		if targets[i].State == router.Ready {
			r.spoke = r.spoke || r.state(i) != neutral
			r.held = r.held || s.cached(r, i) > 0
		}
	}
	return true
}

// state is the known state of a cache, the best first.
type state int

const (
	available state = iota
	neutral
	unavailable
)

// state returns the known state of the cache of targets[i]. A Source may not
// report an infinity, so a positive one counts as unknown.
func (r *scratch) state(i int) state {
	switch f := r.free[i]; {
	case f < 0:
		return unavailable
	case f <= math.MaxFloat64:
		return available
	}
	return neutral
}

// away returns the cost of targets[i] for its cache: 0 for an empty one.
func (s *Strategy) away(r *scratch, i int) float64 {
	c := r.state(i)
	if c == available {
		return s.cfg.CapacityRequests * (1 - min(r.free[i], 1))
	}
	return s.cfg.CapacityRequests + float64(c)*s.cfg.StateRequests
}

// cached returns how much of the prompt targets[i] was sent, in r.unit.
func (s *Strategy) cached(r *scratch, i int) int {
	if s.cache == nil {
		return 0
	}
	return r.found.Cached[i]
}

// share returns the worth of the prompts that targets[i] was sent, in requests.
func (s *Strategy) share(r *scratch, i int) float64 {
	if n := s.cached(r, i); n > 0 {
		return s.cfg.AffinityRequests * (float64(n) / float64(r.length))
	}
	return 0
}

// cost returns the cost of targets[i], which is t.
func (s *Strategy) cost(r *scratch, i int, t *router.Target) float64 {
	return r.Load(t) + s.away(r, i) - s.share(r, i)
}

// Pick chooses a target. It draws one random number a call if a target is Ready,
// and allocates nothing; if affinity is on, only the Memo, and the prompt's key if
// its scope is not its Model or it has no Text.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return s.pick(&p, targets, s.scratch.Get().(*scratch))
}

// Prepare matches p with the targets that were offered lately if affinity is on.
func (s *Strategy) Prepare(_ context.Context, p router.Prompt) any {
	if s.cache == nil {
		return nil
	}
	r := s.scratch.Get().(*scratch)
	s.cache.Prepare(&p, &r.found)
	return r
}

// PickPrepared is Pick for a prompt that Prepare has matched. It takes in the prompts
// that were sent since.
func (s *Strategy) PickPrepared(_ context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	r, ok := prepared.(*scratch)
	if !ok {
		r = s.scratch.Get().(*scratch)
	}
	return s.pick(&p, targets, r)
}

func (s *Strategy) pick(p *router.Prompt, targets []router.Target, r *scratch) (router.Decision, error) {
	defer s.put(r)
	if !s.look(r, p, targets) {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	i := s.choose(r, targets)
	d := router.Decision{
		Prompt: *p, Target: targets[i],
		Cached: s.cached(r, i), Length: r.length, Unit: r.unit,
		Reason: r.reason(),
	}
	if s.cache != nil {
		d.Memo = textcache.NewMemo(r.key)
	}
	return d, nil
}

// put keeps r for a later call, without the data of this one.
func (s *Strategy) put(r *scratch) {
	r.key = textcache.Key{}
	r.found.Release() // no target may have been Ready
	s.scratch.Put(r)
}

// choose returns the index of the target to take.
func (s *Strategy) choose(r *scratch, targets []router.Target) int {
	seed := s.cfg.Rand()
	tie, draw := strategy.Tie{Seed: seed}, strategy.Lottery{Seed: seed}
	best, most := math.Inf(1), 0
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		c, n := s.cost(r, i, t), s.cached(r, i)
		switch {
		case c < best || c == best && n > most:
			best, most = c, n
			tie.Better(i)
			draw = strategy.Lottery{Seed: seed}
		case c == best && n == most:
			tie.Equal(i, targets)
		default:
			continue
		}
		if r.Known == 0 {
			draw.Show(i, t)
		}
	}
	if r.Known == 0 {
		return draw.First()
	}
	return tie.Best()
}

// reason is why the chosen target was.
func (r *scratch) reason() router.Reason {
	switch {
	case r.Ready == 1:
		return router.ReasonOnly
	case r.spoke:
		return ReasonCapacity
	case r.held:
		return router.ReasonWarm
	case r.Known == 0:
		return router.ReasonRandom
	}
	return router.ReasonLeastLoad
}

// Record records the prompt that the target was sent, and removes it if the
// request failed, if affinity is on; otherwise it does nothing.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	if s.cache == nil {
		return
	}
	m, _ := d.Memo.(*textcache.Memo)
	s.cache.Record(&d, m, &o)
}

// Forget drops the prompts that the target was sent. The Source knows the state
// of its cache.
func (s *Strategy) Forget(id string) {
	if s.cache != nil {
		s.cache.Forget(id)
	}
}

// resize returns a slice of length n, s itself if it is large enough.
func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}
