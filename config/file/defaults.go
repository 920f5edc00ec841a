package file

import (
	"reflect"

	"github.com/warmroute/router/lmcache"
)

// A defaulter is a table of this package. It is given its defaults before the file is
// read into it.
type defaulter interface{ defaults() }

func (e *Egress) defaults() { e.BlockLinkLocal = true }

func (m *MetricsScrape) defaults() {
	*m = MetricsScrape{IntervalSecs: 5, TimeoutSecs: 2, Path: "/metrics"}
}

func (h *HealthProbe) defaults() {
	*h = HealthProbe{IntervalSecs: 10, TimeoutSecs: 2, Path: "/health", Failures: 3, Successes: 2}
}

func (p *Provider) defaults() { *p = Provider{Kind: kindOpenAI, Ranks: 1} }

func (k *KVEvents) defaults() { *k = KVEvents{MaxBlocks: 1_000_000, StaleSecs: 30} }

func (l *LMCache) defaults() {
	*l = LMCache{Kind: "auto", RefreshSecs: 2, StaleSecs: 10, TimeoutSecs: 2, Watermark: lmcache.DefaultWatermark}
}

func (r *Route) defaults() { *r = Route{Strategy: "round_robin"} }

func (t *RouteTarget) defaults() { t.Weight = 1 }

func (t *TokenSource) defaults() {
	*t = TokenSource{Kind: TokensFromHeader, TimeoutSecs: 1, Concurrent: 64, MaxEntries: 16_384, MaxBytes: 64 << 20}
}

// setDefaults puts the defaults of other packages, which these have in WithDefaults, in
// place of zero settings: those of loadview, of router.Options and of the strategies.
func (f *File) setDefaults(strategies map[string]Strategy) {
	f.Health = f.Health.WithDefaults()
	keysOnly(&f.Health)
	for i := range f.Routes {
		r := &f.Routes[i]
		r.Failover = r.Failover.WithDefaults()
		keysOnly(&r.Failover)
		s := strategies[r.Strategy]
		if s.Config != nil {
			if r.Settings == nil {
				r.Settings = make(map[string]any)
			}
			r.Settings[r.Strategy] = r.settingsOf(s)
			if r.TokenSource != nil && s.TokenSource != nil {
				s.TokenSource(r.Settings[r.Strategy])
			}
		}
		for name, cfg := range r.Settings {
			if s := strategies[name]; s.Defaults != nil {
				s.Defaults(cfg)
			}
		}
	}
}

// keysOnly clears the fields of a Config that stand in no file, such as hooks.
func keysOnly[C any](c *C) {
	old, v := *c, reflect.ValueOf(c).Elem()
	v.SetZero()
	for _, f := range fields(v.Type()) {
		v.Field(f.index).Set(reflect.ValueOf(old).Field(f.index))
	}
}

// Same reports whether a and b, which are tables of a [File] or settings of a strategy,
// have the same value for every key. Fields that stand in no file make no difference.
func Same(a, b any) bool {
	return sameKeys(reflect.ValueOf(a), reflect.ValueOf(b))
}

func sameKeys(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	if a.Kind() == reflect.Pointer {
		return sameKeys(a.Elem(), b.Elem())
	}
	if a.Kind() != reflect.Struct {
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
	for _, f := range fields(a.Type()) {
		if !sameKeys(a.Field(f.index), b.Field(f.index)) {
			return false
		}
	}
	return true
}
