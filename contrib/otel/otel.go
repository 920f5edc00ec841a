// Package otel reports routers, fleets, indexes and event streams to OpenTelemetry:
// by metrics, and by an event for each decision on the span of the request's
// context.
//
// A [Telemetry] gives hooks to put into the Options and Configs of the other
// packages, each of which calls the caller's own hooks too, and it reads the numbers
// of Views, indexes and tries when metrics are collected. Package kvevents below this one does the same for KV
// event streams, and needs ZeroMQ.
//
// If the semantic conventions for generative AI have a name, it is used:
// gen_ai.request.model, gen_ai.operation.name and gen_ai.provider.name for the
// operator's description of a route, gen_ai.usage.* for the engine's report, and
// the metric gen_ai.client.token.usage. They are still in development, and the
// names are those of version 1.41.0. All other names begin with "warmroute.".
//
// Attributes are bounded: routes, strategies, reasons and targets beyond a number
// are "other". None is ever made of a prompt: not of its text, tokens, session or
// salt, and not of the model that a client named.
//
// README.md in this folder has a table of the metrics and events.
package otel

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/trie"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/warmroute/router/contrib/otel"

// The defaults of Config.
const (
	// DefaultMaxTargets is the greatest fleet that the library is made for. The SDK
	// has a bound of its own for each metric, 2,000 by default.
	DefaultMaxTargets = 1000
	DefaultMaxRoutes  = 100
	DefaultMaxReasons = 64
)

// maxWatched bounds the fleets, indexes and tries that are watched.
const maxWatched = 1000

// Config configures New. The zero Config works.
type Config struct {
	// MeterProvider makes the instruments; nil means OpenTelemetry's global one.
	// Spans are those of the requests' contexts and need no provider.
	MeterProvider metric.MeterProvider
	// MaxTargets is the greatest number of targets with values of their own at a time;
	// those of the others are added up as "other". 0 means DefaultMaxTargets.
	MaxTargets int
	// MaxRoutes is the greatest number of routes, of strategies, of fleets, of indexes
	// and of tries, each, with values of their own. 0 means DefaultMaxRoutes.
	MaxRoutes int
	// MaxReasons is the greatest number of reasons with values of their own. 0 means
	// DefaultMaxReasons.
	MaxReasons int
	// TargetName returns the name of the target with an ID; nil means observe.Target:
	// the ID, and of a URL the part without user, password, query and fragment. Targets of one name are
	// added up. It is safe for concurrent use and its result is cut to 128 bytes.
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
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c
}

// Telemetry is safe for concurrent use and starts no goroutine. Make one with New.
type Telemetry struct {
	routes, strategies, fleets, reasons, indexNames, trieNames *observe.Names
	queueNames, modelNames, shareNames, memoryNames            *observe.Names
	targets                                                    *observe.Targets
	instruments
	registration metric.Registration

	mu       sync.Mutex
	views    map[string]*loadview.View
	indexes  map[string]*kvindex.Index
	tries    map[string]func() trie.Stats
	queues   map[string]*admission.Queue
	shares   map[string]shared
	splits   map[string]split
	streams  map[*Stream]struct{}
	memories map[string]*membudget.Budget
}

