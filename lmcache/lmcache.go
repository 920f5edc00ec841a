// Package lmcache polls how full the replicas' LMCache is.
//
// Three answers are understood, told apart by what they are where
// Provider.Kind does not say which is expected:
//
//   - KindOccupancy, the default contract: {"occupancy": 0.3, "cache_available":
//     true}. occupancy is required and finite, and clamped to 0..1;
//     cache_available is true where it is absent; other fields are ignored.
//   - KindStatus, the /status of LMCache's own server: memory_usage_ratio of its
//     L1, or the greatest of several, and is_healthy.
//   - KindMetrics, its /metrics: the gauge lmcache_mp_l1_usage_ratio, the greatest
//     of several series.
//
// # What occupancy says
//
// LMCache evicts before it is full: the ratio of a busy cache swings between two
// watermarks (0.65 and 0.8 with its defaults) for ever and never reads 1. Where
// it stands in that swing means nothing. So for LMCache's own two answers free
// capacity is counted up to Provider.Watermark, and everything above is equally
// full. The default contract counts to 1.
//
// A provider that is not known, was not polled yet, whose last poll failed or
// whose last answer is too old is neutral: nothing is known of it. A server that
// starts or stops refuses connections, which is a failed poll like any other.
package lmcache

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/warmroute/router/egress"
)

// The defaults of a Provider.
const (
	DefaultRefresh = 2 * time.Second
	DefaultTimeout = 2 * time.Second
	DefaultStale   = 10 * time.Second
	// DefaultWatermark is just under the least that a full LMCache with default
	// settings was seen to read after an eviction, which is 0.648.
	DefaultWatermark = 0.6
)

// The bounds of an answer, in bytes.
const (
	MaxBody    = 64 << 10 // JSON
	MaxMetrics = 1 << 20  // Prometheus text
)

// Kind is what a provider answers.
type Kind string

// The kinds.
const (
	KindAny       Kind = "" // told apart by what is answered
	KindOccupancy Kind = "occupancy"
	KindStatus    Kind = "status"
	KindMetrics   Kind = "metrics"
)

// Provider is one LMCache to poll.
type Provider struct {
	// ID is the target's, as the strategy sees it. It is required, and unique.
	ID string
	// Endpoint is the http or https URL that is polled. It is required.
	Endpoint string
	// Kind is the only answer that is accepted; KindAny: each is.
	Kind Kind
	// Header is sent along, for instance for authorization. It is copied.
	Header http.Header
	// Refresh is the time from one poll to the next, give or take a tenth at
	// random. Timeout bounds one poll with its body, and is at most Stale. Stale is
	// the age at which an answer says nothing any more, at least Refresh. 0 means
	// DefaultRefresh, DefaultTimeout (or Stale, where that is shorter) and
	// DefaultStale (or five Refreshes, where that is longer).
	Refresh, Timeout, Stale time.Duration
	// Watermark is the ratio, above 0 and up to 1, from which a cache of KindStatus
	// or KindMetrics is full. 0 means DefaultWatermark.
	Watermark float64
}

// Config is what New needs to know. The zero Config polls nobody until Set.
type Config struct {
	Providers []Provider
	// Egress says which addresses may be polled. It is asked when a provider is
	// set, at every poll, and for the address of every connection; each poll makes
	// its own, so a name that has come to mean another address is noticed.
	Egress egress.Policy
	// TLS is used for https; nil means Go's defaults. It is copied.
	TLS *tls.Config
	// Logger is told once per change of a provider's State; nil means nobody is.
	// Headers, passwords and queries are not logged.
	Logger *zap.Logger
	Trace  Trace
	// Rand is the source of the jitter, safe for concurrent use; nil means the
	// global source of math/rand/v2.
	Rand func() uint64
}

// Trace is what a Poller tells about itself. Each hook may be nil. They are called
// by the goroutines of Run, which poll the next time when they have returned, and
// are safe for concurrent use.
type Trace struct {
	// Polled tells of every poll how long it took and whether it failed.
	Polled func(id string, took time.Duration, err error)
	// Changed tells that a poll brought a State other than the one before. An
	// answer that goes stale is no poll: Status and Snapshot show it.
	Changed func(from State, now Status)
}

// Poller knows how full the caches are that Run polls. It is safe for concurrent
// use and starts no goroutine. Make one with New.
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

// limits are the egress policy that holds.
type limits struct {
	policy egress.Policy
	dialer *egress.Dialer
}

// table is who is polled. It is not changed once it is published.
type table struct {
	list []*source
	byID map[string]int // index in list
}

// find returns the source with this ID, nil where there is none.
func (t *table) find(id string) *source {
	if i, ok := t.byID[id]; ok {
		return t.list[i]
	}
	return nil
}

// source is a provider and what is known of it. One goroutine of Run writes to it.
type source struct {
	Provider
	status atomic.Pointer[status]
}

