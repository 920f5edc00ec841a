// Package admission has a waiting line to put in front of a router.Router
// (router.Options.Queue): while no target has a place for another request, requests
// wait here and not in the engines, and are bound to a target only when a place is
// free, with the caches and loads of that moment.
//
// Requests wait by model. Those of a higher priority go first; within a priority,
// tenants share by deficit round robin over tokens; a tenant's requests go by arrival.
// A request that has waited for long goes ahead of higher priorities, at every other
// place. All is bounded: requests, bytes and time.
package admission

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
)

// The defaults of Config.
const (
	DefaultMaxWaiting = 1024
	DefaultMaxBytes   = 64 << 20
	DefaultMaxWait    = 30 * time.Second
	DefaultAging      = 5 * time.Second
	// DefaultQuantum is about the tokens of a few turns of a conversation.
	DefaultQuantum     = 8192
	DefaultCachedPrice = 0.1
	DefaultLookahead   = 16
)

// Config configures a Queue. The zero Config holds requests back only while every
// target that may serve them refuses more (router.Full).
type Config struct {
	// Requests is the number of requests in flight, of this process (router.Load.InFlight),
	// at which a target of Weight 1 has no place for another one; a target of Weight 2
	// takes twice as many. 0: any number.
	Requests int
	// CountOthers has Requests count those of other processes too (router.Load.Queued):
	// the requests of gateways that share their load, and those that engines report.
	CountOthers bool
	// Prefill is the number of tokens waiting for prefill (router.Load.Prefill, with
	// those of gateways that share their load) at which a target of Weight 1 has no
	// place, by Weight as Requests. 0: any number.
	Prefill int
	// MaxWaiting bounds the requests that wait. 0 means DefaultMaxWaiting.
	MaxWaiting int
	// MaxBytes bounds the bytes of the prompts (Text, and four bytes for each of Tokens) that
	// wait. 0 means DefaultMaxBytes.
	MaxBytes int64
	// MaxWait is how long a request waits at the most. 0 means DefaultMaxWait.
	MaxWait time.Duration
	// Aging is how long a request waits behind higher priorities; after that the one
	// that has waited longest gets every other place. 0 means DefaultAging; negative:
	// priorities are strict without a bound.
	Aging time.Duration
	// Quantum is the number of tokens that a tenant of Weight 1 may use in one round.
	// 0 means DefaultQuantum.
	Quantum int
	// CachedPrice is the price of a token that is cached at the target, 0 to 1; one
	// that is not costs 1. 0 means DefaultCachedPrice; negative: cached tokens are free.
	// No request costs less than 256, because its reply takes time too.
	CachedPrice float64
	// CachedFirst lets the request with the longest cached prefix at a target with a
	// place go before older ones of its tenant and priority, which do not wait longer than
	// CachedFirst for it. 0: by arrival.
	CachedFirst time.Duration
	// Lookahead is how many requests are tried, and looked at for CachedFirst, for
	// one place. More than one may be needed if requests may go to different targets
	// (router.Among, limits of accounts). 0 means DefaultLookahead.
	Lookahead int
	// Class returns the class of a request; it must be safe for concurrent use. nil:
	// Prompt.Account is the tenant.
	Class func(context.Context, router.Prompt) Class
	// Trace has the hooks that the Queue calls.
	Trace Trace
}

// Class says how a request shares places with others.
type Class struct {
	// Tenant owns the request. Names are cut to 256 bytes.
	Tenant string
	// Priority: requests of a higher one go first. 0 is the usual one; it may be
	// negative. Values beyond -100 and 100 count as these.
	Priority int
	// Weight is the tenant's share next to others of the same priority, 0.01 to 100;
	// 0 and NaN mean 1.
	Weight float64
}

// Trace is a set of hooks. Each may be nil, and must be safe for concurrent use. They
// are called without a lock of the Queue's.
type Trace struct {
	// Entered reports that a request waits.
	Entered func(context.Context, router.Prompt, Class)
	// Left reports that a request waits no more, after how long and why: one of
	// Causes. Those that were not let in are reported too.
	Left func(ctx context.Context, p router.Prompt, c Class, waited time.Duration, cause string)
}

// The causes of Trace.Left; those of a router.NoTargetError's Shed are among them.
const (
	Served   = "served"    // a target was chosen
	Ended    = "ended"     // an error that waiting does not mend
	Canceled = "canceled"  // the request's context was done
	TooLong  = "too_long"  // MaxWait
	TooMany  = "too_many"  // MaxWaiting
	TooLarge = "too_large" // MaxBytes
)

// Causes returns the causes of Trace.Left.
func Causes() []string { return []string{Served, Ended, Canceled, TooLong, TooMany, TooLarge} }

// WithDefaults returns c with each zero field that has a default replaced by it.
func (c Config) WithDefaults() Config {
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	c.Aging = cmp.Or(c.Aging, DefaultAging)
	c.Quantum = cmp.Or(c.Quantum, DefaultQuantum)
	c.CachedPrice = cmp.Or(c.CachedPrice, DefaultCachedPrice)
	c.Lookahead = cmp.Or(c.Lookahead, DefaultLookahead)
	if c.Class == nil {
		c.Class = func(_ context.Context, p router.Prompt) Class { return Class{Tenant: p.Account} }
	}
	return c
}

