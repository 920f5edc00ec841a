package config

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/warmroute/router"
)

func (c *checker) route(path string, r *Route, names map[string]int) {
	if !c.good(path) {
		return
	}
	if c.required(path, "model", r.Model) {
		at := child(path, "model")
		if i := strings.IndexByte(r.Model, '*'); i >= 0 && i != len(r.Model)-1 {
			c.fail(at, "%q has a * that is not its end", r.Model)
		}
		c.name(at, r.Model, true)
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"aliases", r.Aliases}, {"adapters", r.Adapters}} {
		for i, n := range list.names {
			c.name(elem(child(path, list.key), i), n, false)
		}
	}
	m := c.makers[r.Strategy]
	if at := child(path, "strategy"); m.New == nil && c.good(at) {
		c.fail(at, "%q is not known; %s", r.Strategy, c.hint(r.Strategy, strategyNames(c.makers)))
	}
	c.tokenSource(child(path, "token_source"), r)
	for name, cfg := range r.Settings {
		at := r.settings[name]
		if _, err := c.makers[name].New(copyOf(cfg)); err != nil {
			c.settingsError(at, reflect.TypeOf(cfg).Elem(), err)
		}
		if name != r.Strategy && m.New != nil {
			c.warn(at, "is not used: the strategy of this route is %s", r.Strategy)
		}
	}
	c.failover(child(path, "failover"), r.Failover)

	targets := child(path, "targets")
	if _, there := c.places[elem(targets, 0)]; !there && c.good(targets) {
		c.problems = append(c.problems, *c.problem(c.at(path).key, display(path), "has no targets; a target begins with [[routes.targets]]"))
	}
	seen := make(map[string]int)
	for i := range r.Targets {
		c.target(elem(targets, i), &r.Targets[i], i, names, seen)
	}
	c.signals(path, r, m, names)
}

// name notes what a request can name, which one route at most may serve.
func (c *checker) name(path, name string, pattern bool) {
	switch first, double := c.served[name]; {
	case !c.good(path):
	case name == "":
		c.fail(path, "is empty")
	case len(name) > maxName:
		c.fail(path, "has more than %d bytes", maxName)
	case !pattern && strings.Contains(name, "*"):
		c.fail(path, "%q has a *; only a model can be a pattern", name)
	case double:
		c.fail(path, "%q is served by %s already", name, first)
	default:
		c.served[name] = display(path)
	}
}

func (c *checker) tokenSource(path string, r *Route) {
	t := r.TokenSource
	if t == nil {
		return
	}
	kinds := []string{TokensFromHeader, TokensFromMemo, TokensFromTokenize}
	known := false
	for _, k := range kinds {
		known = known || t.Kind == k
	}
	if at := child(path, "kind"); !known && c.good(at) {
		c.fail(at, "%q is not known; %s", t.Kind, c.hint(t.Kind, kinds))
	}
	// A source of ids comes with texts, which are better than nothing where ids
	// or events are missing.
	m := c.makers[r.Strategy]
	if index, _ := c.readsOf(r.Strategy, m); !index {
		return
	}
	cfg := settingsOf(r, m)
	if f := reflect.ValueOf(cfg).Elem().FieldByName("Fallback"); f.IsValid() && f.Kind() == reflect.String && f.String() == "" {
		f.SetString("text")
		if r.Settings == nil {
			r.Settings, r.settings = make(map[string]any), make(map[string]string)
		}
		if r.Settings[r.Strategy] == nil {
			r.Settings[r.Strategy], r.settings[r.Strategy] = cfg, path
		}
	}
}

func (c *checker) failover(path string, o router.Options) {
	if o.MaxBackoff < 0 {
		c.fail(child(path, "max_backoff"), "is negative")
	}
	if o.Attempts > 100 {
		c.fail(child(path, "attempts"), "is %d; it must be at most 100", o.Attempts)
	}
}

func (c *checker) target(path string, t *RouteTarget, i int, names, seen map[string]int) {
	if !c.good(path) {
		return
	}
	if at := child(path, "provider"); c.required(path, "provider", t.Provider) {
		if _, known := names[t.Provider]; !known {
			c.fail(at, "there is no provider %q%s", t.Provider, c.providerHint(t.Provider, names))
		}
		if first, double := seen[t.Provider]; double {
			c.fail(at, "%q is targets[%d] of this route too", t.Provider, first)
		} else {
			seen[t.Provider] = i
		}
		c.used[t.Provider] = true
	}
	if at := child(path, "model"); len(t.Model) > maxName && c.good(at) {
		c.fail(at, "has more than %d bytes", maxName)
	}
	if at := child(path, "weight"); c.good(at) && !(t.Weight > 0 && t.Weight <= 1e6) {
		if math.IsInf(t.Weight, 0) || t.Weight > 1e6 {
			c.fail(at, "is %v; it must be at most 1e6", t.Weight)
		} else {
			c.fail(at, "is %v; it must be above 0, and to send nothing to a provider leave it out", t.Weight)
		}
	}
}