// New returns a Poller. The error names every field that is off; an endpoint that
// the egress policy denies is one of these.
func New(c Config) (*Poller, error) {
	p := &Poller{
		log: c.Logger, trace: c.Trace, tls: c.TLS.Clone(), rand: c.Rand,
		sets: make(chan struct{}, 1),
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	if p.rand == nil {
		p.rand = rand.Uint64
	}
	p.table.Store(&table{})
	p.limits.Store(&limits{c.Egress, c.Egress.Dialer()}) // for Set, where it is wrong
	if err := errors.Join(p.SetEgress(c.Egress), p.Set(c.Providers)); err != nil {
		return nil, err
	}
	return p, nil
}

// SetEgress replaces the egress policy, from the next connection on. An endpoint
// that it denies is not removed: its polls fail. A policy that is wrong changes
// nothing.
func (p *Poller) SetEgress(policy egress.Policy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("lmcache: Egress: %w", err)
	}
	policy.AllowHosts = slices.Clone(policy.AllowHosts)
	p.limits.Store(&limits{policy, policy.Dialer()})
	return nil
}

// Set replaces the providers, whether Run runs or not. What is known of those that
// stay, with the same ID and Endpoint and a Kind that fits, is kept. Where a
// provider is wrong nothing changes; the error names all that is.
func (p *Poller) Set(providers []Provider) error {
	p.setting.Lock()
	defer p.setting.Unlock()
	policy := p.limits.Load().policy
	old := p.table.Load()
	next := &table{byID: make(map[string]int, len(providers))}
	var errs []error
	for i, c := range providers {
		c.Header = c.Header.Clone()
		if err := c.setDefaults(policy); err != nil {
			errs = append(errs, fmt.Errorf("lmcache: Providers[%d] (%q): %w", i, c.ID, err))
			continue
		}
		if next.find(c.ID) != nil {
			errs = append(errs, fmt.Errorf("lmcache: Providers[%d] (%q): ID: another provider has it", i, c.ID))
			continue
		}
		s := old.find(c.ID)
		if s == nil || !reflect.DeepEqual(s.Provider, c) {
			s = newSource(c, s)
		}
		next.byID[c.ID] = len(next.list)
		next.list = append(next.list, s)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.table.Store(next)
	select {
	case p.sets <- struct{}{}:
	default:
	}
	return nil
}

// newSource returns a source that begins with what was known by old, which may be
// nil.
func newSource(c Provider, old *source) *source {
	s := &source{Provider: c}
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

// setDefaults fills in what is 0 and returns all that is off.
func (c *Provider) setDefaults(policy egress.Policy) error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	if c.ID == "" {
		bad("ID", "it is empty")
	}
	if c.Endpoint == "" {
		bad("Endpoint", "it is empty")
	} else if err := policy.CheckURL(cmp.Or(redacted(c.Endpoint), c.Endpoint)); err != nil { // the error may quote it
		bad("Endpoint", "%w", err)
	} else if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		bad("Endpoint", "it is not an http or https URL")
	}
	switch c.Kind {
	case KindAny, KindOccupancy, KindStatus, KindMetrics:
	default:
		bad("Kind", "%q is none of %q, %q and %q", c.Kind, KindOccupancy, KindStatus, KindMetrics)
	}
	for name, values := range c.Header {
		if !token(name) {
			bad("Header", "%q is not the name of a header", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				bad("Header", "the value of %s has a control character in it", name)
			}
		}
	}
	for _, d := range [...]struct {
		field string
		v     *time.Duration
	}{{"Refresh", &c.Refresh}, {"Timeout", &c.Timeout}, {"Stale", &c.Stale}} {
		if *d.v < 0 {
			bad(d.field, "%v is negative", *d.v)
		}
	}
	if c.Refresh == 0 {
		c.Refresh = DefaultRefresh
	}
	if c.Stale == 0 {
		c.Stale = max(DefaultStale, 5*min(c.Refresh, math.MaxInt64/5), c.Refresh)
	}
	if c.Timeout == 0 {
		c.Timeout = min(DefaultTimeout, c.Stale)
	}
	if c.Stale < c.Refresh && c.Stale > 0 {
		bad("Stale", "%v is less than Refresh, which is %v", c.Stale, c.Refresh)
	}
	if c.Timeout > c.Stale && c.Stale > 0 {
		bad("Timeout", "%v is more than Stale, which is %v", c.Timeout, c.Stale)
	}
	if c.Watermark == 0 {
		c.Watermark = DefaultWatermark
	}
	if !(c.Watermark > 0 && c.Watermark <= 1) {
		bad("Watermark", "%v; it must be above 0 and at most 1", c.Watermark)
	}
	return errors.Join(errs...)
}

// token reports whether s is one in the sense of RFC 9110, 5.6.2.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
