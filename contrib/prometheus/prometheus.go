// Package prometheus reports routers, fleets, indexes and event streams to
// Prometheus.
//
// A [Collector] is a prometheus.Collector. It gives hooks to put into the Options
// and Configs of the other packages, each of which calls the caller's own hooks
// too. The hooks count; the numbers of Views, indexes and strategies are read when
// the page is asked for. Package kvevents below this one does the same for KV event
// streams.
//
// Labels are bounded: routes, strategies, reasons and targets beyond a number are
// "other". No label is ever made of a prompt: not of its text, tokens, session or
// salt, and not of the model that a client named, but only of the operator's
// names of routes, of the IDs of targets and of the library's own words.
//
// README.md in this folder has a table of the metrics; dashboard.json is for
// Grafana, alerts.yaml for Prometheus.
package prometheus

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/trie"
)

// The defaults of Config.
const (
	// DefaultMaxTargets is the greatest fleet that the library is made for. A
	// target has 23 series at the most.
	DefaultMaxTargets = 1000
	DefaultMaxRoutes  = 100
	DefaultMaxReasons = 64
)

// maxWatched bounds the fleets, indexes and so on that are watched.
const maxWatched = 1000

// Config configures New. The zero Config works.
type Config struct {
	// MaxTargets is the greatest number of targets with values of their own at a time;
	// those of the others are added up as "other". 0 means DefaultMaxTargets.
	MaxTargets int
	// MaxRoutes is the greatest number of routes, of strategies, of fleets, of indexes
	// and of tries, each, with values of their own. 0 means DefaultMaxRoutes.
	MaxRoutes int
	// MaxReasons is the greatest number of reasons with values of their own. 0 means
	// DefaultMaxReasons.
	MaxReasons int
	// TargetName returns the name on the page of the target with an ID; nil means
	// observe.Target: the ID, and of a URL the part without user, password, query and
	// fragment. Targets of one name are added up. It is safe for concurrent use and its result is cut to
	// 128 bytes.
	TargetName func(id string) string
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one.
func (c Config) WithDefaults() Config {
	c.MaxTargets = cmp.Or(c.MaxTargets, DefaultMaxTargets)
	c.MaxRoutes = cmp.Or(c.MaxRoutes, DefaultMaxRoutes)
	c.MaxReasons = cmp.Or(c.MaxReasons, DefaultMaxReasons)
	if c.TargetName == nil {
		c.TargetName = observe.Target
	}
	return c
}

// Collector is a prometheus.Collector. It is safe for concurrent use and starts
// no goroutine. Make one with New.
type Collector struct {
	routes, strategies, fleets, reasons, indexNames, trieNames *observe.Names
	queueNames, modelNames, shareNames, memoryNames            *observe.Names
	targets                                                    *observe.Targets
	routerMetrics
	fleetMetrics
	eventMetrics
	queueMetrics
	vecs []prometheus.Collector

	mu       sync.Mutex
	views    map[string]*loadview.View
	indexes  map[string]*kvindex.Index
	tries    map[string]func() trie.Stats
	precise  map[string]func() precisecacheaware.Stats
	caches   map[string]*lmcache.Poller
	queues   map[string]*admission.Queue
	shares   map[string]shared
	splits   map[string]split
	streams  map[*Stream]struct{}
	memories map[string]*membudget.Budget
}

// New returns a Collector of nothing. Its error names every field of cfg with a
// bad value.
func New(cfg Config) (*Collector, error) {
	cfg = cfg.WithDefaults()
	bound := observe.Bounds{Package: "prometheus"}
	bound.Check("MaxTargets", cfg.MaxTargets)
	bound.Check("MaxRoutes", cfg.MaxRoutes)
	bound.Check("MaxReasons", cfg.MaxReasons)
	if err := bound.Err(); err != nil {
		return nil, err
	}
	c := &Collector{
		routes: observe.NewNames(cfg.MaxRoutes), strategies: observe.NewNames(cfg.MaxRoutes),
		fleets:     observe.NewNames(cfg.MaxRoutes),
		indexNames: observe.NewNames(cfg.MaxRoutes), trieNames: observe.NewNames(cfg.MaxRoutes),
		queueNames: observe.NewNames(cfg.MaxRoutes), modelNames: observe.NewNames(cfg.MaxRoutes),
		shareNames: observe.NewNames(cfg.MaxRoutes), shares: make(map[string]shared),
		memoryNames: observe.NewNames(cfg.MaxRoutes), memories: make(map[string]*membudget.Budget),
		reasons: observe.NewNames(cfg.MaxReasons), targets: observe.NewTargets(cfg.MaxTargets, cfg.TargetName),
		views: make(map[string]*loadview.View), indexes: make(map[string]*kvindex.Index),
		tries: make(map[string]func() trie.Stats), precise: make(map[string]func() precisecacheaware.Stats),
		caches: make(map[string]*lmcache.Poller), queues: make(map[string]*admission.Queue),
		streams: make(map[*Stream]struct{}), splits: make(map[string]split),
	}
	c.routerMetrics.init(c)
	c.fleetMetrics.init(c)
	c.eventMetrics.init(c)
	c.queueMetrics.init(c)
	return c, nil
}

// Describe is prometheus.Collector's.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.vecs {
		v.Describe(ch)
	}
	for _, m := range watched {
		ch <- m.desc
	}
}

