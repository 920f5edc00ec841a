package file

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEffective(t *testing.T) {
	for _, text := range []string{whole, exampleText(t)} {
		f := mustParse(t, text, options())
		out := f.Effective()
		again := mustParse(t, out, options())
		if d := cmp.Diff(out, again.Effective()); d != "" {
			t.Error(d)
		}
		if !reflect.DeepEqual(f.Providers, again.Providers) || !Same(f.Egress, again.Egress) ||
			!Same(f.Health, again.Health) ||
			f.MetricsScrape != again.MetricsScrape || f.HealthProbe != again.HealthProbe || len(f.Routes) != len(again.Routes) {
			t.Errorf("what was written is another file:\n%s", out)
		}
		for i, r := range f.Routes {
			a := again.Routes[i]
			for name, cfg := range r.Settings {
				if !Same(cfg, a.Settings[name]) {
					t.Errorf("route %d has another %s:\n%s", i, name, out)
				}
			}
			if !Same(r.Failover, a.Failover) || !reflect.DeepEqual(r.Targets, a.Targets) ||
				!reflect.DeepEqual(r.TokenSource, a.TokenSource) ||
				len(r.Settings) != len(a.Settings) || r.Model != a.Model || r.Strategy != a.Strategy {
				t.Errorf("route %d is another one:\n%s", i, out)
			}
		}
		if strings.Contains(out, "sk-1") {
			t.Error("a secret is printed")
		}
	}
	out := mustParse(t, whole, options()).Effective()
	for _, want := range []string{
		"stale_secs = 30.0", "[routes.cache_aware]\nthreshold = 0.5", "attempts = 3", "refresh_secs = 2.0",
		"block_link_local = true",
		"cool_base = '5s'", "headers_env = {X-Team = 'TEAM'}", "aliases = []", "load_factor = inf",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// whole has each kind of table.
const whole = `
[[providers]]
name = "a\"quoted\"name"
api_base = "http://a:8000"
headers_env = { X-Team = "TEAM" }
[[providers]]
name = "vllm-1"
api_base = "http://vllm-1:8000"
api_key_env = "KEY"
ranks = 2
[providers.kv_events]
endpoint = "tcp://vllm-1:5557"
[providers.lmcache]
endpoint = "http://vllm-1:8100/occupancy"
[[routes]]
model = "m"
strategy = "cache_aware"
targets = [{ provider = "vllm-1", weight = 0.25 }]
[routes.pipeline]
session_ttl = "1h"
[[routes]]
model = "*"
strategy = "consistent_hash"
targets = [{ provider = "vllm-1" }]
token_source = { kind = "memo" }
[routes.consistent_hash]
load_factor = inf
`

// The defaults that are written are those that the strategies use.
func TestEffectiveDefaults(t *testing.T) {
	for name, s := range Strategies() {
		cfg := s.Config()
		s.Defaults(cfg)
		again := copyOf(cfg)
		s.Defaults(again)
		if !Same(cfg, again) {
			t.Errorf("%s: the defaults of %+v are %+v", name, cfg, again)
		}
		if _, err := s.New(cfg); err != nil {
			t.Errorf("%s does not take its own defaults: %v", name, err)
		}
	}
}

// Every plain field of every strategy's Config can be set, and reaches New.
func TestEverySetting(t *testing.T) {
	// Values that every check lets through, for keys that take only a few.
	special := map[string]string{
		"precise_cache_aware.fallback": `"text"`, "lmcache_aware.max_nodes": "0", "lmcache_aware.max_bytes": "0",
	}
	left := map[string]bool{"Trie": true, "Sessions": true, "Index": true, "Source": true, "Rand": true, "Now": true,
		"Trace": true, "Share": true, "Adapters": true,
		"Scorers": true, "Filters": true, "Selector": true, "Mismatch": true, "FallbackStrategy": true}
	for name, m := range Strategies() {
		typ := reflect.TypeOf(m.Config()).Elem()
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !field.IsExported() || left[field.Name] {
				continue
			}
			key := keyOf(typ, field.Name)
			if key != snake(field.Name) {
				t.Errorf("%s: %s is not in the file", name, field.Name)
				continue
			}
			value := ""
			switch field.Type.Kind() {
			case reflect.Bool:
				value = "true"
			case reflect.String:
				value = `""`
			case reflect.Float64:
				value = "0.75"
				if strings.Contains(key, "factor") {
					value = "1.75"
				}
			default:
				value = "7"
			}
			if s := special[name+"."+key]; s != "" {
				value = s
			}
			text := "[[providers]]\nname='a'\napi_base='http://a'\n[[routes]]\nmodel='m'\nstrategy='" + name +
				"'\ntargets=[{provider='a'}]\n[routes." + name + "]\n" + key + " = " + value + "\n"
			f, err := Parse("", []byte(text), options())
			if err != nil {
				t.Errorf("%s.%s: %v", name, key, err)
				continue
			}
			got := reflect.ValueOf(f.Routes[0].Settings[name]).Elem().Field(i)
			want := strings.Trim(value, `"`)
			if field.Type == durationType {
				want = (7 * time.Second).String()
			}
			if s := fmt.Sprint(got.Interface()); s != want {
				t.Errorf("%s.%s is %s, want %s", name, key, s, want)
			}
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"Threshold": "threshold", "MaxNodes": "max_nodes", "SessionTTL": "session_ttl", "TTLMax": "ttl_max", "URL": "url",
		"KVEvents2Go": "kv_events2_go",
	} {
		if got := snake(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
