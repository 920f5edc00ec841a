package config

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// Gateway is the running form of a file: a router for each route over one fleet. It is
// safe for concurrent use and starts no goroutine before Run. Make one with [Build].
type Gateway struct {
	options  Options
	view     *loadview.View
	holders  *router.Holders // of all routes: targets have the same IDs in each
	poller   *lmcache.Poller
	adapters *adapters.Slots // of all targets
	now      atomic.Pointer[state]
	change   change // of the targets
	tls      *tls.Config

	reloading sync.Mutex           // one Reload at a time; guards the fields below
	leaving   map[string]departure // members that no route offers any more
	subs      map[subscription]*running
	run       context.Context // Run's; nil while it does not run
	viewed    string          // the state.view that the view and the poller have
}

// Build makes a Gateway of a file. It connects to nothing: that is done by Run.
func Build(f *file.File, o Options) (*Gateway, error) {
	if err := o.file().Validate(); err != nil {
		return nil, err
	}
	if o.Peers == nil && o.Share != nil && f.Share.Enabled() {
		var err error
		if o.Peers, o.Holders, err = o.Share(&f.Share); err != nil {
			return nil, fmt.Errorf("config: share: %w", err)
		}
	}
	g := &Gateway{
		options: o, holders: o.Holders,
		leaving: make(map[string]departure), subs: make(map[subscription]*running),
	}
	if g.holders == nil {
		g.holders = new(router.Holders)
	}
	var err error
	if g.tls, err = f.TLS.Config(); err != nil {
		return nil, fmt.Errorf("config: tls: %w", err)
	}
	view := g.viewConfig(f)
	slots := f.Adapters
	slots.Share = o.Peers
	if g.adapters, err = adapters.New(slots); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	view.Trace, view.Share, view.Adapters = g.hooks(o.View), o.Peers, g.adapters
	if g.view, err = loadview.New(view); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	g.poller, err = lmcache.New(lmcache.Config{
		Egress: f.Policy(), TLS: g.tls, Logger: o.Logger, Trace: o.LMCache, Rand: o.Rand,
	})
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if err := g.replace(f); err != nil {
		return nil, err
	}
	return g, nil
}

// hooks returns the hooks t with those of g before them.
func (g *Gateway) hooks(t loadview.Trace) loadview.Trace {
	own := t
	t.Forget = func(id string) {
		g.forget(id)
		if own.Forget != nil {
			own.Forget(id)
		}
	}
	t.StateChanged = func(id string, from, to router.State) {
		if to == router.Ready {
			g.change.notify()
		}
		if own.StateChanged != nil {
			own.StateChanged(id, from, to)
		}
	}
	return t
}

// viewConfig returns the fleet's Config by the file.
func (g *Gateway) viewConfig(f *file.File) loadview.Config {
	c := f.Health
	c.Scrape = loadview.Scrape{Interval: secs(f.MetricsScrape.IntervalSecs), Timeout: secs(f.MetricsScrape.TimeoutSecs)}
	c.Probe = loadview.Probe{
		Interval: secs(f.HealthProbe.IntervalSecs), Timeout: secs(f.HealthProbe.TimeoutSecs),
		Failures: f.HealthProbe.Failures, Successes: f.HealthProbe.Successes,
	}
	c.Egress, c.Trace, c.Rand, c.TLS = f.Policy(), g.options.View, g.options.Rand, g.tls
	return c
}

// forget has the strategies forget a target that is gone or has lost its cache, and the
// state that it had.
func (g *Gateway) forget(id string) {
	g.holders.Forget(id)
	if s := g.now.Load(); s != nil {
		for _, r := range s.routes {
			if f, ok := r.strategy.(router.Forgetter); ok {
				f.Forget(id)
			}
		}
	}
}

// Model is one name that requests can use.
type Model struct {
	// ID is the name, or a pattern with a * at its end.
	ID string
	// Route is the route's own model or pattern; Kind "model", "alias", "adapter" or
	// "pattern".
	Route, Kind string
}

// Match is the route of one request.
type Match struct {
	// Route is the route's model, as the file has it: a name for logs and metrics.
	Route  string
	Router *router.Router
	// Requested is the name in the request. Model and Adapter are for its Prompt: they
	// separate caches. The name to send is that of Rewrite.
	Requested, Model, Adapter string
	// TokenSource is nil if the route has none.
	TokenSource *file.TokenSource
	// Strategy is the strategy's name in the file.
	Strategy string

	alias string // the model that an alias stands for
}

// Prompt returns p with the Model and Adapter that the route's caches go by.
func (m Match) Prompt(p router.Prompt) router.Prompt {
	p.Model = m.Model
	if m.Adapter != "" {
		p.Adapter = m.Adapter
	}
	return p
}

// Rewrite returns the name of the model to send to t: an adapter's own, else the target's
// name for the model, else the route's for an alias, else the name in the request.
func (m Match) Rewrite(t router.Target) string {
	if m.Adapter != "" {
		return m.Adapter
	}
	if ref, ok := t.Ref.(*Target); ok && ref.Model != "" {
		return ref.Model
	}
	if m.alias != "" {
		return m.alias
	}
	return m.Requested
}

// Route returns the route of a model that a request names: the one with this model, alias
// or adapter, else that with the longest pattern that fits. It is false if there is none.
func (g *Gateway) Route(model string) (Match, bool) {
	e := g.now.Load().find(model)
	if e == nil {
		return Match{}, false
	}
	r := e.route
	m := Match{
		Route: r.name, Router: r.router, Requested: model, Model: e.model, Adapter: e.adapter,
		TokenSource: r.source, Strategy: r.by,
	}
	if m.Model == "" {
		m.Model = model
	}
	if e.alias && !strings.HasSuffix(r.name, "*") {
		m.alias = r.name
	}
	return m, true
}

// Holding returns the route of a request that names no model, such as GET
// /v1/responses/{id}: the first one in the file with the target that has the state that
// must, a Prompt.Must, refers to. Of several ids the first that is known decides. It is
// false if none is.
func (g *Gateway) Holding(must []string) (Match, bool) {
	s := g.now.Load()
	for _, id := range must {
		target, ok := g.holders.Holder(id)
		if !ok {
			continue
		}
		for i := range s.file.Routes {
			name := s.file.Routes[i].Model
			if !s.routes[name].has(target) {
				continue
			}
			m, found := g.Route(name)
			m.Requested = ""
			return m, found
		}
	}
	return Match{}, false
}

// TLS returns the settings of connections to engines, which a host's own client uses too. It must not be changed.
func (g *Gateway) TLS() *tls.Config { return g.tls }

// Holders remembers which target has the state that a request refers to, for all routes.
func (g *Gateway) Holders() *router.Holders { return g.holders }

// Models returns the names that requests can use, in the order of the file. The slice is
// the caller's.
func (g *Gateway) Models() []Model { return append([]Model(nil), g.now.Load().models...) }

// File returns the file in place.
func (g *Gateway) File() *file.File { return g.now.Load().file }

// View returns the fleet, for pages and metrics. Its members are the Gateway's.
func (g *Gateway) View() *loadview.View { return g.view }

// Index returns the index of KV events, nil if none are read.
func (g *Gateway) Index() *kvindex.Index { return g.now.Load().index }

// LMCache returns the poller of occupancies, for pages and metrics.
func (g *Gateway) LMCache() *lmcache.Poller { return g.poller }

// Strategy returns the strategy of the route with this model in the file, for
// statistics; nil if there is none.
func (g *Gateway) Strategy(model string) router.Strategy {
	if r := g.now.Load().routes[model]; r != nil {
		return r.strategy
	}
	return nil
}
