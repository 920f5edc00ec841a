package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/armon/go-radix"
	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/trie"
)

// A route is a Router and the parts that it is made of.
type route struct {
	name     string
	router   *router.Router
	fleet    *fleet
	offers   []offer
	failover router.Options
	source   *file.TokenSource
	queue    *admission.Queue // of all routes; nil: none
	rewrites bool             // every target has its own name for the model

	strategy router.Strategy
	by       string // the strategy's name
	settings any    // a copy of those in the file
	sources
	memory memory
}

// sources are the signals of the targets of a route.
type sources struct {
	index  *kvindex.Index  // nil: no KV events
	poller *lmcache.Poller // nil: no occupancies
}

// A memory is the part of a strategy that outlives a change of the route's settings.
type memory struct {
	trie        *trie.Trie
	bounds      trie.Config
	sessions    *pipeline.Sessions
	maxSessions int
}

// route adds one route. It takes the Router and the strategy of the state before if
// nothing that they are made of has changed.
func (b *builder) route(fr *file.Route) error {
	r := &route{name: fr.Model, by: fr.Strategy, source: fr.TokenSource, failover: fr.Failover, rewrites: true}
	for _, t := range fr.Targets {
		p := b.providers[t.Provider]
		if p == nil {
			return fmt.Errorf("there is no provider %q", t.Provider)
		}
		for _, o := range b.offers[t.Provider] {
			target := *o.target
			target.Model = t.Model
			o.target, o.weight = &target, t.Weight
			r.offers = append(r.offers, o)
		}
		r.rewrites = r.rewrites && t.Model != ""
		if p.KVEvents != nil {
			r.index = b.index
		}
		if p.LMCache != nil {
			r.poller = b.gateway.poller
		}
	}
	var was *route
	if b.old != nil {
		was = b.old.routes[fr.Model]
	}
	if was != nil {
		r.fleet = was.fleet
	} else {
		r.fleet = &fleet{view: b.gateway.view, change: &b.gateway.change}
		r.fleet.offers.Store(&r.offers)
	}
	if err := r.setStrategy(b.gateway, fr, was); err != nil {
		return err
	}
	r.queue = b.queue
	r.setRouter(b.gateway, fr, was)
	b.routes[fr.Model] = r
	b.names.add(r, fr)
	return nil
}

// setStrategy makes the strategy of r, or takes that of was.
func (r *route) setStrategy(g *Gateway, fr *file.Route, was *route) error {
	s, cfg := fr.Made()
	if s.New == nil {
		return errors.New("the file was not made by Parse")
	}
	r.settings = fr.Settings[fr.Strategy]
	if was != nil && was.by == r.by && was.sources == r.sources && file.Same(was.settings, r.settings) {
		r.strategy, r.memory = was.strategy, was.memory
		return nil
	}
	if cfg != nil && s.Share != nil {
		if err := s.Share(cfg, r.shared(g, was)); err != nil {
			return err
		}
	}
	var err error
	r.strategy, err = s.New(cfg)
	return err
}

// shared returns the state that r lends to its strategy. It takes the memory of was if the
// bounds are the same.
func (r *route) shared(g *Gateway, was *route) *file.Shared {
	var before memory
	if was != nil {
		before = was.memory
	}
	return &file.Shared{
		Index: r.index, LMCache: r.poller, Rand: g.options.Rand, Peers: g.options.Peers,
		Adapters: g.adapters,
		Trie: func(maxNodes, maxBytes int) (t *trie.Trie, err error) {
			bounds := trie.Config{MaxNodes: maxNodes, MaxBytes: maxBytes}
			if t = before.trie; t == nil || before.bounds != bounds {
				t, err = trie.New(bounds)
			}
			r.memory.trie, r.memory.bounds = t, bounds
			return t, err
		},
		Sessions: func(max int) (s *pipeline.Sessions, err error) {
			if s = before.sessions; s == nil || before.maxSessions != max {
				s, err = pipeline.NewSessions(max)
			}
			r.memory.sessions, r.memory.maxSessions = s, max
			return s, err
		},
	}
}

// setRouter makes the Router of r, or takes that of was.
func (r *route) setRouter(g *Gateway, fr *file.Route, was *route) {
	if was != nil && was.strategy == r.strategy && was.queue == r.queue && file.Same(was.failover, r.failover) {
		r.router = was.router
		return
	}
	opts := r.failover
	opts.Rand, opts.Holders = g.options.Rand, g.holders
	if r.queue != nil {
		opts.Queue = r.queue
	}
	switch {
	case g.options.TraceRoute != nil:
		opts.Trace = g.options.TraceRoute(fr)
	case g.options.Trace != nil:
		opts.Trace = g.options.Trace(r.name)
	}
	r.router = router.New(r.strategy, r.fleet, opts)
}

// has reports whether the route offers the target with this ID.
func (r *route) has(id string) bool {
	return slices.ContainsFunc(r.offers, func(o offer) bool { return o.id == id })
}

// names are the names that requests can use.
type names struct {
	exact  map[string]*entry
	prefix *radix.Tree // of *entry, by the part before the *
	models []Model     // in the order of the file
}

// An entry is one name, or pattern, of a route.
type entry struct {
	route   *route
	model   string // the scope's; "": the name that the request uses
	adapter string
	alias   bool
}

// add adds the names of one route.
func (n *names) add(r *route, fr *file.Route) {
	prefix, pattern := strings.CutSuffix(fr.Model, "*")
	scope := fr.Model
	if pattern && !r.rewrites {
		scope = "" // each model that fits is another one
	}
	base := &entry{route: r, model: scope}
	if pattern {
		n.prefix.Insert(prefix, base)
		n.models = append(n.models, Model{ID: fr.Model, Route: fr.Model, Kind: "pattern"})
	} else {
		n.exact[fr.Model] = base
		n.models = append(n.models, Model{ID: fr.Model, Route: fr.Model, Kind: "model"})
	}
	for _, a := range fr.Aliases {
		n.exact[a] = &entry{route: r, model: scope, alias: true}
		n.models = append(n.models, Model{ID: a, Route: fr.Model, Kind: "alias"})
	}
	for _, a := range fr.Adapters {
		n.exact[a] = &entry{route: r, model: fr.Model, adapter: a}
		n.models = append(n.models, Model{ID: a, Route: fr.Model, Kind: "adapter"})
	}
}

// find returns the entry of a name: its own, else that of the longest pattern that
// fits; nil: there is none.
func (n *names) find(model string) *entry {
	if e, ok := n.exact[model]; ok {
		return e
	}
	_, v, found := n.prefix.LongestPrefix(model)
	if e, ok := v.(*entry); found && ok {
		return e
	}
	return nil
}
