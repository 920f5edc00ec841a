// Package consistenthash gives each session, or each leading part of a prompt,
// a target of its own, without remembering anything: gateways that never talk to
// each other agree on it.
//
// Places are found by weighted rendezvous hashing, so a target that leaves moves
// only its own keys, and one that joins takes only its share. The load is
// bounded as in "Consistent Hashing with Bounded Loads" (Mirrokni, Thorup and
// Zadimoghaddam, SODA 2018, arXiv:1608.01350): a target that carries LoadFactor
// times the mean is full, and its keys go to their next place until it is not.
package consistenthash

import (
	"cmp"
	"context"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/rendezvous"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/strategy/leastload"
)

// Name is the strategy's name in configuration files.
const Name = "consistent_hash"

// The defaults of Config.
const (
	DefaultLoadFactor = 1.25
	// DefaultPrefixBytes is about 256 tokens, 16 blocks of an engine's cache. A
	// shared lead much shorter than that is not worth meeting for; with a much
	// longer key the turns of a short conversation would each have another one
	// until it had grown past it.
	DefaultPrefixBytes = 1024
)

// Config is how the strategy works. The zero Config is the default.
type Config struct {
	// LoadFactor is how many times the mean load, weighed by Weight, a target may
	// carry with this request before it is full. At least 1; 0 means
	// DefaultLoadFactor; +Inf lifts the bound.
	LoadFactor float64
	// PrefixBytes is how many leading bytes of Text make the key of a prompt
	// without a Session; if only Tokens are known, a quarter as many tokens. 0
	// means DefaultPrefixBytes.
	PrefixBytes int
	// Rand breaks ties if the load alone decides, as for empty prompts without
	// a session. It is safe for concurrent use; nil means the global source of
	// math/rand/v2.
	Rand func() uint64
}

// Strategy picks the place of the prompt's key: its scope with its Session, or
// with the leading part of its text if there is none. An empty prompt without
// a session goes to the least loaded target. A target of unknown load is never
// full and counts at the mean.
//
// It keeps no state and is safe for concurrent use. The same key has the same
// places in every process.
type Strategy struct {
	factor float64
	prefix int
	empty  *leastload.Strategy // chooses for an empty prompt without a session
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
)

// WithDefaults returns c with the default in place of each field that is zero and
// has one.
func (c Config) WithDefaults() Config {
	c.LoadFactor = cmp.Or(c.LoadFactor, DefaultLoadFactor)
	c.PrefixBytes = cmp.Or(c.PrefixBytes, DefaultPrefixBytes)
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// New returns a Strategy. The error is a *router.ConfigError for each field that is
// not allowed, joined.
func New(c Config) (*Strategy, error) {
	c = c.WithDefaults()
	bad := configerr.List{Package: "consistenthash"}
	bad.Check(c.LoadFactor >= 1, "LoadFactor", c.LoadFactor, "at least 1")
	bad.Check(c.PrefixBytes > 0, "PrefixBytes", c.PrefixBytes, "at least 1")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	empty, err := leastload.New(leastload.Config{Rand: c.Rand})
	if err != nil {
		return nil, err
	}
	return &Strategy{factor: c.LoadFactor, prefix: c.PrefixBytes, empty: empty}, nil
}

// Pick chooses the first place of the prompt's key that is not full. It draws a
// random number only for an empty prompt without a session.
func (s *Strategy) Pick(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	sum := strategy.Scan(targets)
	switch sum.Ready {
	case 0:
		return router.Decision{}, strategy.NoTarget(targets)
	case 1:
		return strategy.NewDecision(p, &targets[sum.Only], router.ReasonOnly), nil
	}
	key, ok := s.key(&p)
	if !ok {
		d, err := s.empty.Pick(ctx, p, targets)
		d.Reason = router.ReasonEmpty
		return d, err
	}
	b := s.bound(targets, &sum)
	var own, open rendezvous.Winners
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		ticket := rendezvous.Draw(t.ID, strategy.Weight(t), key)
		own.Enter(i, ticket)
		if !b.full(t) {
			open.Enter(i, ticket)
		}
	}
	switch i := open.First(); i {
	case own.First():
		return strategy.NewDecision(p, &targets[i], router.ReasonHash), nil
	case -1: // only if rounding made all of them full
		return strategy.NewDecision(p, &targets[own.First()], router.ReasonHash), nil
	default:
		return strategy.NewDecision(p, &targets[i], router.ReasonHashOverflow), nil
	}
}

