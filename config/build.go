package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/armon/go-radix"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// A state is all that one file made. It is not changed once it is in place.
type state struct {
	file    *file.File
	members []loadview.Member
	caches  []lmcache.Target
	subs    map[subscription]bool
	index   *kvindex.Index
	bounds  bounds            // that the index was made for
	bases   map[string]string // the address of each target, by ID
	view    string            // the settings of the fleet; equal ones are the same
	queue   *admission.Queue  // nil: there is none
	routes  map[string]*route // by Route.Model

	queueConfig admission.Config
	names
}

// A builder makes a state of a file, and takes over the indexes and memories of the state
// before. It changes neither that one nor the Gateway.
type builder struct {
	*state
	gateway *Gateway
	old     *state // nil: there is none

	providers       map[string]*file.Provider
	offers          map[string][]offer // of each provider, without the route's part
	indexed, polled map[string]bool    // providers with events and occupancies that a route reads
}

// build makes the state of f. The offers of routes that stay are not in their fleets
// yet.
func (g *Gateway) build(f *file.File, old *state) (*state, error) {
	b := &builder{
		state: &state{
			file: f, subs: make(map[subscription]bool), bases: make(map[string]string), routes: make(map[string]*route),
			names: names{exact: make(map[string]*entry), prefix: radix.New()},
		},
		gateway: g, old: old,
		providers: make(map[string]*file.Provider), offers: make(map[string][]offer),
		indexed: make(map[string]bool), polled: make(map[string]bool),
	}
	b.view = fmt.Sprint(f.Egress, f.MetricsScrape, f.HealthProbe, f.Health)
	b.readers()
	if err := b.setQueue(&f.Queue, g.options, old); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if err := b.makeIndex(); err != nil {
		return nil, err
	}
	for i := range f.Providers {
		if err := b.provider(&f.Providers[i], fmt.Sprintf("providers[%d]", i)); err != nil {
			return nil, err
		}
	}
	for i := range f.Routes {
		if err := b.route(&f.Routes[i]); err != nil {
			return nil, fmt.Errorf("config: the route %s: %w", f.Routes[i].Model, err)
		}
	}
	return b.state, nil
}

// readers finds the providers with events and occupancies that a strategy reads; those of
// the others are not followed.
func (b *builder) readers() {
	for i := range b.file.Routes {
		s, _ := b.file.Routes[i].Made()
		for _, t := range b.file.Routes[i].Targets {
			b.indexed[t.Provider] = b.indexed[t.Provider] || s.ReadsIndex
			b.polled[t.Provider] = b.polled[t.Provider] || s.ReadsOccupancy
		}
	}
}

// makeIndex takes the index of the state before if its bounds are the same.
func (b *builder) makeIndex() error {
	if b.gateway.options.Subscribe == nil {
		return nil
	}
	for i := range b.file.Providers {
		if k := b.file.Providers[i].KVEvents; k != nil && b.indexed[b.file.Providers[i].Name] {
			b.bounds.join(k)
		}
	}
	switch {
	case b.bounds.blocks == 0:
		return nil
	case b.old != nil && b.old.index != nil && b.old.bounds == b.bounds:
		b.index = b.old.index
		return nil
	}
	x, err := kvindex.New(b.bounds.config(b.gateway.adapters))
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	b.index = x
	return nil
}

