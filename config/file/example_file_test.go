package file

import (
	"os"
	"reflect"
	"testing"
)

func exampleText(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("../router.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The example has every key, and its values are the defaults; its effective form has
// every key too.
func TestExampleFile(t *testing.T) {
	text := exampleText(t)
	f := mustParse(t, text, options())
	if len(f.Warnings) > 0 {
		t.Errorf("%v", f.Warnings)
	}

	// Every key is in it.
	s, p := parse([]byte(text))
	if p != nil {
		t.Fatal(p)
	}
	missing := func(path string, t reflect.Type) (keys []string) {
		for _, f := range fields(t) {
			if _, ok := s.places[child(path, f.key)]; !ok {
				if _, ok := s.places[elem(child(path, f.key), 0)]; !ok {
					keys = append(keys, display(child(path, f.key)))
				}
			}
		}
		return keys
	}
	providers, routes := elem(child("", "providers"), 0), elem(child("", "routes"), 0)
	for path, typ := range map[string]reflect.Type{
		"": reflect.TypeFor[File](), child("", "egress"): reflect.TypeFor[Egress](),
		child("", "metrics_scrape"): reflect.TypeFor[MetricsScrape](),
		child("", "health_probe"):   reflect.TypeFor[HealthProbe](), child("", "health"): reflect.TypeOf(f.Health),
		providers: reflect.TypeFor[Provider](), child(providers, "kv_events"): reflect.TypeFor[KVEvents](),
		child(providers, "lmcache"):                         reflect.TypeFor[LMCache](),
		elem(child(routes, "targets"), 0):                   reflect.TypeFor[RouteTarget](),
		child(routes, "disagg"):                             reflect.TypeFor[Disagg](),
		child(routes, "failover"):                           reflect.TypeOf(f.Routes[0].Failover),
		child(elem(child("", "routes"), 1), "token_source"): reflect.TypeFor[TokenSource](),
	} {
		if keys := missing(path, typ); len(keys) > 0 {
			t.Errorf("the example lacks %v", keys)
		}
	}
	for _, fd := range fields(reflect.TypeFor[Route]()) {
		if fd.key != "token_source" && len(missing(routes, reflect.TypeFor[Route]())) > 1 { // it is shown at the second route
			t.Errorf("the example lacks %v", missing(routes, reflect.TypeFor[Route]()))
			break
		}
	}
	for name, m := range Strategies() {
		typ := reflect.TypeOf(m.Config()).Elem()
		if len(fields(typ)) == 0 {
			continue
		}
		found := false
		for i, r := range f.Routes {
			if r.Strategy != name {
				continue
			}
			found = true
			if keys := missing(child(elem(child("", "routes"), i), name), typ); len(keys) > 0 {
				t.Errorf("the example lacks %v", keys)
			}
		}
		if !found {
			t.Errorf("the example has no %s", name)
		}
	}

	all, p := parse([]byte(f.Effective()))
	if p != nil {
		t.Fatal(p)
	}
	for path := range s.places {
		_, ok := all.places[path]
		if _, array := all.places[elem(path, 0)]; !ok && !array {
			t.Errorf("%s is not in the effective file", display(path))
		}
	}

	// What it calls a default is one: a file that is silent is the same.
	silent := mustParse(t,
		"[[providers]]\nname='vllm-1'\napi_base='http://vllm-1:8000'\n[[routes]]\nmodel='m'\nstrategy='cache_aware'\ntargets=[{provider='vllm-1'}]\n", options())
	if !Same(silent.Egress, f.Egress) || silent.MetricsScrape != f.MetricsScrape ||
		silent.HealthProbe != f.HealthProbe || !Same(silent.Health, f.Health) ||
		!Same(silent.Routes[0].Failover, f.Routes[0].Failover) {
		t.Errorf("the defaults are\n%s", silent.Effective())
	}
	for _, r := range f.Routes {
		if r.Strategy == "lmcache_aware" || r.Strategy == "precise_cache_aware" { // shown with more than the defaults
			continue
		}
		want := mustParse(t, "[[providers]]\nname='a'\napi_base='http://a'\n"+
			"[[routes]]\nmodel='m'\nstrategy='"+r.Strategy+"'\ntargets=[{provider='a'}]\n", options())
		if !Same(want.Routes[0].Settings[r.Strategy], r.Settings[r.Strategy]) ||
			len(r.Settings) != len(want.Routes[0].Settings) {
			t.Errorf("%s: the defaults are\n%s", r.Strategy, want.Effective())
		}
	}
}