// Record does nothing.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets in the order in which the prompt's key would take them, those that are
// full after the others. The score is half of the value that the places are compared by, and 1/2
// more for those that are not full. An empty prompt without a session is explained by load.
func (s *Strategy) Explain(ctx context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum := strategy.Scan(targets)
	key, ok := s.key(&p)
	if !ok {
		from := len(dst)
		dst = s.empty.Explain(ctx, p, targets, dst)
		if sum.Ready > 1 {
			dst[from].Reason = router.ReasonEmpty
		}
		return dst
	}
	b := s.bound(targets, &sum)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	ticket := func(c *router.Candidate) rendezvous.Ticket {
		return rendezvous.Draw(c.Target.ID, strategy.Weight(&c.Target), key)
	}
	strategy.Sort(cs, func(x, y *router.Candidate) int {
		if fx, fy := b.full(&x.Target), b.full(&y.Target); fx != fy {
			if fy {
				return -1
			}
			return 1
		}
		tx, ty := ticket(x), ticket(y)
		switch {
		case tx.Beats(&ty):
			return -1
		case ty.Beats(&tx):
			return 1
		}
		return 0
	})
	if sum.Ready == 0 {
		return dst
	}
	reason := router.ReasonHash
	first := ticket(&cs[0])
	for i := range cs[:sum.Ready] {
		c := &cs[i]
		t := ticket(c)
		c.Score = (1 + t.Share()) / 2
		c.Reason = router.ReasonElsewhere
		if b.full(&c.Target) {
			c.Score = t.Share() / 2
			c.Reason = router.ReasonOverloaded
			if t.Beats(&first) {
				reason = router.ReasonHashOverflow
			}
		}
	}
	cs[0].Reason = sum.OnlyOr(reason)
	return dst
}

// key returns the hash that gives p its places; false if p has nothing to hash.
func (s *Strategy) key(p *router.Prompt) (uint64, bool) {
	// The kinds keep a session apart from a text of the same bytes.
	const session, text, tokens = 1, 2, 3
	scope := rendezvous.Hash(p.Scope())
	switch {
	case p.Session != "":
		return rendezvous.Mix(rendezvous.Mix(scope+session) ^ rendezvous.Hash(p.Session)), true
	case p.Text != "":
		return rendezvous.Mix(rendezvous.Mix(scope+text) ^ rendezvous.Hash(p.Text[:min(len(p.Text), s.prefix)])), true
	case len(p.Tokens) > 0:
		h := rendezvous.Mix(scope + tokens)
		for _, id := range p.Tokens[:min(len(p.Tokens), max(s.prefix/4, 1))] {
			h = rendezvous.Mix(h ^ uint64(id))
		}
		return h, true
	}
	return 0, false
}

// bound says who is full.
type bound struct {
	perWeight float64 // requests that a target of the smallest weight may carry
	least     float64 // the smallest weight
}

func (s *Strategy) bound(targets []router.Target, sum *strategy.Summary) bound {
	// A target may carry LoadFactor x (all requests + this one) x its part of the
	// weight, rounded up: section 2 of the paper, with weights for equal bins.
	var requests, known, all strategy.Sum
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		w := strategy.Weight(t) / sum.MinWeight
		all.Add(w)
		if t.Load.Known {
			known.Add(w)
			requests.Add(strategy.Requests(t))
		}
	}
	if sum.Known == 0 {
		return bound{perWeight: math.Inf(1), least: sum.MinWeight}
	}
	// An unknown target counts at the mean.
	total := requests.Float() * (all.Float() / known.Float())
	return bound{perWeight: s.factor * (total + 1) / all.Float(), least: sum.MinWeight}
}

func (b *bound) full(t *router.Target) bool {
	return t.Load.Known && strategy.Requests(t)+1 > math.Ceil(b.perWeight*(strategy.Weight(t)/b.least))
}
