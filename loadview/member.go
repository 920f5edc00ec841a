package loadview

import (
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
)

// Member is one replica as the caller knows it.
type Member struct {
	// ID names the member permanently; not "".
	ID string
	// Weight is the capacity relative to the others; 0, negative and NaN mean 1.
	// An infinite one is an error.
	Weight float64
	// Draining members finish the requests that they have and take no new ones.
	Draining bool
	// Ref is the caller's own; it comes back in Target.Ref and is never read.
	Ref any
	// Metrics is the URL of the engine's metrics page, which Run scrapes; "": it is
	// not scraped. Health is the URL that Run probes; "": it is not probed. One that
	// Config.Egress denies is an error of Set.
	Metrics, Health string
	// Rank is the data-parallel rank of the member if several are on one metrics
	// page, by the page's own label: engine on vLLM's, dp_rank on SGLang's, counted
	// from 0. "": the page is all its own. Run then reads from the page the numbers of
	// this rank alone; a page without it is a failed scrape, but if a page knows
	// of no ranks all of it is rank 0's. Members with equal Metrics and Header share
	// one scrape.
	Rank string
	// Header is sent with both, an Authorization for example. It is copied.
	Header http.Header
}

// place is a member's index in a View.
type place struct {
	view  *View
	index int
}

// source is the part of a Member that Run reads. It is never changed.
type source struct {
	member          *member
	metrics, health string
	rank            string
	header          http.Header
}

// ErrUnknown is found by errors.Is in the error of a call for an ID that is no
// member.
var ErrUnknown = errors.New("loadview: no such member")

// member is the record of one. The fields that Snapshot reads without the lock are
// atomic; everything is written under the lock.
type member struct {
	id     string // the string that is offered for as long as the member stays
	weight float64
	load   router.Load // with which it is offered
	state  router.State
	places []place // in the Views that have it; none: it is gone
	gone   bool

	source   *source
	page     atomic.Pointer[page] // the last page
	history  history              // of the pages before
	inFlight atomic.Int64
	prefill  atomic.Int64
	queued   atomic.Int64          // reported, or the mean that stands in for it
	reported atomic.Int64          // when queued was reported, unless queueUnknown
	stale    atomic.Int64          // when that stops to be known; 0: never
	trouble  atomic.Pointer[error] // why the last scrape failed

	peers elsewhere // the load that other gateways have there

	// After a recovery, extra is added to queued, less and less until warm.
	extra, since, warm atomic.Int64

	flags   atomic.Uint32
	fails   atomic.Int32 // failures in a row, for the cool-down
	cool    atomic.Int64 // until when failures cool it; 0: they do not
	pause   atomic.Int64 // until when it asked to be left alone; 0: it did not
	open    atomic.Int64 // until when the breaker is open; 0 with tripped: half-open
	asleep  atomic.Int64 // until when its page says that it sleeps; 0: it does not
	full    atomic.Int64 // until when limits hold somebody back; 0: they do not
	limits  []*limit     // by party
	least   atomic.Int64 // of the limits
	leastTo atomic.Int64 // until when it is
	rest    *limit       // that of the parties beyond the bound, nil while there are none
	doubts  int32        // cool-downs in a row
	faults  int32        // failures in a row, for the breaker
	epoch   uint32       // how often it recovered
	sent    uint64       // requests that were sent to it
	recent  recent
	answers uint64  // first tokens and replies that came from it
	streak  uint64  // sent at the first of the failures in a row; 0: there are none
	peak    int64   // the most in flight since the scrape under way began
	probe   *flight // the one that a half-open breaker let through

	standing standing
	lacks    lacks
	excuses  int           // failures in a row for which requests are to blame
	excused  time.Duration // when the last of them was

	hinted time.Duration // until when another gateway leaves it alone

	seen    router.State // the state that Trace.StateChanged had last
	waiting bool         // is in pool.changed
}

// The bits of member.flags.
const (
	drainSet     uint32 = 1 << iota // Member.Draining
	drainAsked                      // SetDraining
	unhealthy                       // SetUnhealthy
	probedDown                      // Run's probes fail
	deaf                            // nothing listened at the last failure
	tripped                         // the breaker is not closed
	probing                         // member.probe is in flight
	queueUnknown                    // queued is not a report
)

func (p *pool) newMember(id string) *member {
	m := &member{id: id}
	m.set(queueUnknown, true)
	m.peers.join(p.peers, id)
	return m
}

func (m *member) set(flag uint32, on bool) {
	if on {
		m.flags.Store(m.flags.Load() | flag)
	} else {
		m.flags.Store(m.flags.Load() &^ flag)
	}
}

func (m *member) has(flag uint32) bool { return m.flags.Load()&flag != 0 }

// loadNow returns the load of m, without the handicap. It may be called without
// the lock.
func (m *member) loadNow() router.Load {
	queued, prefill := m.peers.add(m.queued.Load(), m.prefill.Load())
	return router.Load{
		Known:    true, // the requests that this process sent are always known
		InFlight: toInt(m.inFlight.Load()),
		Queued:   toInt(queued),
		Prefill:  toInt(prefill),
	}
}

// queueKnown reports whether queued is a report that still stands.
func (m *member) queueKnown(now time.Duration) bool {
	t := m.stale.Load()
	return !m.has(queueUnknown) && (t == 0 || int64(now) < t)
}

// setSource takes over the part of c that Run reads.
func (m *member) setSource(c *Member) {
	next := &source{member: m, metrics: c.Metrics, health: c.Health, rank: c.Rank, header: c.Header.Clone()}
	old := m.source
	if old != nil && reflect.DeepEqual(*old, *next) {
		return
	}
	m.source = next
	m.history = history{}
	if old == nil {
		return
	}
	if old.metrics != "" && next.metrics == "" { // nobody will report that it is over
		m.page.Store(nil)
		m.trouble.Store(nil)
		m.stale.Store(0)
		m.asleep.Store(0)
		m.set(queueUnknown, true)
	}
	if old.health != "" && next.health == "" {
		m.set(probedDown, false)
	}
}

// putLoad brings the counters of m into the load that is offered.
func (p *pool) putLoad(m *member) {
	m.load = m.loadNow()
	m.peers.publish(m)
	if m.extra.Load() != 0 {
		m.load.Queued += m.handicap(p.now())
	}
	for _, at := range m.places {
		at.view.truth[at.index].Load = m.load
	}
}

// putState brings the state of m into the state that is offered.
func (p *pool) putState(m *member, now time.Duration) {
	if m.gone {
		return
	}
	moved := p.putStanding(m, now)
	s := m.stateAt(now)
	if s == router.Ready && m.state != router.Ready {
		p.signal()
	}
	if s != m.state || moved || m.standing != 0 {
		p.countFull(m.state, -1)
		p.countFull(s, 1)
		m.state = s
		for _, at := range m.places {
			offered := &at.view.truth[at.index].State
			was := *offered
			*offered = at.view.offer(m, s, now)
			if *offered == router.Ready && was != router.Ready {
				p.signal()
			}
		}
	}
	if seen(s) != m.seen && !m.waiting && p.cfg.Load().Trace.StateChanged != nil {
		m.waiting = true
		p.changed = append(p.changed, m)
		p.pending.Store(true)
	}
}

// countFull counts members that are Full.
func (p *pool) countFull(s router.State, n int) {
	if s == router.Full {
		p.full += n
	}
}
