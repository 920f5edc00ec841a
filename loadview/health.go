package loadview

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
)

// verdict is the evidence of an outcome about the member.
type verdict uint8

const (
	neither verdict = iota
	success
	failure
	refusal // it is alive and full
)

// judge returns the verdict of o on the member, and for how long the member asked
// to be left alone.
func (p *pool) judge(o router.Outcome) (verdict, time.Duration) {
	o = o.Settled()
	switch {
	case o.NotSent:
		return neither, 0
	case o.Stage == router.Finished:
		return success, 0
	case !o.Blames():
		return neither, 0
	}
	pause := max(min(o.RetryAfter, p.cfg.Load().RetryAfterMax), 0)
	switch full := o.Status == 429 || o.Status == 503 || o.Status == statusOverloaded; {
	case full && p.cfg.Load().FullFor > 0:
		return refusal, pause
	case o.Status == 429 && pause > 0:
		return neither, pause
	}
	return failure, pause
}

// statusOverloaded is the status of Anthropic's API instead of a 503.
const statusOverloaded = 529

// timedOut reports whether err is a time-out after the request was sent.
func timedOut(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// learn applies a verdict of f to its member. key is that of the prompt, 0 if it
// makes no difference.
func (p *pool) learn(f *flight, w verdict, pause time.Duration, key uint64) {
	m, now := f.member, p.now()
	m.expire(now)
	if w == refusal {
		p.refused(m, f.limit, now, pause)
		p.tellRefused(m, f.limit.party, pause)
	} else if f.limit.until > now {
		f.limit.ended(w == success, f.tried)
	}
	if pause > 0 && w != refusal && w != failure {
		m.pause.Store(max(m.pause.Load(), int64(now+pause)))
		p.pass(m, peering.Paused, milliseconds(pause))
	}
	probe := m.probe == f
	if probe {
		m.probe = nil
		m.set(probing, false)
	}
	switch w {
	case success:
		if key != 0 {
			p.served(f, key, now)
		}
		if probe || f.seq > m.streak { // an older one shows the time before
			m.recovered(probe || f.spared)
		}
	case failure:
		p.failed(f, probe, pause, key, now)
	}
	p.putLimits(m, now)
	p.watchEnds(m)
	p.putState(m, now)
}

// watchEnds sees to it that the ends of m's states are noticed.
func (p *pool) watchEnds(m *member) {
	for _, t := range [...]int64{m.cool.Load(), m.pause.Load(), m.open.Load()} {
		if t != 0 && !m.gone {
			p.watch(time.Duration(t))
		}
	}
}

// recovered clears the effect of failures on m. probe: the request was the
// half-open breaker's, or sent in a panic.
func (m *member) recovered(probe bool) {
	m.streak = 0
	m.fails.Store(0)
	m.doubts = 0
	if m.cool.Load() != 0 {
		m.cool.Store(0)
		m.epoch++
	}
	if probe && m.has(tripped) {
		m.set(tripped, false)
		m.set(probing, false)
		m.probe = nil
		m.open.Store(0)
		m.epoch++
	}
	m.excuses = 0
	m.faults = 0 // not looked at while the breaker is not closed
}

// failed counts a failure of f and obeys its Retry-After, unless it speaks of the request.
func (p *pool) failed(f *flight, probe bool, pause time.Duration, key uint64, now time.Duration) {
	m := f.member
	fresh := f.epoch == m.epoch // else it shows the time before the last recovery
	var x *suspect
	if key != 0 && (fresh || probe) {
		var member bool
		if x, member = p.suspect(m, key, now); !member {
			return
		}
	}
	if fresh && !m.blemished() {
		m.streak = m.sent
	}
	b := blame{member: m, epoch: m.epoch, counted: fresh}
	if until := int64(now + pause); pause > 0 && until > m.pause.Load() {
		m.pause.Store(until)
		b.pause = until
		p.pass(m, peering.Paused, milliseconds(pause))
	}
	if probe {
		p.trip(m, now)
	}
	if fresh {
		b.cooled, b.broke = p.count(m, now)
	}
	if x != nil && len(x.blamed) < maxBlamed {
		x.blamed = append(x.blamed, b)
	}
}

// count counts one more failure in a row. cooled and broke report whether it cooled
// m and opened its breaker.
func (p *pool) count(m *member, now time.Duration) (cooled, broke bool) {
	cfg := p.cfg.Load()
	m.recent.add(failure)
	if cfg.Breaker && !m.has(tripped) {
		if m.faults++; int(m.faults) >= cfg.BreakerFailures {
			p.trip(m, now)
			broke = true
			p.pass(m, peering.Hint, milliseconds(cfg.BreakerOpen))
		}
	}
	if cfg.CoolAfter > 0 && m.cool.Load() == 0 {
		m.fails.Store(m.fails.Load() + 1)
		if int(m.fails.Load()) >= cfg.CoolAfter || p.standsOut(m) || now < m.hinted {
			m.recent = recent{}
			d := p.coolDown(m.doubts)
			m.cool.Store(int64(now + d))
			p.pass(m, peering.Hint, milliseconds(d))
			m.doubts++
			cooled = true
		}
	}
	return cooled, broke
}

func (p *pool) trip(m *member, now time.Duration) {
	m.set(tripped, true)
	m.open.Store(int64(now + p.cfg.Load().BreakerOpen))
}

// coolDown returns how long the cool-down after n others in a row lasts.
func (p *pool) coolDown(n int32) time.Duration {
	d := p.cfg.Load().CoolBase
	for ; n > 0 && d < p.cfg.Load().CoolMax; n-- {
		if d > p.cfg.Load().CoolMax/2 { // doubling might overflow
			d = p.cfg.Load().CoolMax
		} else {
			d *= 2
		}
	}
	return p.jitter(d)
}

// jitter cuts off a random part of d.
func (p *pool) jitter(d time.Duration) time.Duration {
	if cfg := p.cfg.Load(); cfg.Jitter > 0 {
		u := float64(cfg.Rand()>>11) / (1 << 53)
		d -= time.Duration(float64(d) * cfg.Jitter * u)
	}
	return max(d, 1)
}

// expire ends every state that is over by time.
func (p *pool) expire(now time.Duration) {
	p.due = 0
	unknown := false
	for _, m := range p.members {
		m.expire(now)
		p.putLimits(m, now)
		if t := m.stale.Load(); t != 0 && int64(now) >= t {
			m.stale.Store(0)
			m.set(queueUnknown, true)
			unknown = true
		}
		for _, t := range [...]int64{
			m.cool.Load(), m.pause.Load(), m.open.Load(), m.stale.Load(), m.asleep.Load(),
		} {
			if t != 0 {
				p.watch(time.Duration(t))
			}
		}
		p.putState(m, now)
	}
	if unknown {
		p.spreadQueued()
	}
}

func (m *member) expire(now time.Duration) {
	if t := m.cool.Load(); t != 0 && int64(now) >= t {
		m.cool.Store(0)
		m.epoch++
	}
	if t := m.pause.Load(); t != 0 && int64(now) >= t {
		m.pause.Store(0)
	}
	if t := m.open.Load(); t != 0 && int64(now) >= t {
		m.open.Store(0)
	}
	if t := m.asleep.Load(); t != 0 && int64(now) >= t {
		m.asleep.Store(0)
	}
	for _, l := range m.limits {
		if l.until != 0 && now >= l.until {
			l.lift()
		}
	}
}

// halfOpen reports whether the next request sent to m is the one that tries.
func (m *member) halfOpen() bool {
	return m.flags.Load()&(tripped|probing) == tripped && m.open.Load() == 0
}

// blemished reports whether a success has anything to clear.
func (m *member) blemished() bool {
	return m.fails.Load() != 0 || m.faults != 0 || m.cool.Load() != 0 || m.excuses != 0
}

// stateAt returns the state in which m is offered at now. It may be called
// without the lock.
func (m *member) stateAt(now time.Duration) router.State { return m.stateIf(now, false) }

// stateIf is stateAt; spared: failures and Run's probes do not count.
func (m *member) stateIf(now time.Duration, spared bool) router.State {
	fl := m.flags.Load()
	switch {
	case fl&(drainSet|drainAsked) != 0:
		return router.Draining
	case int64(now) < m.asleep.Load():
		return router.Asleep
	case fl&unhealthy != 0, fl&probedDown != 0 && !spared:
		return router.Unhealthy
	case !spared && (fl&probing != 0 || fl&tripped != 0 && int64(now) < m.open.Load()):
		return router.Tripped
	case !spared && int64(now) < m.cool.Load(), int64(now) < m.pause.Load():
		return router.Cooling
	case int64(now) < m.full.Load():
		return router.Full
	}
	return router.Ready
}

// readyIn returns the time until m may be Ready; 0: it is, or the time is not known.
func (m *member) readyIn(now time.Duration) time.Duration {
	switch s := m.stateAt(now); {
	case s == router.Full && m.inFlight.Load() > 0:
		return max(min(time.Duration(m.full.Load())-now, DefaultFullFor), 0) // the end of one of ours frees it
	case s == router.Full:
		return max(time.Duration(m.full.Load())-now, 0)
	case s != router.Cooling && s != router.Tripped || m.has(probing):
		return 0
	}
	return max(time.Duration(max(m.cool.Load(), m.pause.Load(), m.open.Load()))-now, 0)
}

// ReadyIn returns the time until the first of the members with these IDs that is not Ready
// for a request with the prompt p may be; 0: it is not known, or there is none. A member
// that a panic puts back into service counts by its own health.
func (v *View) ReadyIn(p router.Prompt, ids []string) time.Duration {
	to := partyOf(&p)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.readyIn(ids, &to)
}

// readyIn returns the shortest time until one of the members that is not Ready for a party,
// nil: for anybody, may be; 0: the time is not known.
func (v *View) readyIn(ids []string, to *party) time.Duration {
	if v.due == 0 {
		return 0
	}
	var least time.Duration
	now := v.now()
	for _, id := range ids {
		m := v.byID[id]
		if m == nil {
			continue
		}
		d := m.readyIn(now)
		for _, l := range m.held(to, now) { // one is tried then
			if l.again > now {
				d = min(d, l.again-now)
			}
		}
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
