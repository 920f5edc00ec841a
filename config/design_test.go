package config

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
)

// The file of the design's section on it, as it is there.
const designFile = `
[egress]
block_private = false

[metrics_scrape]            # engines' queue depth
enabled = true

[[providers]]
name = "vllm-1"
kind = "openai_compatible"
api_base = "http://localhost:8001"
[providers.kv_events]       # precise_cache_aware
endpoint = "tcp://vllm-1:5557"
topic = "kv-events"
[providers.lmcache]         # lmcache_aware
endpoint = "http://vllm-1:8100/occupancy"

[[routes]]
model = "llama"             # exact, or a prefix ending in *; the longest match wins
strategy = "cache_aware"
[[routes.targets]]
provider = "vllm-1"
model = "meta-llama/Llama-3.1-8B-Instruct"
weight = 2
`

func TestDesignFile(t *testing.T) {
	f := mustParse(t, designFile, options())
	want := &file.Provider{
		Name: "vllm-1", Kind: "openai_compatible", APIBase: "http://localhost:8001", Ranks: 1,
		Role: file.RoleBoth, BootstrapPort: 8998,
		KVEvents: &file.KVEvents{Endpoint: "tcp://vllm-1:5557", Topic: "kv-events", MaxBlocks: 1_000_000, StaleSecs: 30},
		LMCache: &file.LMCache{Endpoint: "http://vllm-1:8100/occupancy", Kind: "auto", RefreshSecs: 2, StaleSecs: 10,
			TimeoutSecs: 2, Watermark: 0.6},
	}
	if d := cmp.Diff(want, &f.Providers[0]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(file.MetricsScrape{Enabled: true, IntervalSecs: 5, TimeoutSecs: 2, Path: "/metrics"},
		f.MetricsScrape); d != "" {
		t.Error(d)
	}
	if !f.Egress.BlockLinkLocal || f.Egress.BlockLoopback || f.Egress.BlockPrivate {
		t.Errorf("%+v", f.Egress)
	}
	g := mustBuild(t, designFile, options())
	l, m := mustRoute(t, g, "llama", router.Prompt{Text: "hello"})
	defer l.Done(router.Outcome{Stage: router.Finished})
	got := l.Decision().Target
	if got.ID != "vllm-1" || got.Weight != 2 || m.Rewrite(got) != "meta-llama/Llama-3.1-8B-Instruct" {
		t.Errorf("%+v, %q", got, m.Rewrite(got))
	}
	if ref := got.Ref.(*Target); ref.Base.String() != "http://localhost:8001" || ref.Rank != -1 {
		t.Errorf("%+v", ref)
	}
	if _, ok := g.Route("llama-2"); ok {
		t.Error("llama-2 is not llama")
	}
}

const routesFile = `
[[providers]]
name = "a"
api_base = "http://a:8000/v1/"
api_key_env = "KEY"
headers_env = { "X-Team" = "TEAM" }
[[providers]]
name = "dp"
api_base = "http://dp:8000"
ranks = 3
[providers.kv_events]
endpoint = "tcp://dp:5557"
replay_endpoint = "tcp://dp:6557"
[[routes]]
model = "llama"
strategy = "round_robin"
aliases = ["gpt-4o", "best"]
adapters = ["sql"]
targets = [{ provider = "a", model = "meta/llama" }, { provider = "dp" }]
[[routes]]
model = "llama-*"
targets = [{ provider = "a" }]
[[routes]]
model = "llama-3*"
strategy = "precise_cache_aware"
targets = [{ provider = "dp", model = "l3" }]
[[routes]]
model = "*"
strategy = "least_load"
targets = [{ provider = "a" }]
`

func TestRoute(t *testing.T) {
	g := mustBuild(t, routesFile, options())
	for _, c := range []struct{ model, route, scope, adapter string }{
		{"llama", "llama", "llama", ""},
		{"gpt-4o", "llama", "llama", ""},
		{"sql", "llama", "llama", "sql"},
		{"llama-2", "llama-*", "llama-2", ""},
		{"llama-", "llama-*", "llama-", ""},
		{"llama-3", "llama-3*", "llama-3*", ""},
		{"llama-3.1", "llama-3*", "llama-3*", ""},
		{"Llama", "*", "Llama", ""},
		{"", "*", "", ""},
	} {
		m, ok := g.Route(c.model)
		p := m.Prompt(router.Prompt{Model: "x"})
		if !ok || m.Route != c.route || p.Model != c.scope || p.Adapter != c.adapter {
			t.Errorf("%q: %+v, %+v", c.model, m, p)
		}
	}
	m, _ := g.Route("gpt-4o")
	a, dp := router.Target{Ref: &Target{Model: "meta/llama"}}, router.Target{Ref: &Target{}}
	if got := []string{m.Rewrite(a), m.Rewrite(dp)}; got[0] != "meta/llama" || got[1] != "llama" {
		t.Error(got)
	}
	if m, _ = g.Route("sql"); m.Rewrite(a) != "sql" {
		t.Error(m.Rewrite(a))
	}
	want := []Model{
		{"llama", "llama", "model"}, {"gpt-4o", "llama", "alias"}, {"best", "llama", "alias"}, {"sql", "llama", "adapter"},
		{"llama-*", "llama-*", "pattern"}, {"llama-3*", "llama-3*", "pattern"}, {"*", "*", "pattern"},
	}
	if d := cmp.Diff(want, g.Models()); d != "" {
		t.Error(d)
	}
	if m, _ := g.Route("llama-3"); m.Router == nil {
		t.Fatal("no router")
	}
}

func TestTargets(t *testing.T) {
	var subs []Subscription
	o := options()
	o.Subscribe = func(s Subscription) (Runner, error) { subs = append(subs, s); return idle{}, nil }
	g := mustBuild(t, routesFile, o)
	refs := make(map[string]*Target)
	for range 4 { // a turn for each
		l, _ := mustRoute(t, g, "llama", router.Prompt{})
		refs[l.Decision().Target.ID] = l.Decision().Target.Ref.(*Target)
		l.Done(router.Outcome{Stage: router.Finished})
	}
	if a := refs["a"]; a == nil || a.Base.String() != "http://a:8000" || a.Model != "meta/llama" ||
		cmp.Diff(http.Header{"Authorization": {"Bearer sk-1"}, "X-Team": {"blue"}}, a.Header) != "" {
		t.Errorf("%+v", a)
	}
	for rank, id := range []string{"dp/0", "dp/1", "dp/2"} {
		if r := refs[id]; r == nil || r.Rank != rank || r.Header.Get("X-data-parallel-rank") != string(rune('0'+rank)) ||
			r.Provider != "dp" {
			t.Errorf("%s: %+v", id, r)
		}
	}
	s := g.now.Load()
	ends := make(map[string][2]string)
	for sub := range s.subs {
		ends[sub.id] = [2]string{sub.endpoint, sub.replay}
		if sub.stale != 30*time.Second {
			t.Errorf("%+v", sub)
		}
	}
	want := map[string][2]string{
		"dp/0": {"tcp://dp:5557", "tcp://dp:6557"}, "dp/1": {"tcp://dp:5558", "tcp://dp:6558"},
		"dp/2": {"tcp://dp:5559", "tcp://dp:6559"},
	}
	if d := cmp.Diff(want, ends); d != "" {
		t.Error(d)
	}
	o.Subscribe = func(Subscription) (Runner, error) { return idle{}, nil }
	shared := mustBuild(t, strings.Replace(routesFile, "tcp://dp:5557\"", "tcp://dp:5557\"\nshared = true", 1), o)
	for sub := range shared.now.Load().subs {
		if d := cmp.Diff([]string{"dp/0", "dp/1", "dp/2"}, sub.targets()); d != "" || sub.id != "dp" ||
			sub.endpoint != "tcp://dp:5557" {
			t.Errorf("%+v: %s", sub, d)
		}
	}
	if n := len(shared.now.Load().subs); n != 1 {
		t.Errorf("%d subscriptions to one stream", n)
	}
	if len(subs) != 0 {
		t.Error("Build subscribed to something")
	}
}
