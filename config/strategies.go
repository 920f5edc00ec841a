package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/trie"
)

// Strategy is how a strategy is made from a file.
type Strategy struct {
	// Config returns a pointer to a new Config struct, whose plain fields are the
	// keys of the table [routes.NAME] in snake case. nil: there is no such table,
	// and New is given nil.
	//
	// Fields of the types *trie.Trie, *pipeline.Sessions and *kvindex.Index, and
	// those that a *lmcache.Poller can be assigned to, are filled in where they are
	// nil and there is something to fill them with. MaxNodes, MaxBytes and
	// MaxSessions are 0 then.
	Config func() any
	// New makes the strategy, once to check the file and then for each route. It
	// starts nothing. Of its error each line that names a field is shown at that
	// field's key.
	New func(cfg any) (router.Strategy, error)
}

func maker[C any, S router.Strategy](make func(C) (S, error)) Strategy {
	return Strategy{
		Config: func() any { return new(C) },
		New: func(cfg any) (router.Strategy, error) {
			c, ok := cfg.(*C)
			if !ok {
				return nil, errors.New("config: this is another strategy's Config")
			}
			s, err := make(*c)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	}
}

// Strategies returns the library's own, by name. The map is the caller's.
func Strategies() map[string]Strategy {
	return map[string]Strategy{
		cacheaware.Name:        maker(cacheaware.New),
		consistenthash.Name:    maker(consistenthash.New),
		leastload.Name:         maker(leastload.New),
		leastwork.Name:         maker(leastwork.New),
		lmcacheaware.Name:      maker(lmcacheaware.New),
		pipeline.Name:          maker(pipeline.New),
		poweroftwo.Name:        maker(poweroftwo.New),
		precisecacheaware.Name: maker(precisecacheaware.New),
		random.Name:            maker(random.New),
		roundrobin.Name:        maker(roundrobin.New),
	}
}

// makers returns all strategies that a file can name.
func (o Options) makers() (map[string]Strategy, error) {
	all := Strategies()
	reserved := make(map[string]bool)
	for _, f := range fields(reflect.TypeFor[Route]()) {
		reserved[f.key] = true
	}
	for name, s := range o.Strategies {
		if name == "" || reserved[name] || s.New == nil {
			return nil, errors.New("config: Options.Strategies: " + `"` + name + `" is no name for a strategy, or it has no New`)
		}
		all[name] = s
	}
	return all, nil
}

// settingsOf returns the Config of the route's own strategy: what the file says,
// or an empty one. nil: the strategy has none.
func settingsOf(r *Route, m Strategy) any {
	if m.Config == nil {
		return nil
	}
	if cfg := r.Settings[r.Strategy]; cfg != nil {
		return cfg
	}
	return m.Config()
}

// copyOf returns a pointer to a copy of the struct that cfg points to.
func copyOf(cfg any) any {
	if cfg == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(cfg).Elem())
	v.Elem().Set(reflect.ValueOf(cfg).Elem())
	return v.Interface()
}

// A memory is what a strategy learns beside itself, so that it outlives a change
// of the route's settings.
type memory struct {
	trie            *trie.Trie
	nodes, bytes    int64
	sessions        *pipeline.Sessions
	maxSessions     int64
	index           *kvindex.Index
	poller          *lmcache.Poller
	hasIndex, hasLM bool // whether the strategy takes one
}

// fill sets the fields of cfg, a copy, that stand for what was learned or is read
// from elsewhere. What fits of old is used again.
func (m *memory) fill(cfg any, old *memory) error {
	if cfg == nil {
		return nil
	}
	v := reflect.ValueOf(cfg).Elem()
	number := func(name string) (n int64, f reflect.Value) {
		if f = v.FieldByName(name); f.IsValid() && f.CanInt() {
			return f.Int(), f
		}
		return 0, reflect.Value{}
	}
	take := func(f reflect.Value) {
		if f.IsValid() {
			f.SetInt(0)
		}
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanSet() || f.Kind() != reflect.Pointer && f.Kind() != reflect.Interface || !f.IsNil() {
			continue
		}
		switch p := f.Addr().Interface().(type) {
		case **trie.Trie:
			if !remembers(v, m.index != nil) {
				continue
			}
			nodes, nf := number("MaxNodes")
			size, bf := number("MaxBytes")
			if m.nodes, m.bytes = nodes, size; old != nil && old.trie != nil && old.nodes == nodes && old.bytes == size {
				m.trie = old.trie
			} else {
				t, err := trie.New(trie.Config{MaxNodes: int(nodes), MaxBytes: int(size)})
				if err != nil {
					return err
				}
				m.trie = t
			}
			*p = m.trie
			take(nf)
			take(bf)
		case **pipeline.Sessions:
			n, nf := number("MaxSessions")
			if m.maxSessions = n; old != nil && old.sessions != nil && old.maxSessions == n {
				m.sessions = old.sessions
			} else {
				s, err := pipeline.NewSessions(int(n))
				if err != nil {
					return err
				}
				m.sessions = s
			}
			*p = m.sessions
			take(nf)
		case **kvindex.Index:
			*p, m.hasIndex = m.index, true
		default:
			if t := reflect.TypeFor[*lmcache.Poller](); t.AssignableTo(f.Type()) && f.Type() != reflect.TypeFor[any]() {
				if m.hasLM = true; m.poller != nil {
					f.Set(reflect.ValueOf(m.poller))
				}
			}
		}
	}
	return nil
}

// reads reports whether a strategy's Config takes an index, and occupancies.
func reads(m Strategy) (index, occupancy bool) {
	if m.Config == nil {
		return false, false
	}
	mem := &memory{}
	if mem.fill(m.Config(), nil) != nil {
		return false, false
	}
	return mem.hasIndex, mem.hasLM
}

// remembers reports whether a strategy of the Config v looks at what was sent.
func remembers(v reflect.Value, indexed bool) bool {
	if f := v.FieldByName("Fallback"); f.IsValid() && f.Kind() == reflect.String {
		return indexed || f.String() == precisecacheaware.FallbackText
	}
	if f := v.FieldByName("AffinityRequests"); f.IsValid() && f.CanFloat() {
		return f.Float() != 0
	}
	return true
}

func strategyNames(ms map[string]Strategy) []string {
	return slices.Collect(maps.Keys(ms))
}
