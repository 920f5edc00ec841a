package loadview

import (
	"cmp"
	"crypto/tls"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/loadview/enginepage"
)

// The defaults of Config.
const (
	// DefaultCoolAfter is three, so that one reset connection does not take half
	// of a fleet of two away, while a dead member costs three retried requests,
	// once: after its first cool-down each further one costs a single request.
	DefaultCoolAfter     = 3
	DefaultCoolBase      = 5 * time.Second
	DefaultCoolMax       = 300 * time.Second
	DefaultJitter        = 0.2
	DefaultRetryAfterMax = 300 * time.Second
	DefaultFullFor       = time.Second
	// DefaultPanicThreshold lets one of two members be out.
	DefaultPanicThreshold  = 0.5
	DefaultBreakerFailures = 5
	DefaultBreakerOpen     = 30 * time.Second

	DefaultScrapeInterval = 5 * time.Second
	DefaultProbeInterval  = 10 * time.Second
	DefaultTimeout        = 2 * time.Second
	// DefaultMaxBody is some thirty times the longest page seen of one engine.
	DefaultMaxBody = 4 << 20
	// DefaultParallel lets half of a fleet of 1,000 hang without delaying the rest.
	DefaultParallel       = 256
	DefaultProbeFailures  = 3
	DefaultProbeSuccesses = 2
	DefaultSlowStart      = 10 * time.Second
)

// Config configures a View. The zero Config works; see [Config.WithDefaults].
type Config struct {
	// CoolAfter is the number of failures in a row that cool a member down. 0
	// means DefaultCoolAfter; negative: failures never do.
	CoolAfter int
	// CoolBase is the first cool-down, CoolMax the longest; each one that follows
	// without a success between is twice the one before. 0 means DefaultCoolBase
	// (or CoolMax, if that is shorter) and DefaultCoolMax (or CoolBase, if that is
	// longer).
	CoolBase, CoolMax time.Duration
	// Jitter is the share of a cool-down, 0 to 1, that may be cut off at random,
	// so that gateways that lost a member together do not come back together. 0
	// means DefaultJitter; negative: none.
	Jitter float64
	// RetryAfterMax bounds a Retry-After. 0 means DefaultRetryAfterMax; negative:
	// a Retry-After is ignored.
	RetryAfterMax time.Duration
	// FullFor is how long a member that refused a request as full (429, 503 or 529)
	// gets no more requests at once than it had then, or for as long as its
	// Retry-After says, if that is longer. 0 means
	// DefaultFullFor; negative: these are failures like other ones, but a 429 with a
	// Retry-After, which cools the member for that time.
	FullFor time.Duration
	// PanicThreshold is the largest share, 0 to 1, of a View's members that failures and
	// probes may exclude at the same time. If they would exclude more of two or more
	// members, the cause is common to them or in the requests, and the View panics: it
	// excludes none of them. But a member that refuses connections stays excluded while
	// others are reachable. Members that are Draining, Asleep, or Unhealthy by SetUnhealthy, do
	// not count, and Full and a Retry-After are obeyed. 0 means DefaultPanicThreshold;
	// negative: a View never panics.
	PanicThreshold float64
	// Breaker turns the circuit breakers on. BreakerFailures in a row open one
	// for BreakerOpen; 0 means DefaultBreakerFailures and DefaultBreakerOpen.
	Breaker         bool
	BreakerFailures int
	BreakerOpen     time.Duration
	// Now returns the time; nil means time.Now. It is called with the View locked,
	// must not call the View, and is safe for concurrent use. A clock without a
	// monotonic reading may be set back: the View's own time then goes on from the
	// instant before, so that no cool-down is longer than it was meant to be.
	Now func() time.Time
	// Rand is the source of the jitter, safe for concurrent use; nil means the
	// global source. It is called with the View locked and must not call the View.
	Rand func() uint64
	// Scrape and Probe say how Run reads the pages and asks for the health of
	// members with a Metrics or a Health URL, within Egress and with TLS (nil means
	// Go's defaults).
	Scrape Scrape
	Probe  Probe
	Egress egress.Policy
	TLS    *tls.Config
	// Share is this gateway's part in a fleet of gateways: the requests that the others
	// have in flight on a member count at once, in Load.Queued and Load.Prefill. nil:
	// nothing is shared.
	Share router.Peers
	// Adapters models which LoRA adapters the members have loaded. Run gives it their pages, the strategies that share
	// it the rest. nil: there is none.
	Adapters *adapters.Slots
	// Trace is called about changes.
	Trace Trace
}

