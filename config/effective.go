package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/consistenthash"
)

// The settings of the strategies, of loadview and of router that a 0 stands for, as
// their packages document them. Durations are written as Go does.
var effective = map[string]map[string]any{
	"cache_aware":     {"threshold": 0.5, "overload_slack": 2.0, "overload_factor": 1.5, "held_share": 0.1, "max_nodes": 1_000_000, "max_bytes": 512 << 20},
	"consistent_hash": {"load_factor": consistenthash.DefaultLoadFactor, "prefix_bytes": consistenthash.DefaultPrefixBytes},
	"least_work": {
		"miss_weight": 5.0, "context_weight": 0.2, "request_tokens": 2048.0, "presume_for": 2 * time.Second, "block_size": 16,
		"max_nodes": 1_000_000, "max_bytes": 512 << 20,
	},
	"lmcache_aware": {"capacity_requests": 4.0, "state_requests": 16.0},
	"pipeline": {
		"static_weight": 1.0, "load_weight": 2.0, "load_half": 4.0, "affinity_weight": 1.0, "session_ttl": 300 * time.Second, "max_sessions": 100_000,
		"overload_slack": 2.0, "overload_factor": 1.5, "max_nodes": 1_000_000, "max_bytes": 512 << 20,
	},
	"precise_cache_aware": {
		"fallback": "least_load", "worth_requests": 8.0, "worth_share": 1.0, "prefill_weight": 0.5, "held_share": 0.1, "presume_for": 2 * time.Second, "block_size": 16,
		"max_nodes": 1_000_000, "max_bytes": 512 << 20,
	},
	"health": {
		"cool_after": loadview.DefaultCoolAfter, "cool_base": loadview.DefaultCoolBase, "cool_max": loadview.DefaultCoolMax,
		"jitter": loadview.DefaultJitter, "retry_after_max": loadview.DefaultRetryAfterMax,
		"breaker_failures": loadview.DefaultBreakerFailures, "breaker_open": loadview.DefaultBreakerOpen,
	},
	"failover": {"attempts": 3, "backoff": 25 * time.Millisecond, "max_backoff": time.Second, "max_retry_after": 2 * time.Second},
}

// resolve puts the defaults in place of the zeros of cfg, a pointer to a struct.
func resolve(name string, cfg any) {
	v := reflect.ValueOf(cfg).Elem()
	for _, f := range fields(v.Type()) {
		if d, ok := effective[name][f.key]; ok && v.Field(f.index).IsZero() {
			if d := reflect.ValueOf(d); d.CanConvert(v.Field(f.index).Type()) {
				v.Field(f.index).Set(d.Convert(v.Field(f.index).Type()))
			}
		}
	}
}

// resolve puts the defaults of other packages in the file.
func (f *File) resolve(makers map[string]Strategy) {
	base, backoff := f.Health.CoolBase, time.Duration(0)
	resolve("health", &f.Health)
	f.Health.CoolMax = max(f.Health.CoolMax, base)
	own := Strategies()
	for i := range f.Routes {
		r := &f.Routes[i]
		backoff = r.Failover.Backoff
		resolve("failover", &r.Failover)
		r.Failover.MaxBackoff = max(r.Failover.MaxBackoff, backoff)
		cfg := settingsOf(r, makers[r.Strategy])
		if cfg == nil {
			continue
		}
		if r.Settings == nil {
			r.Settings = make(map[string]any)
		}
		r.Settings[r.Strategy] = cfg
		for name, cfg := range r.Settings {
			if m := own[name]; m.Config != nil && reflect.TypeOf(m.Config()) == reflect.TypeOf(cfg) {
				resolve(name, cfg)
			}
		}
	}
}

// Effective returns the whole file as TOML, with the defaults where it is silent
// and without comments. Parse reads it as the same file. It has the names of
// secrets, not these.
func (f *File) Effective() string {
	var b strings.Builder
	v := reflect.ValueOf(*f)
	for _, fd := range fields(v.Type()) {
		switch s := v.Field(fd.index); s.Kind() {
		case reflect.Struct:
			writeTable(&b, "["+fd.key+"]", s)
		case reflect.Slice:
			for i := range s.Len() {
				writeTable(&b, "[["+fd.key+"]]", s.Index(i))
			}
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// writeTable writes a table, then those in it.
func writeTable(b *strings.Builder, header string, v reflect.Value) {
	b.WriteString("\n" + header + "\n")
	path := strings.Trim(header, "[]")
	fs := fields(v.Type())
	for _, f := range fs {
		if s, ok := scalar(v.Field(f.index)); ok {
			b.WriteString(f.key + " = " + s + "\n")
		}
	}
	for _, f := range fs {
		switch s := v.Field(f.index); {
		case s.Kind() == reflect.Pointer && !s.IsNil():
			writeTable(b, "["+path+"."+f.key+"]", s.Elem())
		case s.Kind() == reflect.Struct:
			writeTable(b, "["+path+"."+f.key+"]", s)
		case s.Kind() == reflect.Slice && s.Type().Elem().Kind() == reflect.Struct:
			for i := range s.Len() {
				writeTable(b, "[["+path+"."+f.key+"]]", s.Index(i))
			}
		}
	}
	r, ok := v.Interface().(Route)
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		cfg := reflect.ValueOf(r.Settings[name]).Elem()
		if len(fields(cfg.Type())) > 0 {
			writeTable(b, "["+path+"."+quoteKey(name)+"]", cfg)
		}
	}
}

// scalar returns v as TOML has it; false for tables.
func scalar(v reflect.Value) (string, bool) {
	switch k := v.Kind(); {
	case v.Type() == durationType:
		return quote(v.Interface().(time.Duration).String()), true
	case k == reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), true
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), true
	case v.CanFloat():
		s := strings.ToLower(strconv.FormatFloat(v.Float(), 'g', -1, 64))
		if s == "+inf" {
			s = "inf"
		}
		if !strings.ContainsAny(s, ".en") {
			s += ".0"
		}
		return s, true
	case k == reflect.String:
		return quote(v.String()), true
	case k == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		var ss []string
		for i := range v.Len() {
			ss = append(ss, quote(v.Index(i).String()))
		}
		return "[" + strings.Join(ss, ", ") + "]", true
	case k == reflect.Map:
		if v.Len() == 0 {
			return "{}", true
		}
		m, _ := v.Interface().(map[string]string)
		var ss []string
		for _, key := range slices.Sorted(maps.Keys(m)) {
			ss = append(ss, quoteKey(key)+" = "+quote(m[key]))
		}
		return "{ " + strings.Join(ss, ", ") + " }", true
	}
	return "", false
}

func quoteKey(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !bare(r) }) {
		return s
	}
	return quote(s)
}

// quote returns s as a basic string of TOML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
