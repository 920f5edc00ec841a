package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Config is how the strategy works. The zero Config is the documented default.
//
// A weight is the weight of a scorer relative to the others: 0 means the
// default, and less than 0 turns the scorer off.
type Config struct {
	// StaticWeight is the weight of Target.Weight divided by the greatest of the
	// candidates'. 0 means 1; less than 0: off.
	StaticWeight float64
	// LoadWeight is the weight of LoadHalf / (LoadHalf + d), with d the target's
	// load beyond the least one of the candidates. 0 means 2; less than 0: off.
	LoadWeight float64
	// LoadHalf is how many requests beyond the least load halve the load's score.
	// 0 means 4: with the default weights, a full match is worth as many.
	LoadHalf float64
	// AffinityWeight is the weight of the share of the prompt, from its
	// beginning, that the target has been sent before. 0 means 1; less than 0:
	// off.
	AffinityWeight float64
	// Adapters models which LoRA adapters the targets have loaded, and makes a scorer: for a prompt with an Adapter,
	// AdapterWeight is the weight of 1 / (1 + l), with l the cost there in loads: 1 if it is loaded, 1/2 if a slot is
	// free. A fleet that scrapes pages has the same one. nil: there is no such scorer. A weight of 0 means 2; less than
	// 0: off.
	Adapters      *adapters.Slots
	AdapterWeight float64
	// Scorers are the caller's own, in addition to those above.
	Scorers []Weighted

	// Filters drop candidates, one after the other; each sees the candidates
	// that earlier ones kept.
	Filters []Filter
	// RelaxFilters passes over a filter that would leave no candidate. Without
	// it Pick fails then, with a *router.NoTargetError that counts the dropped
	// candidates as Excluded.
	RelaxFilters bool
	// Selector chooses by the scores; nil: the greatest one.
	Selector Selector

	// SessionTTL is how long after its last sign of life a session is remembered.
	// 0 means 300 s; less than 0: sessions are not looked at.
	SessionTTL time.Duration
	// MaxSessions bounds how many are remembered; the one used least recently goes
	// first. 0 means 100,000, which take up to about 40 MB with keys of usual
	// length.
	MaxSessions int
	// Sessions is the record of sessions, if it is shared or outlives a
	// Strategy; nil: a new one within MaxSessions, which must be 0 otherwise.
	Sessions *Sessions
	// OverloadSlack and OverloadFactor say when a session's target is passed
	// over: when its load is both more than the least load + OverloadSlack
	// requests and more than OverloadFactor times the least load. 0 means 2 and
	// 1.5; a factor is at least 1.
	OverloadSlack, OverloadFactor float64

	// MaxNodes and MaxBytes bound the record of prompts, as in trie.Config:
	// nodes of one target, and bytes of text for all. 0 means 1,000,000 and 512
	// MiB.
	MaxNodes, MaxBytes int
	// Trie is the record of prompts, if it is shared or outlives a Strategy;
	// nil: a new one within MaxNodes and MaxBytes, which must be 0 otherwise.
	Trie *trie.Trie
	// Share is this gateway's part in a fleet of gateways: what the others sent counts,
	// too. nil: nothing is shared.
	Share router.Peers

	// Trace has hooks for events inside Pick; nil: none.
	Trace *Trace
	// Now is the clock of sessions; nil means time.Now. It is safe for concurrent
	// use.
	Now func() time.Time
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// Weighted is a scorer with its weight.
type Weighted struct {
	// Name stands for the scorer in Trace and Details; "" means "scorers[i]".
	Name   string
	Scorer Scorer
	// Weight is relative to those of the built-in scorers. 0 means 1; less than
	// 0: off.
	Weight float64
}

// defaultSessions is how many sessions are remembered by default.
const defaultSessions = 100_000

// The names of the built-in scorers.
const (
	StaticName   = "static"
	LoadName     = "load"
	AffinityName = "affinity"
	AdapterName  = "adapter"
)

// WithDefaults returns c with the default in place of each field that is zero and
// has one, but for Sessions and Trie, which New makes. Scorers are copied, each with
// its defaults.
func (c Config) WithDefaults() Config {
	c.StaticWeight = cmp.Or(c.StaticWeight, 1)
	c.LoadWeight = cmp.Or(c.LoadWeight, 2)
	c.LoadHalf = cmp.Or(c.LoadHalf, 4)
	c.AffinityWeight = cmp.Or(c.AffinityWeight, 1)
	c.AdapterWeight = cmp.Or(c.AdapterWeight, 2)
	c.Scorers = slices.Clone(c.Scorers)
	for i := range c.Scorers {
		w := &c.Scorers[i]
		w.Name = cmp.Or(w.Name, fmt.Sprintf("scorers[%d]", i))
		w.Weight = cmp.Or(w.Weight, 1)
	}
	c.SessionTTL = cmp.Or(c.SessionTTL, 300*time.Second)
	if c.Sessions == nil {
		c.MaxSessions = cmp.Or(c.MaxSessions, defaultSessions)
	}
	c.OverloadSlack = cmp.Or(c.OverloadSlack, 2)
	c.OverloadFactor = cmp.Or(c.OverloadFactor, 1.5)
	textcache.WithDefaults(c.Trie, &c.MaxNodes, &c.MaxBytes)
	if c.Trace == nil {
		c.Trace = new(Trace)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Rand = strategy.Rand(c.Rand)
	return c
}

// open makes the Sessions and the Trie unless there are some. It returns a
// *router.ConfigError for each field that is not allowed, joined.
func (c *Config) open() (err error) {
	bad := configerr.List{Package: "pipeline"}
	number := func(field string, v float64) {
		bad.Check(math.Abs(v) <= math.MaxFloat32, field, v, "a number up to 3e38") // not NaN either
	}
	number("StaticWeight", c.StaticWeight)
	number("LoadWeight", c.LoadWeight)
	number("AffinityWeight", c.AffinityWeight)
	number("AdapterWeight", c.AdapterWeight)
	for i, w := range c.Scorers {
		number(fmt.Sprintf("Scorers[%d].Weight", i), w.Weight)
		bad.Check(w.Scorer != nil, fmt.Sprintf("Scorers[%d].Scorer", i), nil, "set")
	}
	c.Filters = slices.Clone(c.Filters)
	for i, f := range c.Filters {
		bad.Check(f != nil, fmt.Sprintf("Filters[%d]", i), nil, "set")
	}
	bad.Check(c.LoadHalf > 0 && c.LoadHalf <= math.MaxFloat32, "LoadHalf", c.LoadHalf, "above 0 and at most 3e38")
	bad.Check(c.OverloadSlack > 0, "OverloadSlack", c.OverloadSlack, "above 0")
	bad.Check(c.OverloadFactor >= 1, "OverloadFactor", c.OverloadFactor, "at least 1")
	if c.Sessions == nil {
		c.Sessions, err = NewSessions(c.MaxSessions)
		bad.Add(errors.Unwrap(err)) // it names the package
	} else {
		bad.Check(c.MaxSessions == 0, "MaxSessions", c.MaxSessions, "0 because Sessions is given, which has its own bound")
	}
	c.Trie, err = textcache.Open(c.Trie, c.MaxNodes, c.MaxBytes)
	bad.Add(err)
	return bad.Err()
}

// scorers returns those that count.
func (c *Config) scorers() []Weighted {
	all := append([]Weighted{
		{Name: StaticName, Scorer: ScorerFunc(scoreStatic), Weight: c.StaticWeight},
		{Name: LoadName, Scorer: loadScorer{half: c.LoadHalf}, Weight: c.LoadWeight},
		{Name: AffinityName, Scorer: ScorerFunc(scoreAffinity), Weight: c.AffinityWeight},
	}, c.Scorers...)
	if c.Adapters != nil {
		all = append(all, Weighted{Name: AdapterName, Scorer: adapterScorer{c.Adapters}, Weight: c.AdapterWeight})
	}
	return slices.DeleteFunc(all, func(w Weighted) bool { return w.Weight < 0 })
}
