package config

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/armon/go-radix"
	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// make makes a state of a file, with what old has learned, and changes nothing.
// The offers of routes that stay are not in their fleets yet.
func (g *Gateway) make(f *File, old *state) (*state, error) {
	s := &state{
		file: f, routes: make(map[string]*route), exact: make(map[string]*entry), prefix: radix.New(),
		subs: make(map[subscription]bool), bases: make(map[string]string),
		providers: make(map[string]*Provider), indexed: make(map[string]bool), polled: make(map[string]bool),
	}
	for i := range f.Routes { // what nobody reads is not followed
		index, occupancy := reads(g.makers[f.Routes[i].Strategy])
		for _, t := range f.Routes[i].Targets {
			s.indexed[t.Provider] = s.indexed[t.Provider] || index
			s.polled[t.Provider] = s.polled[t.Provider] || occupancy
		}
	}
	if err := g.makeIndex(s, old); err != nil {
		return nil, err
	}
	ids := make(map[string][]offer) // of each provider, without the route's part
	for i := range f.Providers {
		offers, err := g.provider(s, &f.Providers[i])
		if err != nil {
			return nil, err
		}
		ids[f.Providers[i].Name] = offers
		s.providers[f.Providers[i].Name] = &f.Providers[i]
	}
	for i := range f.Routes {
		if err := g.route(s, &f.Routes[i], ids, old); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// makeIndex takes old's index where it still fits.
func (g *Gateway) makeIndex(s, old *state) error {
	if g.options.Subscribe == nil {
		return nil
	}
	for i := range s.file.Providers {
		if k := s.file.Providers[i].KVEvents; k != nil && s.indexed[s.file.Providers[i].Name] {
			s.blocks = max(s.blocks, k.MaxBlocks)
		}
	}
	switch {
	case s.blocks == 0:
		return nil
	case old != nil && old.index != nil && old.blocks == s.blocks:
		s.index = old.index
		return nil
	}
	x, err := kvindex.New(kvindex.Config{MaxBlocks: s.blocks})
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	s.index = x
	return nil
}

// provider adds the members and subscriptions of one provider.
func (g *Gateway) provider(s *state, p *Provider) ([]offer, error) {
	base, err := url.Parse(p.APIBase)
	if err != nil {
		return nil, fmt.Errorf("config: the api_base of %s is no URL", p.Name)
	}
	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1")
	base.RawPath = ""
	header, err := g.header(p.HeadersEnv)
	if err != nil {
		return nil, err
	}
	if p.APIKeyEnv != "" {
		key, ok := g.options.env(p.APIKeyEnv)
		if !ok {
			return nil, fmt.Errorf("config: the environment variable %s is not set", p.APIKeyEnv)
		}
		header.Set("Authorization", "Bearer "+key)
	}
	var offers []offer
	for rank := range p.Ranks {
		m := loadview.Member{ID: p.Name, Header: header}
		t := &Target{Provider: p.Name, Base: base, Rank: -1, Header: header}
		if p.Ranks > 1 {
			m.ID = rankID(p.Name, rank)
			t.Rank, t.Header = rank, header.Clone()
			t.Header.Set(rankHeader, strconv.Itoa(rank))
			m.Rank = strconv.Itoa(rank)
		}
		if s.file.MetricsScrape.Enabled {
			m.Metrics = join(base, s.file.MetricsScrape.Path)
		}
		if s.file.HealthProbe.Enabled {
			m.Health = join(base, s.file.HealthProbe.Path)
		}
		m.Ref = t
		s.bases[m.ID] = base.String()
		offers = append(offers, offer{id: m.ID, at: len(s.members), target: t})
		s.members = append(s.members, m)
	}
	if err := s.subscriptions(p, offers); err != nil {
		return nil, err
	}
	return offers, nil
}

// subscriptions adds those of one provider: one for each rank, or one for all.
func (s *state) subscriptions(p *Provider, offers []offer) error {
	k := p.KVEvents
	if k == nil || s.index == nil || !s.indexed[p.Name] {
		return nil
	}
	sub := subscription{topic: k.Topic, stale: secs(k.StaleSecs), index: s.index}
	if sub.stale == 0 {
		sub.stale = -1 // not at all
	}
	if k.Shared && len(offers) > 1 {
		sub.ranks, offers = len(offers), offers[:1]
	}
	for rank, o := range offers {
		sub.id = o.id
		if sub.ranks > 0 {
			sub.id = p.Name
		}
		var err error
		if sub.endpoint, err = hostPort(k.Endpoint, rank); err != nil {
			return err
		}
		if k.ReplayEndpoint != "" {
			if sub.replay, err = hostPort(k.ReplayEndpoint, rank); err != nil {
				return err
			}
		}
		s.subs[sub] = true
	}
	return nil
}

func rankID(provider string, rank int) string { return provider + "/" + strconv.Itoa(rank) }

// join puts a path, which may have a query, behind a base.
func join(base *url.URL, path string) string { return strings.TrimRight(base.String(), "/") + path }

// header returns headers with their values from the environment.
func (g *Gateway) header(env map[string]string) (http.Header, error) {
	h := make(http.Header)
	for name, variable := range env {
		value, ok := g.options.env(variable)
		if !ok {
			return nil, fmt.Errorf("config: the environment variable %s is not set", variable)
		}
		h.Set(name, value)
	}
	return h, nil
}

// caches returns the LMCaches of a file.
func (g *Gateway) caches(f *File, s *state) ([]lmcache.Provider, error) {
	var ps []lmcache.Provider
	at := 0
	for i := range f.Providers {
		p := &f.Providers[i]
		for range p.Ranks {
			id := s.members[at].ID
			at++
			l := p.LMCache
			if l == nil || !s.polled[p.Name] {
				continue
			}
			header, err := g.header(l.HeadersEnv)
			if err != nil {
				return nil, err
			}
			kind := lmcache.Kind(l.Kind)
			if l.Kind == "auto" {
				kind = lmcache.KindAny
			}
			ps = append(ps, lmcache.Provider{
				ID: id, Endpoint: l.Endpoint, Kind: kind, Header: header, Watermark: l.Watermark,
				Refresh: secs(l.RefreshSecs), Timeout: secs(l.TimeoutSecs), Stale: secs(l.StaleSecs),
			})
		}
	}
	return ps, nil
}

// route adds one route, with its strategy, or that of old where nothing that it is
// made of has changed.
func (g *Gateway) route(s *state, fr *Route, ids map[string][]offer, old *state) error {
	r := &route{name: fr.Model, by: fr.Strategy, source: fr.TokenSource, failover: fr.Failover, rewrites: true}
	for _, t := range fr.Targets {
		for _, o := range ids[t.Provider] {
			target := *o.target
			target.Model = t.Model
			o.target, o.weight = &target, t.Weight
			r.offers = append(r.offers, o)
		}
		r.rewrites = r.rewrites && t.Model != ""
	}
	var was *route
	if old != nil {
		was = old.routes[fr.Model]
	}
	if was != nil {
		r.fleet = was.fleet
	} else {
		r.fleet = &fleet{view: g.view}
		r.fleet.offers.Store(&r.offers)
	}
	if err := g.strategy(s, r, fr, was); err != nil {
		return fmt.Errorf("config: the route %s: %w", fr.Model, err)
	}
	opts := fr.Failover
	opts.Rand = g.options.Rand
	if g.options.Trace != nil {
		opts.Trace = g.options.Trace(fr.Model)
	}
	if was != nil && was.strategy == r.strategy && reflect.DeepEqual(was.failover, r.failover) {
		r.router = was.router
	} else {
		r.router = router.New(r.strategy, r.fleet, opts)
	}
	s.routes[fr.Model] = r
	s.names(r, fr)
	return nil
}

func (g *Gateway) strategy(s *state, r *route, fr *Route, was *route) error {
	m, ok := g.makers[fr.Strategy]
	if !ok {
		return fmt.Errorf("the strategy %q is not known", fr.Strategy)
	}
	r.settings = settingsOf(fr, m)
	cfg := copyOf(r.settings)
	var before *memory
	if was != nil {
		before = &was.memory
	}
	// An index and occupancies are of use where somebody tells of this route's
	// targets.
	for _, t := range fr.Targets {
		switch p := s.providers[t.Provider]; {
		case p == nil:
			return fmt.Errorf("there is no provider %q", t.Provider)
		case p.KVEvents != nil:
			r.memory.index = s.index
		}
		if s.providers[t.Provider].LMCache != nil {
			r.memory.poller = g.poller
		}
	}
	if was != nil && was.by == r.by && was.memory.index == r.memory.index && was.memory.poller == r.memory.poller &&
		reflect.DeepEqual(was.settings, r.settings) {
		r.strategy, r.memory = was.strategy, was.memory
		return nil
	}
	if err := r.memory.fill(cfg, before); err != nil {
		return err
	}
	if cfg != nil && g.options.Rand != nil {
		if f := reflect.ValueOf(cfg).Elem().FieldByName("Rand"); f.IsValid() && f.Type() == reflect.TypeOf(g.options.Rand) && f.IsNil() {
			f.Set(reflect.ValueOf(g.options.Rand))
		}
	}
	made, err := m.New(cfg)
	r.strategy = made
	return err
}

// names adds what requests may name.
func (s *state) names(r *route, fr *Route) {
	prefix, pattern := strings.CutSuffix(fr.Model, "*")
	scope := fr.Model
	if pattern && !r.rewrites {
		scope = "" // each model that fits is another one
	}
	base := &entry{route: r, model: scope}
	if pattern {
		s.prefix.Insert(prefix, base)
		s.models = append(s.models, Model{ID: fr.Model, Route: fr.Model, Kind: "pattern"})
	} else {
		s.exact[fr.Model] = base
		s.models = append(s.models, Model{ID: fr.Model, Route: fr.Model, Kind: "model"})
	}
	for _, a := range fr.Aliases {
		s.exact[a] = &entry{route: r, model: scope, alias: true}
		s.models = append(s.models, Model{ID: a, Route: fr.Model, Kind: "alias"})
	}
	for _, a := range fr.Adapters {
		s.exact[a] = &entry{route: r, model: fr.Model, adapter: a}
		s.models = append(s.models, Model{ID: a, Route: fr.Model, Kind: "adapter"})
	}
}
