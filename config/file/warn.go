package file

import (
	"strings"

	"github.com/warmroute/router/strategy/precisecacheaware"
)

// warnings adds the warnings of a file without problems. Its defaults are in place.
func (c *checker) warnings() {
	bases := make(map[string]int)
	byName := make(map[string]*Provider)
	for i := range c.file.Providers {
		p := &c.file.Providers[i]
		byName[p.Name] = p
		if first, double := bases[p.APIBase]; double {
			c.warn(child(elem(child("", "providers"), i), "api_base"),
				"is the address of providers[%d] too; neither counts what the other is sent", first)
		} else {
			bases[p.APIBase] = i
		}
	}
	for i := range c.file.Routes {
		path, r := elem(child("", "routes"), i), &c.file.Routes[i]
		for name := range r.Settings {
			if name != r.Strategy {
				c.warn(child(path, name), "is not used: the strategy of this route is %s", r.Strategy)
			}
		}
		c.signals(child(path, "strategy"), r, byName)
	}
	if q := &c.file.Queue; q.Enabled && q.Requests == 0 && q.Prefill == 0 {
		c.warn(child(child("", "queue"), "enabled"), "neither requests nor prefill is set, so requests wait only while "+
			"every target refuses more (429, 503 or 529), and never for engines that queue them")
	}
	c.unused()
}

// signals warns if the route's strategy reads events or occupancies that not all of its
// providers publish.
func (c *checker) signals(at string, r *Route, byName map[string]*Provider) {
	s := c.strategies[r.Strategy]
	var mute, blind []string
	for _, t := range r.Targets {
		p := byName[t.Provider]
		if p.KVEvents == nil {
			mute = append(mute, p.Name)
		}
		if p.LMCache == nil {
			blind = append(blind, p.Name)
		}
		c.indexed[p.Name] = c.indexed[p.Name] || s.ReadsIndex
		c.polled[p.Name] = c.polled[p.Name] || s.ReadsOccupancy
	}
	if cfg, ok := r.Settings[r.Strategy].(*precisecacheaware.Config); ok && r.Strategy == precisecacheaware.Name {
		const always = "so precise_cache_aware always does what its fallback says: "
		switch {
		case len(mute) == len(r.Targets):
			c.warn(at, "no provider of this route has kv_events, "+always+"%s", cfg.Fallback)
		case !c.options.KVEvents:
			c.warn(at, "KV events cannot be read here, "+always+"%s", cfg.Fallback)
		case len(mute) > 0:
			c.warn(at, "nothing is known of the caches of %s, which have no kv_events: they neither win nor lose by them",
				list(mute))
		}
	}
	switch {
	case !s.ReadsOccupancy:
	case len(blind) == len(r.Targets):
		c.warn(at, "no provider of this route has lmcache, so %s always takes the least load", r.Strategy)
	case len(blind) > 0:
		c.warn(at, "nothing is known of the caches of %s, which have no lmcache: they come after those with free capacity",
			list(blind))
	}
}

// unused warns of providers, events and LMCaches that no route reads.
func (c *checker) unused() {
	for i := range c.file.Providers {
		p := &c.file.Providers[i]
		path := elem(child("", "providers"), i)
		switch {
		case !c.used[p.Name]:
			c.warn(path, "no route has this provider")
			continue
		}
		if p.KVEvents != nil && !c.indexed[p.Name] {
			c.warn(child(path, "kv_events"), "is not followed: no route of this provider has a strategy that reads KV events")
		} else if p.KVEvents != nil && !c.options.KVEvents {
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
