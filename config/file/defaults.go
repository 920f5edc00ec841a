package file

import (
	"cmp"

	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/leastwork"
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

func (q *Queue) defaults() {
	c := admission.Config{}.WithDefaults()
	*q = Queue{
		MaxWaiting: c.MaxWaiting, MaxBytes: int(c.MaxBytes), MaxWaitSecs: c.MaxWait.Seconds(),
		AgingSecs: c.Aging.Seconds(), Quantum: c.Quantum, CachedPrice: c.CachedPrice,
		Lookahead: c.Lookahead,
	}
}

func (p *Provider) defaults() {
	*p = Provider{Kind: kindOpenAI, Ranks: 1, Role: RoleBoth, BootstrapPort: 8998}
}

func (d *Disagg) defaults() {
	*d = Disagg{Protocol: "nixl", MinUncached: 1024, PrefillTimeoutSecs: 120, DecodeTimeoutSecs: 30, PinnedSecs: 30}
}

func (k *KVEvents) defaults() { *k = KVEvents{MaxBlocks: 1_000_000, StaleSecs: 30} }

func (l *LMCache) defaults() {
	*l = LMCache{Kind: "auto", RefreshSecs: 2, StaleSecs: 10, TimeoutSecs: 2, Watermark: lmcache.DefaultWatermark}
}

func (r *Route) defaults() { *r = Route{Strategy: leastwork.Name} }

func (t *RouteTarget) defaults() { t.Weight = 1 }

func (t *TokenSource) defaults() {
	*t = TokenSource{Kind: TokensFromHeader, TimeoutSecs: 1, Concurrent: 64, MaxEntries: 16_384, MaxBytes: 64 << 20}
}

// setDefaults puts the defaults of other packages, which these have in WithDefaults, in
// place of zero settings: those of loadview, of router.Options and of the strategies.
func (f *File) setDefaults(strategies map[string]Strategy) {
	f.MaxMemory = cmp.Or(f.MaxMemory, membudget.DefaultLimit)
	f.Health = f.Health.WithDefaults()
	keysOnly(&f.Health)
	f.Adapters = f.Adapters.WithDefaults()
	keysOnly(&f.Adapters)
	for i := range f.Routes {
		r := &f.Routes[i]
		r.Failover = r.Failover.WithDefaults()
		keysOnly(&r.Failover)
		s := strategies[r.Strategy]
		r.strategy = s
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