func (c *Collector) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	c.vecs = append(c.vecs, v)
	return v
}

func (c *Collector) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	c.vecs = append(c.vecs, v)
	return v
}

func (c *Collector) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help,
		Buckets: buckets}, labels)
	c.vecs = append(c.vecs, v)
	return v
}

const namespace = "warmroute"

// Route has the names of a Router's metrics.
type Route struct {
	// Name is the operator's name for the route; "" is called "default". It never
	// comes from a client.
	Name string
	// Strategy is the name of its strategy, such as cacheaware.Name.
	Strategy string
	// Fleet is the name under which its fleet is watched; "" is called "default".
	Fleet string
}

// WatchFleet reads the members of v whenever the page is asked for, as those of the
// fleet with this name; "" is called "default". nil ends it, and
// another View takes the place of the one before. At most 1,000 fleets are
// watched; the error is about one more.
func (c *Collector) WatchFleet(fleet string, v *loadview.View) error {
	return watch(c, c.views, fleet, v, v == nil)
}

// WatchIndex is WatchFleet for an index of the engines' events. It has all numbers
// that the hooks of kvindex.Trace would give.
func (c *Collector) WatchIndex(index string, x *kvindex.Index) error {
	return watch(c, c.indexes, index, x, x == nil)
}

// WatchTrie is WatchFleet for the prompts that a strategy remembers. stats is
// the method Stats of cacheaware.Strategy or another one, or of a trie.Trie.
func (c *Collector) WatchTrie(name string, stats func() trie.Stats) error {
	return watch(c, c.tries, name, stats, stats == nil)
}

// WatchPrecise is WatchFleet for how right an index was, as a strategy counts: stats
// is the method Stats of a precisecacheaware.Strategy. It counts the
// calls of precisecacheaware.Config.Mismatch, and has WatchTrie for the same name
// within.
func (c *Collector) WatchPrecise(route string, stats func() precisecacheaware.Stats) error {
	var t func() trie.Stats
	if stats != nil {
		t = func() trie.Stats { return stats().Stats }
	}
	return errors.Join(watch(c, c.precise, route, stats, stats == nil), c.WatchTrie(route, t))
}

// WatchLMCache is WatchFleet for how full the targets' LMCaches are.
func (c *Collector) WatchLMCache(fleet string, p *lmcache.Poller) error {
	return watch(c, c.caches, fleet, p, p == nil)
}

func watch[T any](c *Collector, all map[string]T, name string, source T, end bool) error {
	name = observe.Clean(observe.Named(name))
	c.mu.Lock()
	defer c.mu.Unlock()
	if end {
		delete(all, name)
		return nil
	}
	if _, ok := all[name]; !ok && len(all) >= maxWatched {
		return fmt.Errorf("prometheus: %d of this kind are watched already", maxWatched)
	}
	all[name] = source
	return nil
}
