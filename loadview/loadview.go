// Package loadview is the fleet as this process sees it: its members, what this
// process has in flight on each, and whether each may be picked.
//
// A [View] is a [router.Fleet]. [View.Set] says who the members are,
// [View.Choose] lets a strategy choose among them and counts the choice in the
// same step, and the [router.Flight] that Choose returns takes the request off
// the counters and tells how it went, from which the View learns which members
// to leave alone for a while.
//
// Counters and health are apart: a health change never touches a counter, and
// nothing but the request's own end takes it off its counter, however long it
// lives.
//
// # What becomes of a failure
//
// A request that Finished is a success. One that Failed in a way that another
// target might have answered ([router.Outcome.Retryable]: no status, 408, 429 or
// 5xx) is a failure. All else (Canceled; a 404 or another 4xx of the client's
// own making) is neither and changes nothing.
//
//   - [Config.CoolAfter] failures in a row cool a member down: it is
//     [router.Cooling] for CoolBase. After that it is Ready again and on trial:
//     the next failure cools it for twice as long, up to CoolMax. One success
//     of a request that was sent after the first failure in the row clears the
//     count, the doubling and a cool-down under way; older ones tell of the time
//     before, as when a full engine turns requests down while it finishes those
//     it has. A crash fails everything in flight at once, which is one event:
//     failures during a cool-down, and later those of requests that were sent
//     before it ended, do not count.
//   - A Retry-After is what the member itself asked for. It is obeyed from the
//     first time, for as long as it says up to RetryAfterMax, without doubling,
//     and to its end: a success does not cut it short, because replies that were
//     under way finish while the member turns new ones down. A 429 with a
//     Retry-After is no failure beside that, since the member is well and said
//     when it has room; any other reply with one is a failure too.
//   - With [Config.Breaker], BreakerFailures failures in a row make a member
//     [router.Tripped] for BreakerOpen. Then it is half-open: offered as Ready
//     until one Choose takes it, and Tripped to everybody else until that request
//     has its first token or has ended. Its success, of which the first token is
//     enough, closes the breaker, its failure opens it for another BreakerOpen,
//     and where it was neither the next request tries. Looking (a
//     Snapshot, or a Choose that takes another member or none) uses nothing up.
//     Other requests that reach the member meanwhile, because somebody else chose
//     for them, decide nothing.
//
// # What the engines say
//
// [View.Run] reads the metrics page of each member that has a Member.Metrics and
// probes those with a Member.Health. From the page comes Load.Queued: what the
// engine has beyond what this process sent, so gateways over one fleet see each
// other. It is as old as the page, so it helps where requests last longer than
// Scrape.Interval; engines that count only now and then (SGLang, every so many
// steps) make it older still. [View.Engine] has the rest, for filters.
package loadview

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
)

