// Package lmcache polls how full the replicas' LMCache is.
//
// Three kinds of answers are understood, distinguished by their form if
// Target.Kind does not name one:
//
//   - KindOccupancy, the default contract: {"occupancy": 0.3, "cache_available":
//     true}. occupancy is required and finite, and clamped to 0..1;
//     cache_available is true if it is absent; other fields are ignored.
//   - KindStatus, the /status of LMCache's own server: memory_usage_ratio of its
//     L1, or the greatest of several, and is_healthy.
//   - KindMetrics, its /metrics: the gauge lmcache_mp_l1_usage_ratio, the greatest
//     of several series.
//
// # Occupancy
//
// LMCache evicts before it is full: the ratio of a busy cache swings between two
// watermarks (0.65 and 0.8 with its defaults) for ever and never reads 1. Its
// place in that swing means nothing. So for LMCache's own two answers free
// capacity is counted up to Target.Watermark, and everything above is equally
// full. The default contract counts to 1.
//
// A target is neutral, which means that nothing is known of its cache, if it is not
// polled, was not polled yet, failed its last poll or gave its last answer too long
// ago. A server that starts or stops refuses connections, which is a failed poll
// like any other.
package lmcache

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
)

// The bounds of an answer, in bytes.
const (
	MaxBody    = 64 << 10 // JSON
	MaxMetrics = 1 << 20  // Prometheus text
)

// Poller has the free capacity of the caches that Run polls. It is safe for
// concurrent use and starts no goroutine. Make one with New.
type Poller struct {
	log     *zap.Logger
	trace   Trace
	tls     *tls.Config
	rand    func() uint64
	limits  atomic.Pointer[limits]
	table   atomic.Pointer[table]
	setting sync.Mutex
	sets    chan struct{} // of capacity 1: table has changed
	running atomic.Bool

	transport http.RoundTripper // instead of the network; for tests
}

// limits are the egress policy in force.
type limits struct {
	policy egress.Policy
	dialer *egress.Dialer
}

// table is the list of the targets. It is not changed once it is published.
type table struct {
	list []*source
	byID map[string]int // index in list
}

// find returns the source with this ID, nil if there is none.
func (t *table) find(id string) *source {
	if i, ok := t.byID[id]; ok {
		return t.list[i]
	}
	return nil
}

// source is a target and the state of its cache. One goroutine of Run writes to it.
type source struct {
	Target
	status atomic.Pointer[status]
}

// New returns a Poller. Its error is a *router.ConfigError for each field that is not
// allowed, joined; an endpoint that the egress policy denies is one of these.
func New(c Config) (*Poller, error) {
	c = c.WithDefaults()
	p := &Poller{
		log: c.Logger, trace: c.Trace, tls: c.TLS.Clone(), rand: c.Rand,
		sets: make(chan struct{}, 1),
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	p.table.Store(&table{})
	p.limits.Store(&limits{c.Egress, c.Egress.Dialer()}) // for Set, even if it is wrong
	if err := errors.Join(p.SetEgress(c.Egress), p.Set(c.Targets)); err != nil {
		return nil, err
	}
	return p, nil
}

// SetEgress replaces the egress policy, from the next connection on. A target with an
// endpoint that it denies stays: its polls fail. A policy that is wrong changes
// nothing and is an error, as in New.
func (p *Poller) SetEgress(policy egress.Policy) error {
	bad := configerr.List{Package: "lmcache"}
	bad.Add(configerr.In("Egress", policy.Validate()))
	if err := bad.Err(); err != nil {
		return err
	}
	policy.AllowHosts = slices.Clone(policy.AllowHosts)
	p.limits.Store(&limits{policy, policy.Dialer()})
	return nil
}

// Set replaces the targets, whether Run runs or not. The state of those that stay,
// with the same ID and Endpoint and a Kind that fits, is kept. If a target is wrong
// nothing changes; the error is as in New.
func (p *Poller) Set(targets []Target) error {
	p.setting.Lock()
	defer p.setting.Unlock()
	policy := p.limits.Load().policy
	old := p.table.Load()
	next := &table{byID: make(map[string]int, len(targets))}
	bad := configerr.List{Package: "lmcache"}
	for i, c := range targets {
		at := fmt.Sprintf("Targets[%d]", i)
		c = c.WithDefaults()
		c.Header = c.Header.Clone()
		c.check(&bad, at, policy)
		if first, twice := next.byID[c.ID]; twice && c.ID != "" {
			bad.Check(false, at+".ID", c.ID, fmt.Sprintf("another one than that of Targets[%d]", first))
			continue
		}
		s := old.find(c.ID)
		if s == nil || !reflect.DeepEqual(s.Target, c) {
			s = newSource(c, s)
		}
		next.byID[c.ID] = i
		next.list = append(next.list, s)
	}
	if err := bad.Err(); err != nil {
		return err
	}
	p.table.Store(next)
	select {
	case p.sets <- struct{}{}:
	default:
	}
	return nil
}

// newSource returns a source that begins with the state of old, which may be nil.
func newSource(c Target, old *source) *source {
	s := &source{Target: c}
	s.status.Store(&status{})
	if old == nil || old.Endpoint != c.Endpoint {
		return s
	}
	was := old.status.Load()
	if c.Kind == KindAny || c.Kind == was.kind {
		s.status.Store(was)
	}
	return s
}