// New makes the instruments. Its error names every field of cfg with a bad value,
// or is the MeterProvider's.
func New(cfg Config) (*Telemetry, error) {
	cfg = cfg.WithDefaults()
	bound := observe.Bounds{Package: "otel"}
	bound.Check("MaxTargets", cfg.MaxTargets)
	bound.Check("MaxRoutes", cfg.MaxRoutes)
	bound.Check("MaxReasons", cfg.MaxReasons)
	if err := bound.Err(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		routes: observe.NewNames(cfg.MaxRoutes), strategies: observe.NewNames(cfg.MaxRoutes),
		fleets:     observe.NewNames(cfg.MaxRoutes),
		indexNames: observe.NewNames(cfg.MaxRoutes), trieNames: observe.NewNames(cfg.MaxRoutes),
		queueNames: observe.NewNames(cfg.MaxRoutes), modelNames: observe.NewNames(cfg.MaxRoutes),
		shareNames: observe.NewNames(cfg.MaxRoutes), shares: make(map[string]shared),
		memoryNames: observe.NewNames(cfg.MaxRoutes), memories: make(map[string]*membudget.Budget),
		reasons: observe.NewNames(cfg.MaxReasons), targets: observe.NewTargets(cfg.MaxTargets, cfg.TargetName),
		views: make(map[string]*loadview.View), indexes: make(map[string]*kvindex.Index),
		tries: make(map[string]func() trie.Stats), queues: make(map[string]*admission.Queue),
		streams: make(map[*Stream]struct{}), splits: make(map[string]split),
	}
	m := cfg.MeterProvider.Meter(Scope, metric.WithSchemaURL(semconv.SchemaURL))
	if err := t.make(m); err != nil {
		return nil, err
	}
	var err error
	t.registration, err = m.RegisterCallback(t.observe, t.observed()...)
	return t, err
}

// Close ends the watching. The hooks go on counting.
func (t *Telemetry) Close() error { return t.registration.Unregister() }

// Route has the names of a Router's metrics and events.
type Route struct {
	// Name is the operator's name for the route; "" is called "default". It never
	// comes from a client.
	Name string
	// Strategy is the name of its strategy, such as cacheaware.Name.
	Strategy string
	// Fleet is the name under which its fleet is watched; "" is called "default".
	Fleet string
	// Model is the model that the route serves, as the operator names it, and
	// Operation the kind of its requests ("chat", "text_completion"), for
	// gen_ai.request.model and gen_ai.operation.name. "" leaves Model out, and means
	// "chat".
	Model, Operation string
	// Provider is gen_ai.provider.name, such as "vllm". If it is set,
	// gen_ai.client.token.usage, gen_ai.client.operation.duration and
	// gen_ai.client.operation.time_to_first_chunk are recorded; leave it "" if
	// the gateway, or its client library, records them itself.
	Provider string
}

// WatchFleet reads the members of v whenever metrics are collected, as those of the
// fleet with this name; "" is called "default". nil ends it, and
// another View takes the place of the one before. At most 1,000 fleets are
// watched; the error is about one more.
func (t *Telemetry) WatchFleet(fleet string, v *loadview.View) error {
	return watch(t, t.views, fleet, v, v == nil)
}

// WatchIndex is WatchFleet for an index of the engines' events.
func (t *Telemetry) WatchIndex(index string, x *kvindex.Index) error {
	return watch(t, t.indexes, index, x, x == nil)
}

// WatchTrie is WatchFleet for the prompts that a strategy remembers. stats is
// the method Stats of cacheaware.Strategy or another one, or of a trie.Trie.
func (t *Telemetry) WatchTrie(name string, stats func() trie.Stats) error {
	return watch(t, t.tries, name, stats, stats == nil)
}

func watch[T any](t *Telemetry, all map[string]T, name string, source T, end bool) error {
	name = observe.Clean(observe.Named(name))
	t.mu.Lock()
	defer t.mu.Unlock()
	if end {
		delete(all, name)
		return nil
	}
	if _, ok := all[name]; !ok && len(all) >= maxWatched {
		return fmt.Errorf("otel: %d of this kind are watched already", maxWatched)
	}
	all[name] = source
	return nil
}

// attrs is a set of attributes that is made once.
func attrs(kv ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(kv...))
}

// The attributes of our own.
const (
	keyRoute    = attribute.Key("warmroute.route")
	keyStrategy = attribute.Key("warmroute.strategy")
	keyReason   = attribute.Key("warmroute.reason")
	keyCause    = attribute.Key("warmroute.cause")
	keyOutcome  = attribute.Key("warmroute.outcome")
	keyCode     = attribute.Key("warmroute.code")
	keyFleet    = attribute.Key("warmroute.fleet")
	keyTarget   = attribute.Key("warmroute.target")
	keyState    = attribute.Key("warmroute.state")
	keyIndex    = attribute.Key("warmroute.index")
	keyTrie     = attribute.Key("warmroute.trie")
)

// background is for hooks that have no context.
var background = context.Background()
