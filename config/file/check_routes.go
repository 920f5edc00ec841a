package file

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/nearest"
)

func (c *checker) route(path string, r *Route, names map[string]int) {
	if !c.good(path) {
		return
	}
	if c.required(path, "model", r.Model) {
		at := child(path, "model")
		if i := strings.IndexByte(r.Model, '*'); i >= 0 && i != len(r.Model)-1 {
			c.fail(at, r.Model, "%q has a * that is not its end", r.Model)
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
	if at := child(path, "strategy"); c.strategies[r.Strategy].New == nil && c.good(at) {
		c.unknown(at, r.Strategy, slices.Collect(maps.Keys(c.strategies)))
	}
	if t := r.TokenSource; t != nil {
		kinds := []string{TokensFromHeader, TokensFromMemo, TokensFromTokenize}
		if at := child(child(path, "token_source"), "kind"); !slices.Contains(kinds, t.Kind) && c.good(at) {
			c.unknown(at, t.Kind, kinds)
		}
	}
	if d := r.Disagg; d != nil {
		protocols := []string{"nixl", "stored", "sglang", "sidecar"}
		at := child(path, "disagg")
		if p := child(at, "protocol"); !slices.Contains(protocols, d.Protocol) && c.good(p) {
			c.unknown(p, d.Protocol, protocols)
		}
		if s := child(at, "strict"); d.Protocol == "sglang" && !d.Strict && c.good(s) {
			c.mustBe(s, d.Strict, "true with sglang: its decode engines cannot prefill")
		}
	}
	for name, cfg := range r.Settings {
		if _, err := c.strategies[name].New(copyOf(cfg)); err != nil {
			c.settings(child(path, name), reflect.TypeOf(cfg).Elem(), err)
		}
	}
	c.failover(child(path, "failover"), r.Failover)

	targets := child(path, "targets")
	if _, there := c.places[elem(targets, 0)]; !there && c.good(targets) {
		c.failTable(path, "has no targets; a target begins with [[routes.targets]]")
	}
	seen := make(map[string]int)
	for i := range r.Targets {
		c.target(elem(targets, i), &r.Targets[i], i, names, seen)
	}
}

// name checks a name that requests can use, which at most one route may serve.
func (c *checker) name(path, name string, pattern bool) {
	switch first, double := c.served[name]; {
	case !c.good(path):
	case name == "":
		c.fail(path, "", "is empty")
	case len(name) > maxName:
		c.fail(path, nil, "has more than %d bytes", maxName)
	case !pattern && strings.Contains(name, "*"):
		c.fail(path, name, "%q has a *; only a model can be a pattern", name)
	case double:
		c.fail(path, name, "%q is served by %s already", name, first)
	default:
		c.served[name] = display(path)
	}
}

func (c *checker) failover(path string, o router.Options) {
	if o.MaxBackoff < 0 {
		c.fail(child(path, "max_backoff"), o.MaxBackoff, "is negative")
	}
	if o.Attempts > 100 {
		c.mustBe(child(path, "attempts"), o.Attempts, "at most 100")
	}
}

func (c *checker) target(path string, t *RouteTarget, i int, names, seen map[string]int) {
	if !c.good(path) {
		return
	}
	if at := child(path, "provider"); c.required(path, "provider", t.Provider) {
		n, known := names[t.Provider]
		if !known {
			c.fail(at, t.Provider, "there is no provider %q%s", t.Provider, c.providerHint(t.Provider, names))
		}
		if first, double := seen[t.Provider]; double {
			c.fail(at, t.Provider, "%q is targets[%d] of this route too", t.Provider, first)
		} else {
			seen[t.Provider] = i
		}
		c.used[t.Provider] = true
		if known {
			ranks := c.file.Providers[n].Ranks
			if c.offers += ranks; c.offers > maxOffers && c.offers-ranks <= maxOffers {
				c.fail(at, t.Provider, "with its ranks the routes have more than %d targets", maxOffers)
			}
		}
	}
	if at := child(path, "model"); len(t.Model) > maxName && c.good(at) {
		c.fail(at, nil, "has more than %d bytes", maxName)
	}
	if at := child(path, "weight"); c.good(at) && !(t.Weight > 0 && t.Weight <= 1e6) {
		if math.IsInf(t.Weight, 0) || t.Weight > 1e6 {
			c.mustBe(at, t.Weight, "at most 1e6")
		} else {
			c.mustBe(at, t.Weight, "above 0, and to send nothing to a provider leave it out")
		}
	}
}

// providerHint returns the nearest name of a provider, or all names if they are few.
func (c *checker) providerHint(name string, names map[string]int) string {
	if len(names) == 0 || c.hints > maxHints {
		return ""
	}
	if len(names) <= 20 {
		return "; " + c.hint(name, slices.Collect(maps.Keys(names)))
	}
	best, least := "", 65
	for n := range names {
		if d := nearest.Distance(name, n); d < least || d == least && n < best {
			best, least = n, d
		}
	}
	return "; " + c.hint(name, []string{best})
}
