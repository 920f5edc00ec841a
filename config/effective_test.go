package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEffective(t *testing.T) {
	for _, text := range []string{designFile, routesFile, exampleText(t)} {
		f := mustParse(t, text, options())
		out := f.Effective()
		again, err := Parse([]byte(out), options())
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if d := cmp.Diff(out, again.Effective()); d != "" {
			t.Error(d)
		}
		if !reflect.DeepEqual(f.Providers, again.Providers) || !reflect.DeepEqual(f.Health, again.Health) {
			t.Errorf("what was printed is another file:\n%s", out)
		}
		for i := range f.Routes {
			if !reflect.DeepEqual(f.Routes[i].Settings, again.Routes[i].Settings) || !reflect.DeepEqual(f.Routes[i].Failover, again.Routes[i].Failover) {
				t.Errorf("route %d is another one:\n%s", i, out)
			}
		}
		if strings.Contains(out, "sk-1") {
			t.Error("a secret is printed")
		}
	}
	out := mustParse(t, designFile, options()).Effective()
	for _, want := range []string{"stale_secs = 30.0", "[routes.cache_aware]\nthreshold = 0.5", "attempts = 3", "refresh_secs = 2.0", "block_link_local = true", `cool_base = "5s"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// The defaults that are printed are those that the strategies use: what New makes
// of an empty Config keeps the resolved one in a field.
func TestEffectiveDefaults(t *testing.T) {
	for name, m := range Strategies() {
		cfg := m.Config()
		s, err := m.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		resolved := reflect.ValueOf(s).Elem().FieldByName("cfg")
		shown := m.Config()
		resolve(name, shown)
		v := reflect.ValueOf(shown).Elem()
		for _, f := range fields(v.Type()) {
			field := v.Type().Field(f.index).Name
			if !resolved.IsValid() {
				if v.Field(f.index).IsZero() {
					t.Errorf("%s: no default of %s is printed", name, f.key)
				}
				continue
			}
			// MaxNodes and others are handed on, not kept.
			got := resolved.FieldByName(field)
			if got.IsZero() || got.Equal(v.Field(f.index)) {
				continue
			}
			t.Errorf("%s: %s is printed as %v, and used as %v", name, f.key, v.Field(f.index), got)
		}
		for key := range effective[name] {
			if !hasKey(v.Type(), key) {
				t.Errorf("%s has no %s", name, key)
			}
		}
	}
}

func hasKey(t reflect.Type, key string) bool {
	for _, f := range fields(t) {
		if f.key == key {
			return true
		}
	}
	return false
}

// Every plain field of every strategy's Config can be set, and reaches New.
func TestEverySetting(t *testing.T) {
	// Values that every check lets through, for those where no number but a few will do.
	special := map[string]string{
		"precise_cache_aware.fallback": `"text"`, "lmcache_aware.max_nodes": "0", "lmcache_aware.max_bytes": "0",
	}
	left := map[string]bool{"Trie": true, "Sessions": true, "Index": true, "Source": true, "Rand": true, "Now": true, "Trace": true,
		"Scorers": true, "Filters": true, "Selector": true, "Mismatch": true, "FallbackStrategy": true}
	for name, m := range Strategies() {
		typ := reflect.TypeOf(m.Config()).Elem()
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				continue
			}
			if left[f.Name] {
				continue
			}
			key := snake(f.Name)
			if !hasKey(typ, key) {
				t.Errorf("%s: %s is not in the file", name, f.Name)
				continue
			}
			value := ""
			switch f.Type.Kind() {
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
			text := "[[providers]]\nname='a'\napi_base='http://a'\n[[routes]]\nmodel='m'\nstrategy='" + name + "'\ntargets=[{provider='a'}]\n[routes." + name + "]\n" + key + " = " + value + "\n"
			file, err := Parse([]byte(text), options())
			if err != nil {
				t.Errorf("%s.%s: %v", name, key, err)
				continue
			}
			got := reflect.ValueOf(file.Routes[0].Settings[name]).Elem().Field(i)
			want := strings.Trim(value, `"`)
			if f.Type == durationType {
				want = (7 * time.Second).String()
			}
			if s := reflectString(got); s != want {
				t.Errorf("%s.%s is %s, want %s", name, key, s, want)
			}
			if _, err := Build(file, options()); err != nil {
				t.Errorf("%s.%s: %v", name, key, err)
			}
		}
	}
}

func reflectString(v reflect.Value) string {
	s, _ := scalar(v)
	return strings.Trim(s, `"`)
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"Threshold": "threshold", "MaxNodes": "max_nodes", "SessionTTL": "session_ttl", "TTLMax": "ttl_max", "URL": "url", "KVEvents2Go": "kv_events2_go",
	} {
		if got := snake(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
