package loadview

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
)

// Member is one replica as the caller knows it.
type Member struct {
	// ID names the member for good; not "".
	ID string
	// Weight is the capacity relative to the others; 0, negative and NaN mean 1.
	// An infinite one is an error.
	Weight float64
	// Draining members finish what they have and take nothing new.
	Draining bool
	// Ref is the caller's own; it comes back in Target.Ref and is never read.
	Ref any
	// Metrics is the URL of the engine's metrics page, which Run scrapes; "": it is
	// not scraped. Health is the URL that Run probes; "": it is not probed. One that
	// Config.Egress denies is an error of Set.
	Metrics, Health string
	// Rank says which data-parallel rank of several on one metrics page the member
	// is, by the page's own label: engine on vLLM's, dp_rank on SGLang's, counted
	// from 0. "": the page is all its own. What Run learns from the page is then of
	// this rank alone; a page without it is a failed scrape, but where a page knows
	// of no ranks all of it is rank 0's. Members with equal Metrics and Header share
	// one scrape.
	Rank string
	// Header is sent with both, an Authorization for example. It is copied.
	Header http.Header
}

// source is what Run needs to know of a member. It is never changed.
type source struct {
	member          *member
	metrics, health string
	rank            string
	header          http.Header
}

// ErrUnknown is what errors.Is finds in the error of a call for an ID that is no
// member.
var ErrUnknown = errors.New("loadview: no such member")

// member is what the View knows of one. What Snapshot reads without the lock is
// atomic; everything is written under the lock.
type member struct {
	id       string // the string that is offered for as long as the member stays
	index    int    // in View.members and View.truth
	gone     bool
	source   *source
	page     atomic.Pointer[page] // what was scraped last
	history  history              // what its pages said before
	inFlight atomic.Int64
	prefill  atomic.Int64
	queued   atomic.Int64          // reported, or what stands in for it
	reported atomic.Int64          // when queued was reported, unless queueUnknown
	stale    atomic.Int64          // when that stops to be known; 0: never
	trouble  atomic.Pointer[error] // why the last scrape failed

	// After a recovery, extra is added to queued, less and less until warm.
	extra, since, warm atomic.Int64

	flags  atomic.Uint32
	fails  atomic.Int32 // failures in a row, for the cool-down
	cool   atomic.Int64 // until when failures cool it; 0: they do not
	pause  atomic.Int64 // until when it asked to be left alone; 0: it did not
	open   atomic.Int64 // until when the breaker is open; 0 with tripped: half-open
	doubts int32        // cool-downs in a row
	faults int32        // failures in a row, for the breaker
	epoch  uint32       // how often it recovered
	sent   uint64       // requests that were sent to it
	streak uint64       // sent at the first of the failures in a row; 0: there are none
	peak   int64        // the most in flight since the scrape under way began
	probe  *flight      // the one that a half-open breaker let through

	told    router.State // what Trace was told last
	waiting bool         // is in View.changed
}

// The bits of member.flags.
const (
	drainSet     uint32 = 1 << iota // Member.Draining
	drainAsked                      // SetDraining
	unhealthy                       // SetUnhealthy
	tripped                         // the breaker is not closed
	probing                         // member.probe is in flight
	queueUnknown                    // queued is not a report
)

func (m *member) set(flag uint32, on bool) {
	if on {
		m.flags.Store(m.flags.Load() | flag)
	} else {
		m.flags.Store(m.flags.Load() &^ flag)
	}
}

func (m *member) has(flag uint32) bool { return m.flags.Load()&flag != 0 }

// load is what m is offered with, but for the handicap.
func (m *member) load() router.Load {
	return router.Load{
		Known:    true, // what this process sent is always known
		InFlight: toInt(m.inFlight.Load()),
		Queued:   toInt(m.queued.Load()),
		Prefill:  toInt(m.prefill.Load()),
	}
}