// providerHint returns the nearest name of a provider, or all where they are few.
func (c *checker) providerHint(name string, names map[string]int) string {
	if len(names) == 0 || c.hints > maxHints {
		return ""
	}
	if len(names) <= 20 {
		return "; " + c.hint(name, slices.Collect(maps.Keys(names)))
	}
	best, least := "", 65
	for n := range names {
		if d := distance(name, n); d < least || d == least && n < best {
			best, least = n, d
		}
	}
	return "; " + c.hint(name, []string{best})
}

func (c *checker) readsOf(name string, m Strategy) (index, occupancy bool) {
	if _, known := c.reads[name]; !known {
		i, o := reads(m)
		c.reads[name] = readBy{i, o}
	}
	return c.reads[name].index, c.reads[name].occupancy
}

// signals warns where a strategy would read what no provider tells.
func (c *checker) signals(path string, r *Route, m Strategy, names map[string]int) {
	if m.New == nil {
		return
	}
	index, occupancy := c.readsOf(r.Strategy, m)
	var events, caches int
	var mute, blind []string
	for _, t := range r.Targets {
		i, known := names[t.Provider]
		if !known {
			continue
		}
		p := &c.file.Providers[i]
		if p.KVEvents != nil {
			events++
		} else {
			mute = append(mute, p.Name)
		}
		if p.LMCache != nil {
			caches++
		} else {
			blind = append(blind, p.Name)
		}
		c.indexed[p.Name] = c.indexed[p.Name] || index
		c.polled[p.Name] = c.polled[p.Name] || occupancy
	}
	at := child(path, "strategy")
	switch {
	case !index || len(r.Targets) == 0:
	case r.Strategy == "precise_cache_aware" && events == 0:
		c.warn(at, "no provider of this route has kv_events, so precise_cache_aware always does what its fallback says: %s", c.fallback(r, m))
	case r.Strategy == "precise_cache_aware" && c.options.Subscribe == nil:
		c.warn(at, "KV events cannot be read here, so precise_cache_aware always does what its fallback says: %s", c.fallback(r, m))
	case r.Strategy == "precise_cache_aware" && len(mute) > 0:
		c.warn(at, "nothing is known of the caches of %s, which have no kv_events: they neither win nor lose by them", list(mute))
	}
	switch {
	case !occupancy || len(r.Targets) == 0:
	case caches == 0:
		c.warn(at, "no provider of this route has lmcache, so %s always takes the least load", r.Strategy)
	case len(blind) > 0:
		c.warn(at, "nothing is known of the caches of %s, which have no lmcache: they come after those that have room", list(blind))
	}
}

func (c *checker) fallback(r *Route, m Strategy) string {
	if cfg := settingsOf(r, m); cfg != nil {
		if f := reflect.ValueOf(cfg).Elem().FieldByName("Fallback"); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
			return f.String()
		}
	}
	return "least_load"
}

// unused warns of what nobody reads.
func (c *checker) unused() {
	for i := range c.file.Providers {
		p := &c.file.Providers[i]
		path := elem(child("", "providers"), i)
		switch {
		case p.Name == "" || len(c.file.Routes) == 0:
			continue
		case !c.used[p.Name]:
			c.warn(path, "no route has this provider")
			continue
		}
		if p.KVEvents != nil && !c.indexed[p.Name] {
			c.warn(child(path, "kv_events"), "is not followed: no route of this provider has a strategy that reads KV events")
		} else if p.KVEvents != nil && c.options.Subscribe == nil {
			c.warn(child(path, "kv_events"), "KV events cannot be read here")
		}
		if p.LMCache != nil && !c.polled[p.Name] {
			c.warn(child(path, "lmcache"), "is not polled: no route of this provider has a strategy that reads occupancies")
		}
	}
}

func list(names []string) string {
	if len(names) > 5 {
		names = append(names[:5:5], "others")
	}
	return strings.Join(names, ", ")
}
