package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWarnings(t *testing.T) {
	const providers = `
[[providers]]
name = "plain"
api_base = "http://plain"
[[providers]]
name = "full"
api_base = "http://full"
[providers.kv_events]
endpoint = "tcp://full:5557"
[providers.lmcache]
endpoint = "http://full:8100/occupancy"
`
	route := func(strategy string, targets ...string) string {
		s := "[[routes]]\nmodel = 'm'\nstrategy = '" + strategy + "'\n"
		for _, t := range targets {
			s += "[[routes.targets]]\nprovider = '" + t + "'\n"
		}
		return s
	}
	const source = "[routes.token_source]\nkind = 'memo'\n"
	silent := func(o Options) Options { o.Subscribe = nil; return o }
	for name, c := range map[string]struct {
		text string
		o    Options
		want []string
	}{
		"all is told": {route("precise_cache_aware", "full") + route("lmcache_aware", "full", "plain"), options(), []string{
			"routes[1].strategy: nothing is known of the caches of plain, which have no lmcache: they come after those with " +
				"free capacity",
		}},
		"precise without events": {route("precise_cache_aware", "plain"), options(), []string{
			"providers[1]: no route has this provider",
			"routes[0].strategy: no provider of this route has kv_events, so precise_cache_aware always does what its " +
				"fallback says: least_load",
		}},
		"precise without events, with a source": {route("precise_cache_aware", "plain") + source, options(), []string{
			"providers[1]: no route has this provider",
			"routes[0].strategy: no provider of this route has kv_events, so precise_cache_aware always does what its " +
				"fallback says: text",
		}},
		"precise where one has none": {route("precise_cache_aware", "plain", "full"), options(), []string{
			"providers[1].lmcache: is not polled: no route of this provider has a strategy that reads occupancies",
			"routes[0].strategy: nothing is known of the caches of plain, which have no kv_events: they neither win nor lose " +
				"by them",
		}},
		"no subscriber": {route("precise_cache_aware", "full"), silent(options()), []string{
			"providers[1].kv_events: KV events cannot be read here",
			"providers[1].lmcache: is not polled: no route of this provider has a strategy that reads occupancies",
			"routes[0].strategy: KV events cannot be read here, so precise_cache_aware always does what its fallback says: " +
				"least_load",
		}},
		"lmcache without lmcache": {route("lmcache_aware", "plain"), options(), []string{
			"providers[1]: no route has this provider",
			"routes[0].strategy: no provider of this route has lmcache, so lmcache_aware always takes the least load",
		}},
		"a line without places": {route("least_work", "plain") + "[queue]\nenabled = true\n", options(), []string{
			"providers[1]: no route has this provider",
			"queue.enabled: neither requests nor prefill is set, so requests wait only while every target refuses more " +
				"(429, 503 or 529), and never for engines that queue them",
		}},
		"a line with places": {route("least_work", "plain", "full") + "[queue]\nenabled = true\nprefill = 16384\n",
			options(), []string{
				"providers[1].lmcache: is not polled: no route of this provider has a strategy that reads occupancies",
			}},
		"nobody reads": {route("cache_aware", "full") + route("least_work", "plain") + "[routes.pipeline]\n", options(),
			[]string{
				"providers[1].kv_events: is not followed: no route of this provider has a strategy that reads KV events",
				"providers[1].lmcache: is not polled: no route of this provider has a strategy that reads occupancies",
				"routes[1].pipeline: is not used: the strategy of this route is least_work",
			}},
	} {
		text := providers + strings.Replace(c.text, "'m'", "'m0'", 1)
		f := mustParse(t, text, c.o)
		var got []string
		for _, w := range f.Warnings {
			if w.Line == 0 || w.Column == 0 {
				t.Errorf("%s: %v is nowhere", name, w)
			}
			if w.Key != "providers[0]" { // plain is not used everywhere
				got = append(got, w.Key+": "+w.Message)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		// What the warning says is true: with it, everything still runs.
		if g := mustBuild(t, text, c.o); serve(t, g, "m0", promptOf("x")) == "" {
			t.Error(name)
		}
	}
	twice := mustParse(t,
		"[[providers]]\nname='a'\napi_base='http://a'\n[[providers]]\nname='b'\napi_base='http://a'\n[[routes]]\nmodel='m'\ntargets=[{provider='a'},{provider='b'}]\n", options())
	if len(twice.Warnings) != 1 ||
		twice.Warnings[0].String() != "6:1: providers[1].api_base: is the address of providers[0] too; neither counts what "+
			"the other is sent" {
		t.Error(twice.Warnings)
	}
}

func TestTokenSourceImpliesText(t *testing.T) {
	const base = "[[providers]]\nname='a'\napi_base='http://a'\n[[routes]]\nmodel='m'\nstrategy='precise_cache_aware'\ntargets=[{provider='a'}]\n"
	for text, want := range map[string]string{
		"":                        "least_load",
		"[routes.token_source]\n": "text",
		"[routes.token_source]\n[routes.precise_cache_aware]\nfallback='least_load'\n": "least_load",
		"[routes.token_source]\n[routes.precise_cache_aware]\nworth_requests=9\n":      "text",
	} {
		f := mustParse(t, base+text, options())
		if out := f.Effective(); !strings.Contains(out, "fallback = '"+want+"'") {
			t.Errorf("%q:\n%s", text, out)
		}
	}
}