func (c *Config) check() error {
	bad := configerr.List{Package: "admission"}
	const notNegative = "0 or more"
	bad.Check(c.Requests >= 0, "Requests", c.Requests, notNegative)
	bad.Check(c.Prefill >= 0, "Prefill", c.Prefill, notNegative)
	bad.Check(c.MaxWaiting >= 0, "MaxWaiting", c.MaxWaiting, notNegative)
	bad.Check(c.MaxBytes >= 0, "MaxBytes", c.MaxBytes, notNegative)
	bad.Check(c.MaxWait >= 0, "MaxWait", c.MaxWait, notNegative)
	bad.Check(c.Quantum >= 0 && c.Quantum <= 1<<30, "Quantum", c.Quantum, "0 to 1073741824")
	bad.Check(c.CachedPrice <= 1, "CachedPrice", c.CachedPrice, "1 or less")
	bad.Check(c.CachedFirst >= 0, "CachedFirst", c.CachedFirst, notNegative)
	bad.Check(c.Lookahead >= 0, "Lookahead", c.Lookahead, notNegative)
	return bad.Err()
}

// Queue is a router.Queue. Make one with New. Its methods are safe for concurrent use.
// A goroutine runs for each model with requests that wait, and ends with the last.
type Queue struct {
	cfg     atomic.Pointer[Config]
	waiting atomic.Int64 // requests; changed with mu
	now     func() time.Time
	ended   func(*waiter) // instead of a goroutine for each model; called with mu held

	mu    sync.Mutex
	bytes int64
	lines map[string]*line
	stats Stats
}

var _ router.Queue = (*Queue)(nil)

// Stats is what a Queue holds and has done.
type Stats struct {
	Waiting int   // requests that wait now
	Bytes   int64 // of their prompts
	Models  int   // that they are for
	// Left counts the requests that wait no more, by cause. It is the caller's.
	Left map[string]uint64
	// Waited is the sum of their times in the Queue.
	Waited time.Duration
}

// New returns an empty Queue. The error joins a *router.ConfigError for each field that
// is out of its range.
func New(cfg Config) (*Queue, error) {
	return makeQueue(cfg, time.Now)
}

func makeQueue(cfg Config, now func() time.Time) (*Queue, error) {
	q := &Queue{now: now, lines: map[string]*line{}, stats: Stats{Left: map[string]uint64{}}}
	if err := q.SetConfig(cfg); err != nil {
		return nil, err
	}
	return q, nil
}

// SetConfig replaces the settings. Requests that wait keep their class, and the time for
// which they wait at the most. If there is an error, as New returns it, nothing has changed.
func (q *Queue) SetConfig(cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	q.cfg.Store(&cfg)
	q.Freed() // there may be more places than before
	return nil
}

// Stats returns the numbers of now.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Waiting, s.Bytes, s.Models = int(q.waiting.Load()), q.bytes, len(q.lines)
	s.Left = make(map[string]uint64, len(q.stats.Left))
	for cause, n := range q.stats.Left {
		s.Left[cause] = n
	}
	return s
}

// Places is router.Queue's: a Ready target is Full if Config.Requests or Config.Prefill
// is reached there. A target without requests always has a place.
func (q *Queue) Places(targets []router.Target) []router.Target {
	cfg := q.cfg.Load()
	if cfg.Requests == 0 && cfg.Prefill == 0 {
		return targets
	}
	copied := false
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready || t.Load.InFlight <= 0 {
			continue
		}
		requests, prefill := cfg.Requests, cfg.Prefill
		if t.Weight > 0 && t.Weight != 1 {
			requests, prefill = scaled(requests, t.Weight), scaled(prefill, t.Weight)
		}
		n := t.Load.InFlight
		if cfg.CountOthers {
			n += max(t.Load.Queued, 0)
		}
		if (requests <= 0 || n < requests) && (prefill <= 0 || t.Load.Prefill < prefill) {
			continue
		}
		if !copied {
			copied = true
			targets = append(make([]router.Target, 0, len(targets)), targets...)
		}
		targets[i].State = router.Full
	}
	return targets
}

// scaled returns the limit n of a target with the weight: 1 at the least, 0 for any number.
func scaled(n int, weight float64) int {
	if x := math.Ceil(float64(n) * weight); n > 0 && x < math.MaxInt32 {
		return int(max(x, 1))
	}
	return 0
}

// Busy is router.Queue's.
func (q *Queue) Busy(model string) bool {
	if q.waiting.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines[model] != nil
}

// Freed is router.Queue's.
func (q *Queue) Freed() {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.lines {
		n.wakeUp()
	}
}

// Wait is router.Queue's. If the Queue is full, the newest request of the lowest
// priority, and there of the tenant with the most of them, is shed.
func (q *Queue) Wait(ctx context.Context, r *router.Waiting) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	w := q.waiter(ctx, r)
	q.enter(w)
	timer := time.NewTimer(q.cfg.Load().MaxWait)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		q.giveUp(w, TooLong)
	case <-ctx.Done():
		q.giveUp(w, Canceled)
	}
	return q.result(ctx, w)
}