// The defaults of Config.
const (
	// DefaultCoolAfter is three, so that one reset connection does not take half
	// of a fleet of two away, while a dead member costs three retried requests,
	// once: after its first cool-down each further one costs a single request.
	DefaultCoolAfter       = 3
	DefaultCoolBase        = 5 * time.Second
	DefaultCoolMax         = 300 * time.Second
	DefaultJitter          = 0.2
	DefaultRetryAfterMax   = 300 * time.Second
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

// Config is what New needs to know. The zero Config works.
type Config struct {
	// CoolAfter is the number of failures in a row that cool a member down. 0
	// means DefaultCoolAfter; negative: failures never do.
	CoolAfter int
	// CoolBase is the first cool-down, CoolMax the longest; each one that follows
	// without a success between is twice the one before. 0 means DefaultCoolBase
	// and DefaultCoolMax (or CoolBase, where that is longer).
	CoolBase, CoolMax time.Duration
	// Jitter is the share of a cool-down, 0 to 1, that may be cut off at random,
	// so that gateways that lost a member together do not come back together. 0
	// means DefaultJitter; negative: none.
	Jitter float64
	// RetryAfterMax bounds a Retry-After. 0 means DefaultRetryAfterMax; negative:
	// a Retry-After is ignored, and a 429 with one is a failure like others.
	RetryAfterMax time.Duration
	// Breaker turns the circuit breakers on. BreakerFailures in a row open one
	// for BreakerOpen; 0 means DefaultBreakerFailures and DefaultBreakerOpen.
	Breaker         bool
	BreakerFailures int
	BreakerOpen     time.Duration
	// Now tells the time; nil means time.Now. It is called with the View locked,
	// must not call the View, and is safe for concurrent use.
	Now func() time.Time
	// Rand is the source of the jitter, safe for concurrent use; nil means the
	// global source. It is called with the View locked and must not call the View.
	Rand func() uint64
	// Scrape and Probe are what Run does for members with a Metrics or a Health
	// URL, within Egress and with TLS (nil means Go's defaults).
	Scrape Scrape
	Probe  Probe
	Egress egress.Policy
	TLS    *tls.Config
	// Trace is told what happens.
	Trace Trace
}

// Scrape is how the engines' metrics pages are read.
type Scrape struct {
	// Interval is the time from one scrape of a member to the next, give or take a
	// tenth at random. Timeout bounds one, with its body. 0 means
	// DefaultScrapeInterval and DefaultTimeout.
	Interval, Timeout time.Duration
	// StaleAfter is the age at which what a page said is no longer known; 0 means
	// three Intervals.
	StaleAfter time.Duration
	// MaxBody bounds a page, in bytes; a longer one is a failed scrape. 0 means
	// DefaultMaxBody.
	MaxBody int64
	// Parallel bounds the scrapes under way at once. 0 means DefaultParallel.
	Parallel int
}

// Probe is how the members' Health URLs are asked. Any 2xx is a success.
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

// Trace is what a View tells about itself. Each hook may be nil. They are called
// without the View's lock, by the goroutine that caused or first saw the change,
// and should be quick: that goroutine is about to send a request.
type Trace struct {
	// StateChanged tells that a member is offered in another state, one call at a
	// time and in order for each member. What time alone changes is told when the
	// View is next used. While a call takes long, changes of the other members
	// wait for it, and a member that changed several times is told as one change.
	StateChanged func(id string, from, to router.State)
	// Joined and Left tell what Set did: first Left and Forget for each member
	// that is gone, then Joined. They and a Forget that Set tells must not call
	// Set. inFlight is what this process still had in flight on the one that left.
	Joined func(m Member)
	Left   func(id string, inFlight int)
	// Forget tells that a member is gone or its cache is: the place to call
	// [router.Forgetter] of the strategies over this View. For a member that left,
	// it has returned before one of the same ID can join.
	// It is also called by Run where a page shows that the engine was restarted.
	Forget func(id string)
	// ScrapeChanged tells that the scrapes of a member began to fail, and why, or
	// with nil that they are well again. It is called by Run.
	ScrapeChanged func(id string, err error)
}

// View is a fleet and its counters. It is safe for concurrent use and starts no
// goroutine. Make one with New.
type View struct {
	cfg  Config
	base time.Time // instants are durations since then, on its monotonic clock

	// setting is held through Set with its hooks, so that what is told of one Set
	// is over before the next begins.
	setting sync.Mutex

	mu      sync.Mutex
	byID    map[string]*member
	members []*member
	// truth[i] is members[i] as it is to be offered, offered the copy that pick
	// gets: whatever pick does to that is gone by the next Choose.
	truth, offered []router.Target
	// due is the earliest instant at which time may change a state; 0: none.
	due time.Duration
	// changed holds members whose state differs from what was told, each at most
	// once; telling says that a goroutine is at it.
	changed []*member
	telling bool
	pending atomic.Bool // len(changed) > 0, to be read without the lock

	warming []*member // members with a handicap

	roster atomic.Pointer[roster] // what Snapshot reads

	sets    chan struct{} // Set was called, for Run
	running atomic.Bool   // Run is
}

var (
	_ router.Fleet     = (*View)(nil)
	_ router.Forgetter = (*View)(nil)
)

// New returns a View without members. Its error names every field of cfg with a
// bad value.
func New(cfg Config) (*View, error) {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("loadview: Config.%s: %w", field, fmt.Errorf(format, args...)))
	}
	if cfg.CoolBase < 0 {
		bad("CoolBase", "%v is negative", cfg.CoolBase)
	}
	if cfg.CoolMax < 0 {
		bad("CoolMax", "%v is negative", cfg.CoolMax)
	}
	if cfg.CoolAfter == 0 {
		cfg.CoolAfter = DefaultCoolAfter
	}
	if cfg.CoolBase == 0 {
		cfg.CoolBase = DefaultCoolBase
		if cfg.CoolMax > 0 {
			cfg.CoolBase = min(cfg.CoolBase, cfg.CoolMax)
		}
	}
	if cfg.CoolMax == 0 {
		cfg.CoolMax = max(DefaultCoolMax, cfg.CoolBase)
	}
	if cfg.CoolMax > 0 && cfg.CoolMax < cfg.CoolBase {
		bad("CoolMax", "%v is less than CoolBase, %v", cfg.CoolMax, cfg.CoolBase)
	}
	if !(cfg.Jitter <= 1) {
		bad("Jitter", "%v is more than 1 or not a number", cfg.Jitter)
	}
	if cfg.Jitter == 0 {
		cfg.Jitter = DefaultJitter
	}
	cfg.Jitter = max(cfg.Jitter, 0)
	if cfg.RetryAfterMax == 0 {
		cfg.RetryAfterMax = DefaultRetryAfterMax
	}
	if cfg.BreakerFailures < 0 {
		bad("BreakerFailures", "%d is negative", cfg.BreakerFailures)
	}
	if cfg.BreakerOpen < 0 {
		bad("BreakerOpen", "%v is negative", cfg.BreakerOpen)
	}
	if cfg.BreakerFailures == 0 {
		cfg.BreakerFailures = DefaultBreakerFailures
	}
	if cfg.BreakerOpen == 0 {
		cfg.BreakerOpen = DefaultBreakerOpen
	}
	cfg.Scrape.defaults(bad)
	cfg.Probe.defaults(bad)
	if err := cfg.Egress.Validate(); err != nil {
		bad("Egress", "%w", err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Uint64
	}
	v := &View{cfg: cfg, base: cfg.Now(), byID: map[string]*member{}, sets: make(chan struct{}, 1)}
	v.roster.Store(&roster{})
	return v, nil
}

// now is the time since New. It is never negative, so that a deadline, which is
// later, is never 0.
func (v *View) now() time.Duration {
	return max(v.cfg.Now().Sub(v.base), 0)
}

// watch sees to it that the View looks at its members again at t.
func (v *View) watch(t time.Duration) {
	if v.due == 0 || t < v.due {
		v.due = t
	}
}