// queueKnown reports whether queued is a report that still stands.
func (m *member) queueKnown(now time.Duration) bool {
	t := m.stale.Load()
	return !m.has(queueUnknown) && (t == 0 || int64(now) < t)
}

// Set makes ms the members. Those that stay keep their counters, their health
// and what SetDraining said; weight, Ref and Draining are taken from ms. One that
// leaves is gone for good: under the same ID a new one begins, and requests in
// flight on the old one settle its counters only. An empty or double ID, an
// infinite weight or a URL that is none or is denied is an error that names all
// of them; then nothing is changed.
//
// ms is not kept.
func (v *View) Set(ms []Member) error {
	if err := v.check(ms); err != nil {
		return err
	}
	v.setting.Lock()
	defer v.setting.Unlock()

	var joined []Member
	var left []*member
	v.mu.Lock()
	now := v.now()
	byID := make(map[string]*member, len(ms))
	members := make([]*member, len(ms))
	truth := make([]router.Target, len(ms))
	weights := make([]router.Target, len(ms)) // what Snapshot starts from
	for i, c := range ms {
		m := v.byID[c.ID]
		if m == nil {
			m = &member{id: c.ID}
			m.set(queueUnknown, true)
			joined = append(joined, c)
		}
		v.setSource(m, c)
		m.set(drainSet, c.Draining)
		byID[m.id], members[i] = m, m
		truth[i] = router.Target{ID: m.id, Weight: c.Weight, Ref: c.Ref}
		weights[i] = truth[i]
	}
	for _, m := range v.members {
		if byID[m.id] != m {
			m.gone = true
			left = append(left, m)
		}
	}
	if len(left) > 0 {
		v.changed = slices.DeleteFunc(v.changed, func(m *member) bool { return m.gone })
	}
	v.byID, v.members, v.truth = byID, members, truth
	v.offered = make([]router.Target, len(ms))
	for i, m := range members {
		m.index = i
	}
	for _, m := range joined {
		m := byID[m.ID]
		m.told = m.stateAt(now)
	}
	v.warming = slices.DeleteFunc(v.warming, func(m *member) bool { return m.gone })
	v.expire(now)
	v.spreadQueued()
	v.roster.Store(&roster{members: members, targets: weights, byID: byID})
	v.mu.Unlock()
	select {
	case v.sets <- struct{}{}:
	default:
	}

	t := &v.cfg.Trace
	for _, m := range left {
		if t.Left != nil {
			t.Left(m.id, toInt(m.inFlight.Load()))
		}
		v.Forget(m.id)
	}
	if t.Joined != nil {
		for _, m := range joined {
			t.Joined(m)
		}
	}
	v.tell()
	return nil
}

func (v *View) check(ms []Member) error {
	var errs []error
	seen := make(map[string]int, len(ms))
	for i, m := range ms {
		if m.ID == "" {
			errs = append(errs, fmt.Errorf("loadview: Set: member %d has no ID", i))
			continue
		}
		if first, ok := seen[m.ID]; ok {
			errs = append(errs, fmt.Errorf("loadview: Set: members %d and %d are both %q", first, i, m.ID))
			continue
		}
		seen[m.ID] = i
		if math.IsInf(m.Weight, 0) {
			errs = append(errs, fmt.Errorf("loadview: Set: member %q has an infinite Weight", m.ID))
		}
		for _, u := range [...]struct{ field, url string }{{"Metrics", m.Metrics}, {"Health", m.Health}} {
			if err := checkURL(v.cfg.Egress, u.url); err != nil {
				errs = append(errs, fmt.Errorf("loadview: Set: %s of member %q: %w", u.field, m.ID, err))
			}
		}
	}
	return errors.Join(errs...)
}

// SetDraining says whether the member takes nothing new and finishes what it
// has. It is apart from Member.Draining and outlasts the next Set: a member
// drains while either says so. Once its InFlight in a Snapshot is 0 it can be
// left out of the next Set.
func (v *View) SetDraining(id string, on bool) error {
	return v.setFlag("SetDraining", id, drainAsked, on)
}