// Scrape configures how the engines' metrics pages are read.
type Scrape struct {
	// Interval is the time from one scrape of a member to the next, give or take a
	// tenth at random. Timeout bounds one, with its body. 0 means
	// DefaultScrapeInterval and DefaultTimeout.
	Interval, Timeout time.Duration
	// StaleAfter is the age at which the numbers of a page are no longer known; 0
	// means three Intervals.
	StaleAfter time.Duration
	// MaxBody bounds a page, in bytes; a longer one is a failed scrape. 0 means
	// DefaultMaxBody.
	MaxBody int64
	// Parallel bounds the scrapes under way at once. 0 means DefaultParallel.
	Parallel int
	// Dialects are the names that engines of the caller's own give to their load.
	// They are tried before those of enginepage.Dialects. They are not to be changed
	// afterwards.
	Dialects []enginepage.Dialect
}

// Probe configures how the members' Health URLs are asked. Any 2xx is a success.
type Probe struct {
	// Interval is the time from one probe of a member to the next, give or take a
	// tenth at random. Timeout bounds one. 0 means DefaultProbeInterval and
	// DefaultTimeout.
	Interval, Timeout time.Duration
	// Failures in a row make a member Unhealthy, Successes in a row take that back.
	// 0 means DefaultProbeFailures and DefaultProbeSuccesses.
	Failures, Successes int
	// SlowStart is how long a member that is back is offered with a handicap: at
	// first it counts as loaded as the mean of the Ready ones, and ever less so
	// until the time is over. So its idle slots fill up over that time instead of
	// drawing all traffic at once. 0 means DefaultSlowStart; negative: none.
	SlowStart time.Duration
	// Parallel bounds the probes under way at once. 0 means DefaultParallel.
	Parallel int
}

