package file

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/trie"
)

// Strategy is how a strategy is made from a file. Only New is needed.
type Strategy struct {
	// Config returns a pointer to a new Config struct. Its plain fields are the keys of
	// the table [routes.NAME] in snake case. nil: there is no such table, and the other
	// functions get nil.
	Config func() any
	// TokenSource changes the settings of a route that has a token_source, before
	// Defaults; nil: it makes no difference.
	TokenSource func(cfg any)
	// Defaults puts the default in place of each field that is zero and has one, so
	// that the effective file shows it; nil: there are none.
	Defaults func(cfg any)
	// Share puts into cfg, a copy, the parts of Shared that the strategy uses; nil: it
	// uses none.
	Share func(cfg any, s *Shared) error
	// ReadsIndex and ReadsOccupancy report that the strategy uses Shared.Index and
	// Shared.LMCache. Otherwise the file's kv_events and lmcache are not read for it.
	ReadsIndex, ReadsOccupancy bool
	// New makes the strategy, once to check the file and then for each route. It
	// starts nothing. Each *router.ConfigError of its error is shown at the key of the
	// field.
	New func(cfg any) (router.Strategy, error)
}

// Shared is the state that a gateway lends to the strategy of a route. The results of
// Trie and Sessions outlive a strategy that a reload replaces.
type Shared struct {
	// Index has the KV events of the route's targets; nil: none are read.
	Index *kvindex.Index
	// LMCache has the occupancies of the route's targets; nil: none are polled.
	LMCache *lmcache.Poller
	// Rand is the source of ties; nil: the strategy's own default.
	Rand func() uint64
	// Peers are the other gateways of the fleet; nil: nothing is shared with any.
	Peers router.Peers
	// Adapters models the slots of the targets of all routes; nil: the strategy's own default.
	Adapters *adapters.Slots
	// Trie returns the prompts that the route's targets were sent, within the bounds of
	// trie.Config.
	Trie func(maxNodes, maxBytes int) (*trie.Trie, error)
	// Sessions returns the sessions of the route, at most max.
	Sessions func(max int) (*pipeline.Sessions, error)
}

// Strategies returns the library's own, by name. It is the one list of them. The map is
// the caller's.
func Strategies() map[string]Strategy {
	return map[string]Strategy{
		cacheaware.Name: entry(cacheaware.New, func(c *cacheaware.Config, s *Shared) error {
			s.setRand(&c.Rand)
			c.Share = s.Peers
			return s.setTrie(&c.Trie, &c.MaxNodes, &c.MaxBytes)
		}),
		consistenthash.Name: entry(consistenthash.New, func(c *consistenthash.Config, s *Shared) error {
			return s.setRand(&c.Rand)
		}),
		leastload.Name: entry(leastload.New, func(c *leastload.Config, s *Shared) error {
			return s.setRand(&c.Rand)
		}),
		leastwork.Name: readsIndex(entry(leastwork.New, func(c *leastwork.Config, s *Shared) error {
			c.Index, c.Share, c.Adapters = s.Index, s.Peers, s.Adapters
			s.setRand(&c.Rand)
			return s.setTrie(&c.Trie, &c.MaxNodes, &c.MaxBytes)
		})),
		lmcacheaware.Name: readsOccupancy(entry(lmcacheaware.New, func(c *lmcacheaware.Config, s *Shared) error {
			if s.LMCache != nil {
				c.Source = s.LMCache
			}
			s.setRand(&c.Rand)
			if c.AffinityRequests == 0 {
				return nil // nothing is remembered
			}
			c.Share = s.Peers
			return s.setTrie(&c.Trie, &c.MaxNodes, &c.MaxBytes)
		})),
		pipeline.Name: entry(pipeline.New, func(c *pipeline.Config, s *Shared) (err error) {
			s.setRand(&c.Rand)
			c.Share, c.Adapters = s.Peers, s.Adapters
			if c.Sessions, err = s.Sessions(c.MaxSessions); err != nil {
				return err
			}
			c.MaxSessions = 0
			return s.setTrie(&c.Trie, &c.MaxNodes, &c.MaxBytes)
		}),
		poweroftwo.Name: entry(poweroftwo.New, func(c *poweroftwo.Config, s *Shared) error {
			return s.setRand(&c.Rand)
		}),
		precisecacheaware.Name: readsIndex(textWithTokens(entry(precisecacheaware.New,
			func(c *precisecacheaware.Config, s *Shared) error {
				c.Index, c.Share = s.Index, s.Peers
				s.setRand(&c.Rand)
				if c.Index == nil && c.Fallback != precisecacheaware.FallbackText {
					return nil // nothing is remembered
				}
				return s.setTrie(&c.Trie, &c.MaxNodes, &c.MaxBytes)
			}))),
		random.Name: entry(random.New, func(c *random.Config, s *Shared) error {
			return s.setRand(&c.Rand)
		}),
		roundrobin.Name: entry(roundrobin.New, func(*roundrobin.Config, *Shared) error { return nil }),
	}
}