// provider adds the members, LMCaches and subscriptions of p, which stands at key.
func (b *builder) provider(p *file.Provider, key string) error {
	base, err := baseURL(p.APIBase)
	if err != nil {
		return fmt.Errorf("config: %s.api_base is not a URL", key)
	}
	header, err := b.gateway.options.header(key, p.HeadersEnv)
	if err != nil {
		return err
	}
	if p.APIKeyEnv != "" {
		secret, err := b.gateway.options.env(key+".api_key_env", p.APIKeyEnv)
		if err != nil {
			return err
		}
		header.Set("Authorization", "Bearer "+secret)
	}
	var offers []offer
	for rank := range p.Ranks {
		m := loadview.Member{ID: p.Name, Header: header}
		t := &Target{Provider: p.Name, Base: base, Rank: -1, Header: header,
			Role: p.Role, Zone: p.Zone, Connector: p.Connector, BootstrapPort: p.BootstrapPort}
		if p.Ranks > 1 {
			m.ID = rankID(p.Name, rank)
			t.Rank, t.Header = rank, header.Clone()
			t.Header.Set(file.RankHeader, strconv.Itoa(rank))
			m.Rank = strconv.Itoa(rank)
		}
		if b.file.MetricsScrape.Enabled {
			m.Metrics = join(base, b.file.MetricsScrape.Path)
		}
		if b.file.HealthProbe.Enabled {
			m.Health = join(base, b.file.HealthProbe.Path)
		}
		m.Ref = t
		b.bases[m.ID] = base.String()
		offers = append(offers, offer{id: m.ID, at: len(b.members), target: t})
		b.members = append(b.members, m)
	}
	b.providers[p.Name], b.offers[p.Name] = p, offers
	if err := b.lmcaches(p, key, offers); err != nil {
		return err
	}
	return b.subscriptions(p, offers)
}

// baseURL returns an api_base without a slash or a /v1 at its end. An escape in its path
// stays one.
func baseURL(apiBase string) (*url.URL, error) {
	u, err := url.Parse(apiBase)
	if err != nil {
		return nil, err
	}
	u.RawPath = strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/v1")
	u.Path, err = url.PathUnescape(u.RawPath)
	return u, err
}

// join puts a path, which may have a query, behind a base.
func join(base *url.URL, path string) string { return strings.TrimRight(base.String(), "/") + path }

func rankID(provider string, rank int) string { return provider + "/" + strconv.Itoa(rank) }

// header returns the headers of the table at key with their values from the environment.
func (o Options) header(key string, env map[string]string) (http.Header, error) {
	h := make(http.Header)
	for name, variable := range env {
		value, err := o.env(key+".headers_env."+name, variable)
		if err != nil {
			return nil, err
		}
		h.Set(name, value)
	}
	return h, nil
}

// lmcaches adds the LMCache of p, once for each target.
func (b *builder) lmcaches(p *file.Provider, key string, offers []offer) error {
	l := p.LMCache
	if l == nil || !b.polled[p.Name] {
		return nil
	}
	header, err := b.gateway.options.header(key+".lmcache", l.HeadersEnv)
	if err != nil {
		return err
	}
	kind := lmcache.Kind(l.Kind)
	if l.Kind == "auto" {
		kind = lmcache.KindAny
	}
	for _, o := range offers {
		b.caches = append(b.caches, lmcache.Target{
			ID: o.id, Endpoint: l.Endpoint, Kind: kind, Header: header, Watermark: l.Watermark,
			Refresh: secs(l.RefreshSecs), Timeout: secs(l.TimeoutSecs), Stale: secs(l.StaleSecs),
		})
	}
	return nil
}

// A subscription is one stream of KV events; two that are equal are the same one.
type subscription struct {
	id, endpoint, replay, topic string
	ranks                       int // that share the stream; 0: there is one
	stale                       time.Duration
	index                       *kvindex.Index
	egress                      string // the policy; equal ones are the same
}

// targets returns the IDs of the targets that the stream speaks of.
func (s subscription) targets() []string {
	if s.ranks == 0 {
		return []string{s.id}
	}
	ids := make([]string, s.ranks)
	for i := range ids {
		ids[i] = rankID(s.id, i)
	}
	return ids
}

// subscriptions adds those of p: one for each rank, or one for all.
func (b *builder) subscriptions(p *file.Provider, offers []offer) error {
	k := p.KVEvents
	if k == nil || b.index == nil || !b.indexed[p.Name] {
		return nil
	}
	sub := subscription{topic: k.Topic, stale: secs(k.StaleSecs), index: b.index, egress: fmt.Sprint(b.file.Egress)}
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
		b.subs[sub] = true
	}
	return nil
}

// hostPort returns the tcp endpoint of a rank: the port of the first rank plus the
// rank's number, as engines choose it.
func hostPort(endpoint string, rank int) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", errors.New("config: an endpoint is not tcp://host:port")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port+rank > math.MaxUint16 {
		return "", fmt.Errorf("config: %s has no port for rank %d", endpoint, rank)
	}
	return "tcp://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(port+rank)), nil
}