// Trace has the hooks that a View calls. Each may be nil. They are called
// without the View's lock, by the goroutine that caused or first saw the change,
// and should be quick: that goroutine is about to send a request.
type Trace struct {
	// StateChanged reports that a member is in another state by itself (a panic, which
	// PanicChanged reports, changes only how it is offered), one call at a
	// time and in order for each member. Full, which changes with every request, is
	// reported as Ready. A change by time alone is reported when the
	// View is next used. While a call takes long, changes of the other members
	// wait for it, and a member that changed several times is reported as one change.
	StateChanged func(id string, from, to router.State)
	// PanicChanged reports that v began or ceased to panic; see
	// [Config.PanicThreshold]. v's Snapshot has the members.
	PanicChanged func(v *View, on bool)
	// Joined and Left report the changes of Set, Put and Remove: first Left and
	// Forget for each member that is gone, then Joined. They, and a Forget that
	// comes with them, must not change the members. inFlight is the number of
	// requests that this process still had in flight on the member that left.
	Joined func(m Member)
	Left   func(id string, inFlight int)
	// Forget reports that a member is gone or its cache is. For a member that left,
	// it has returned before one of the same ID can join. Run calls it too, when a
	// page shows that the engine was restarted or fell asleep. A Router over the View passes it on
	// to its strategy without this hook; see [View.OnForget].
	Forget func(id string)
	// Lacks reports that a member replied that it does not have a model or an adapter, once in the minute for which it
	// is passed over for that. A caller that can load it there (vLLM's /v1/load_lora_adapter) does so elsewhere than in
	// the hook, and then calls [View.Loaded]. The name may be a client's invention.
	Lacks func(id, name string)
	// ScrapeChanged reports that the scrapes of a member began to fail, and why, or
	// with nil that they succeed again. Run calls it.
	ScrapeChanged func(id string, err error)
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one.
func (c Config) WithDefaults() Config {
	c.CoolAfter = cmp.Or(c.CoolAfter, DefaultCoolAfter)
	if c.CoolBase == 0 {
		c.CoolBase = DefaultCoolBase
		if c.CoolMax > 0 {
			c.CoolBase = min(c.CoolBase, c.CoolMax)
		}
	}
	c.CoolMax = cmp.Or(c.CoolMax, max(DefaultCoolMax, c.CoolBase))
	c.Jitter = cmp.Or(c.Jitter, DefaultJitter)
	c.RetryAfterMax = cmp.Or(c.RetryAfterMax, DefaultRetryAfterMax)
	c.FullFor = cmp.Or(c.FullFor, DefaultFullFor)
	c.PanicThreshold = cmp.Or(c.PanicThreshold, DefaultPanicThreshold)
	c.BreakerFailures = cmp.Or(c.BreakerFailures, DefaultBreakerFailures)
	c.BreakerOpen = cmp.Or(c.BreakerOpen, DefaultBreakerOpen)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	c.Scrape = c.Scrape.WithDefaults()
	c.Probe = c.Probe.WithDefaults()
	return c
}

// WithDefaults returns s with the default in place of each field that is zero and
// has one.
func (s Scrape) WithDefaults() Scrape {
	s.Interval = cmp.Or(s.Interval, DefaultScrapeInterval)
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	s.StaleAfter = cmp.Or(s.StaleAfter, 3*min(s.Interval, math.MaxInt64/3))
	s.MaxBody = cmp.Or(s.MaxBody, DefaultMaxBody)
	s.Parallel = cmp.Or(s.Parallel, DefaultParallel)
	return s
}

// WithDefaults returns p with the default in place of each field that is zero and
// has one.
func (p Probe) WithDefaults() Probe {
	p.Interval = cmp.Or(p.Interval, DefaultProbeInterval)
	p.Timeout = cmp.Or(p.Timeout, DefaultTimeout)
	p.Failures = cmp.Or(p.Failures, DefaultProbeFailures)
	p.Successes = cmp.Or(p.Successes, DefaultProbeSuccesses)
	p.SlowStart = cmp.Or(p.SlowStart, DefaultSlowStart)
	p.Parallel = cmp.Or(p.Parallel, DefaultParallel)
	return p
}

// check returns a *router.ConfigError for each field of c, which has its defaults,
// that is not allowed, joined.
func (c *Config) check() error {
	bad := configerr.List{Package: "loadview"}
	duration := func(field string, d time.Duration) { bad.Check(d >= 0, field, d, "0 or more") }
	number := func(field string, n int64) { bad.Check(n >= 0, field, n, "0 or more") }
	duration("CoolBase", c.CoolBase)
	duration("CoolMax", c.CoolMax)
	bad.Check(c.CoolMax < 0 || c.CoolMax >= c.CoolBase, "CoolMax", c.CoolMax, "at least CoolBase, "+c.CoolBase.String())
	bad.Check(c.Jitter <= 1, "Jitter", c.Jitter, "at most 1")
	bad.Check(c.PanicThreshold <= 1, "PanicThreshold", c.PanicThreshold, "at most 1")
	number("BreakerFailures", int64(c.BreakerFailures))
	duration("BreakerOpen", c.BreakerOpen)
	duration("Scrape.Interval", c.Scrape.Interval)
	duration("Scrape.Timeout", c.Scrape.Timeout)
	duration("Scrape.StaleAfter", c.Scrape.StaleAfter)
	number("Scrape.MaxBody", c.Scrape.MaxBody)
	number("Scrape.Parallel", int64(c.Scrape.Parallel))
	for i, d := range c.Scrape.Dialects {
		bad.Add(configerr.In("Scrape.Dialects["+strconv.Itoa(i)+"]", d.Validate()))
	}
	duration("Probe.Interval", c.Probe.Interval)
	duration("Probe.Timeout", c.Probe.Timeout)
	number("Probe.Failures", int64(c.Probe.Failures))
	number("Probe.Successes", int64(c.Probe.Successes))
	number("Probe.Parallel", int64(c.Probe.Parallel))
	bad.Add(configerr.In("Egress", c.Egress.Validate()))
	return bad.Err()
}