// entry makes the Strategy of a package with the Config C.
func entry[C interface{ WithDefaults() C }, S router.Strategy](
	make func(C) (S, error), share func(*C, *Shared) error,
) Strategy {
	return Strategy{
		Config:   func() any { return new(C) },
		Defaults: func(cfg any) { *cfg.(*C) = (*cfg.(*C)).WithDefaults() },
		Share:    func(cfg any, s *Shared) error { return share(cfg.(*C), s) },
		New: func(cfg any) (router.Strategy, error) {
			s, err := make(*cfg.(*C))
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	}
}

func readsIndex(s Strategy) Strategy     { s.ReadsIndex = true; return s }
func readsOccupancy(s Strategy) Strategy { s.ReadsOccupancy = true; return s }

// textWithTokens makes texts the fallback of routes with a token_source: a source of ids
// comes with texts, which are better than nothing if ids or events are missing.
func textWithTokens(s Strategy) Strategy {
	s.TokenSource = func(cfg any) {
		if c := cfg.(*precisecacheaware.Config); c.Fallback == "" {
			c.Fallback = precisecacheaware.FallbackText
		}
	}
	return s
}

func (s *Shared) setRand(rand *func() uint64) error {
	if s.Rand != nil {
		*rand = s.Rand
	}
	return nil
}

// setTrie sets t to a trie within the bounds, which must be 0 if a Config has a trie.
func (s *Shared) setTrie(t **trie.Trie, maxNodes, maxBytes *int) (err error) {
	*t, err = s.Trie(*maxNodes, *maxBytes)
	*maxNodes, *maxBytes = 0, 0
	return err
}

// strategies returns all strategies that a file can name.
func (o Options) strategies() (map[string]Strategy, error) {
	all := Strategies()
	reserved := make(map[string]bool)
	for _, f := range fields(reflect.TypeFor[Route]()) {
		reserved[f.key] = true
	}
	for name, s := range o.Strategies {
		switch {
		case name == "" || name == "-" || reserved[name] || strings.ContainsAny(name, ",\"\\`\x00\x01\n\r"):
			return nil, fmt.Errorf("config: Options.Strategies: %q cannot be the name of a strategy", name)
		case s.New == nil:
			return nil, fmt.Errorf("config: Options.Strategies: %q has no New", name)
		}
		all[name] = s
	}
	return all, nil
}

// Validate returns an error if a name in Strategies cannot be used or has no New.
func (o Options) Validate() error {
	_, err := o.strategies()
	return err
}

// Made returns how the route's strategy is made, and a copy of its settings for the
// functions of Strategy, nil if it has none. New is nil if r is not of a file that Parse
// returned.
func (r *Route) Made() (Strategy, any) { return r.strategy, copyOf(r.settingsOf(r.strategy)) }

// settingsOf returns the Config of the route's own strategy: the one that was read from
// the file, or an empty one. nil: the strategy has none.
func (r *Route) settingsOf(s Strategy) any {
	if s.Config == nil {
		return nil
	}
	if cfg := r.Settings[r.Strategy]; cfg != nil {
		return cfg
	}
	return s.Config()
}

// copyOf returns a pointer to a copy of the struct that cfg points to.
func copyOf(cfg any) any {
	if cfg == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(cfg).Elem())
	v.Elem().Set(reflect.ValueOf(cfg).Elem())
	return v.Interface()
}