// SetUnhealthy says whether the member's probes fail. It is theirs alone: what
// outcomes taught stays beside it.
func (v *View) SetUnhealthy(id string, on bool) error {
	return v.setFlag("SetUnhealthy", id, unhealthy, on)
}

func (v *View) setFlag(call, id string, flag uint32, on bool) error {
	v.mu.Lock()
	m := v.byID[id]
	if m == nil {
		v.mu.Unlock()
		return fmt.Errorf("%w: %s of %q", ErrUnknown, call, id)
	}
	m.set(flag, on)
	v.putState(m, v.now())
	v.mu.Unlock()
	v.tell()
	return nil
}

// SetQueued reports the requests at the member's engine beyond those of this
// process. Negative: unknown, as it is for a new member. Where it is unknown, the
// mean of those that are known stands in, and 0 where none is. A report stands
// until the next one; Snapshot tells its age. It is for callers with a source of
// their own: for members with a Metrics URL Run reports.
func (v *View) SetQueued(id string, n int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.byID[id]
	if m == nil {
		return fmt.Errorf("%w: SetQueued of %q", ErrUnknown, id)
	}
	v.putQueued(m, int64(n), 0)
	return nil
}

// putQueued notes a report, which stands until stale; 0: until the next one.
func (v *View) putQueued(m *member, n int64, stale time.Duration) {
	m.set(queueUnknown, n < 0)
	m.stale.Store(int64(stale))
	if n >= 0 {
		m.queued.Store(min(n, maxQueued))
		m.reported.Store(int64(v.now()))
	}
	if stale != 0 {
		v.watch(stale)
	}
	v.spreadQueued()
}

// maxQueued bounds one report, so that no sum of them overflows.
const maxQueued = 1 << 40

// spreadQueued gives the members whose queue is unknown the mean of the others,
// to the nearest, and offers all.
func (v *View) spreadQueued() {
	var sum, n, mean int64
	for _, m := range v.members {
		if !m.has(queueUnknown) {
			sum += m.queued.Load()
			n++
		}
	}
	mean = meanQueued(sum, n)
	for _, m := range v.members {
		if m.has(queueUnknown) {
			m.queued.Store(mean)
		}
		v.putLoad(m)
	}
}

// meanQueued returns what stands in for an unknown queue.
func meanQueued(sum, n int64) int64 {
	if n == 0 {
		return 0
	}
	return (sum + n/2) / n
}

// Forget passes on to Trace.Forget that the member's cache is gone or unknown.
// Counters and health stay as they are.
func (v *View) Forget(id string) {
	if f := v.cfg.Trace.Forget; f != nil {
		f(id)
	}
}

// tell tells Trace.StateChanged what is to be told, unless another goroutine, or
// this one further up its stack, is at it and will.
func (v *View) tell() {
	if !v.pending.Load() {
		return
	}
	v.mu.Lock()
	if v.telling {
		v.mu.Unlock()
		return
	}
	v.telling = true
	defer func() { // also where the hook panics
		v.telling = false
		v.mu.Unlock()
	}()
	for len(v.changed) > 0 {
		m := v.changed[0]
		n := copy(v.changed, v.changed[1:])
		v.changed[n] = nil
		v.changed = v.changed[:n]
		v.pending.Store(n > 0)
		m.waiting = false
		from, to := m.told, m.stateAt(v.now())
		m.told = to
		if from == to || m.gone {
			continue
		}
		v.tellOne(m.id, from, to)
	}
}

// tellOne is called with the lock held, releases it for the hook and takes it
// again.
func (v *View) tellOne(id string, from, to router.State) {
	v.mu.Unlock()
	defer v.mu.Lock()
	v.cfg.Trace.StateChanged(id, from, to)
}
