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
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
)

// The defaults of a Target.
const (
	DefaultRefresh = 2 * time.Second
	DefaultTimeout = 2 * time.Second
	DefaultStale   = 10 * time.Second
	// DefaultWatermark is just under the least that a full LMCache with default
	// settings was seen to report after an eviction, which is 0.648.
	DefaultWatermark = 0.6
)

// Kind is the kind of a target's answers.
type Kind string

// The kinds.
const (
	KindAny       Kind = "" // each kind, distinguished by the answer
	KindOccupancy Kind = "occupancy"
	KindStatus    Kind = "status"
	KindMetrics   Kind = "metrics"
)

// Target is one LMCache to poll, under the ID of its target.
type Target struct {
	// ID is the target's, as the strategy sees it. It is required, and unique.
	ID string
	// Endpoint is the http or https URL that is polled. It is required.
	Endpoint string
	// Kind is the only kind of answer that is accepted; KindAny: each is.
	Kind Kind
	// Header is sent along, for instance for authorization. It is copied.
	Header http.Header
	// Refresh is the time from one poll to the next, give or take a tenth at
	// random. Timeout bounds one poll with its body, and is at most Stale. Stale is
	// the age from which on an answer counts for nothing, at least Refresh. 0 means
	// DefaultRefresh, DefaultTimeout (or Stale, if that is shorter) and
	// DefaultStale (or five Refreshes, if that is longer).
	Refresh, Timeout, Stale time.Duration
	// Watermark is the ratio, above 0 and up to 1, from which on a cache of KindStatus
	// or KindMetrics is full. 0 means DefaultWatermark.
	Watermark float64
}

// Config configures a Poller. The zero Config polls no target until Set.
type Config struct {
	Targets []Target
	// Egress decides which addresses may be polled. It is asked when a target is
	// set, at every poll, and for the address of every connection; each poll makes
	// its own, so a name that has come to mean another address is noticed.
	Egress egress.Policy
	// TLS is used for https; nil means Go's defaults. It is copied.
	TLS *tls.Config
	// Logger logs one line for each change of a target's State; nil means none.
	// Headers, passwords and queries are not logged.
	Logger *zap.Logger
	Trace  Trace
	// Rand is the source of the jitter, safe for concurrent use; nil means the
	// global source of math/rand/v2.
	Rand func() uint64
}

// Trace has the hooks that a Poller calls. Each may be nil. They are called
// by the goroutines of Run, each of which polls again when its call has returned,
// and are safe for concurrent use.
type Trace struct {
	// Polled reports for every poll how long it took and whether it failed.
	Polled func(id string, took time.Duration, err error)
	// Changed reports that a poll brought a State other than the one before. An
	// answer that goes stale is no poll: Status and Snapshot show it.
	Changed func(from State, now Status)
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one, in each of its Targets too.
func (c Config) WithDefaults() Config {
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	targets := make([]Target, len(c.Targets))
	for i, t := range c.Targets {
		targets[i] = t.WithDefaults()
	}
	c.Targets = targets
	return c
}

// WithDefaults returns t with the default in place of each field that is zero and
// has one.
func (t Target) WithDefaults() Target {
	t.Refresh = cmp.Or(t.Refresh, DefaultRefresh)
	t.Stale = cmp.Or(t.Stale, max(DefaultStale, 5*min(t.Refresh, math.MaxInt64/5), t.Refresh))
	t.Timeout = cmp.Or(t.Timeout, min(DefaultTimeout, t.Stale))
	t.Watermark = cmp.Or(t.Watermark, DefaultWatermark)
	return t
}

// check adds to bad a *router.ConfigError for each field of t, which has its
// defaults, that is not allowed. at is the place of t in the Config.
func (t *Target) check(bad *configerr.List, at string, policy egress.Policy) {
	add := func(ok bool, e router.ConfigError) {
		if !ok {
			e.Field = at + "." + e.Field
			bad.Add(fmt.Errorf("target %q: %w", t.ID, &e))
		}
	}
	bad.Check(t.ID != "", at+".ID", t.ID, "not empty")
	err := t.checkEndpoint(policy)
	add(err == nil, router.ConfigError{Field: "Endpoint", Allowed: "an http or https URL", Err: err})
	switch t.Kind {
	case KindAny, KindOccupancy, KindStatus, KindMetrics:
	default:
		add(false, router.ConfigError{
			Field: "Kind", Value: string(t.Kind), Allowed: fmt.Sprintf("%q, %q or %q", KindOccupancy, KindStatus, KindMetrics),
		})
	}
	for name, values := range t.Header {
		add(token(name), router.ConfigError{Field: "Header", Value: name, Allowed: "the names of headers"})
		for _, v := range values {
			control := strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
			add(!control, router.ConfigError{Field: fmt.Sprintf("Header[%q]", name),
				Allowed: "a value without control characters"})
		}
	}
	duration := func(field string, d time.Duration) {
		add(d >= 0, router.ConfigError{Field: field, Value: d, Allowed: "0 or more"})
	}
	duration("Refresh", t.Refresh)
	duration("Timeout", t.Timeout)
	duration("Stale", t.Stale)
	if t.Stale > 0 {
		add(t.Stale >= t.Refresh, router.ConfigError{Field: "Stale", Value: t.Stale,
			Allowed: fmt.Sprintf("at least Refresh, %v", t.Refresh)})
		add(t.Timeout <= t.Stale, router.ConfigError{Field: "Timeout", Value: t.Timeout,
			Allowed: fmt.Sprintf("at most Stale, %v", t.Stale)})
	}
	add(t.Watermark > 0 && t.Watermark <= 1, router.ConfigError{Field: "Watermark", Value: t.Watermark,
		Allowed: "above 0 and at most 1"})
}

func (t *Target) checkEndpoint(policy egress.Policy) error {
	if t.Endpoint == "" {
		return errors.New("it is empty")
	}
	if err := policy.CheckURL(cmp.Or(redacted(t.Endpoint), t.Endpoint)); err != nil { // the error may quote it
		return err
	}
	if u, err := url.Parse(t.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("it is not an http or https URL")
	}
	return nil
}

// token reports whether s is one in the sense of RFC 9110, 5.6.2.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
