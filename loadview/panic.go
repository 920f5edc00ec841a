package loadview

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/warmroute/router"
)

// standing is how a member counts for the panic threshold of its Views. The zero
// standing is in service.
type standing uint8

const (
	absent      standing = 1 << iota // by somebody's word, or asleep: not in the reckoning
	out                              // by failures or probes
	unreachable                      // out, and its last failure was that nothing listened
)

// standingAt returns the standing of m at now. It may be called without the lock.
func (m *member) standingAt(now time.Duration) standing {
	fl := m.flags.Load()
	switch {
	case fl&(drainSet|drainAsked|unhealthy) != 0, int64(now) < m.asleep.Load():
		return absent
	case fl&(probedDown|probing) == 0 && int64(now) >= m.cool.Load() && (fl&tripped == 0 || int64(now) >= m.open.Load()):
		return 0
	case fl&deaf != 0:
		return out | unreachable
	}
	return out
}

// census counts the standings of a View's members.
type census struct{ members, out, unreachable int }

func (c *census) add(s standing, n int) {
	if s&absent != 0 {
		return
	}
	c.members += n
	if s&out != 0 {
		c.out += n
	}
	if s&unreachable != 0 {
		c.unreachable += n
	}
}

// panics reports whether more are out than threshold allows. One member alone is
// no fleet: there is nothing to compare it with.
func (c census) panics(threshold float64) bool {
	return threshold >= 0 && c.members >= 2 && float64(c.out) > threshold*float64(c.members)
}

// spares reports whether a panic puts a member of standing s back into service. One
// at which nothing listens stays out, unless this is true of all.
func (c census) spares(s standing) bool {
	return s&out != 0 && (s&unreachable == 0 || c.unreachable == c.members)
}

// offer returns the state in which v offers m, which is in judged by itself. The
// lock is held.
func (v *View) offer(m *member, judged router.State, now time.Duration) router.State {
	if v.panicking && v.census.spares(m.standing) {
		return m.stateIf(now, true)
	}
	return judged
}

// offerPart offers ts, a part of v's members, by their own census, and reports whether
// they panic.
func (v *View) offerPart(ts []router.Target) bool {
	if v.census.out == 0 {
		return false
	}
	var c census
	for i := range ts {
		if m := v.byID[ts[i].ID]; m != nil {
			c.add(m.standing, 1)
		}
	}
	panics, now := c.panics(v.cfg.Load().PanicThreshold), v.now()
	for i := range ts {
		if m := v.byID[ts[i].ID]; m != nil && m.standing&out != 0 {
			ts[i].State = m.stateIf(now, panics && c.spares(m.standing))
		}
	}
	return panics
}

// putStanding brings the standing of m into the censuses of its Views, and reports
// whether it changed.
func (p *pool) putStanding(m *member, now time.Duration) bool {
	s := m.standingAt(now)
	if s == m.standing {
		return false
	}
	for _, at := range m.places {
		at.view.census.add(m.standing, -1)
		at.view.census.add(s, 1)
	}
	m.standing = s
	for _, at := range m.places {
		at.view.judge(now)
	}
	return true
}

// recount takes the census of v again.
func (v *View) recount(now time.Duration) {
	v.census = census{}
	for i := range v.truth {
		v.census.add(v.byID[v.truth[i].ID].standing, 1)
	}
	v.judge(now)
}

// judge decides whether v panics, and offers all members accordingly if that, or
// whom it spares, changed.
func (v *View) judge(now time.Duration) {
	panicking := v.census.panics(v.cfg.Load().PanicThreshold)
	dark := v.census.unreachable == v.census.members
	if panicking == v.panicking && (!panicking || dark == v.dark) {
		return
	}
	if panicking != v.panicking && v.cfg.Load().Trace.PanicChanged != nil && !slices.Contains(v.alarmed, v) {
		v.alarmed = append(v.alarmed, v)
		v.pending.Store(true)
	}
	v.panicking, v.dark = panicking, dark
	for i := range v.truth {
		m := v.byID[v.truth[i].ID]
		s := v.offer(m, m.stateAt(now), now)
		if s == router.Ready && v.truth[i].State != router.Ready {
			v.signal()
		}
		v.truth[i].State = s
	}
}

// Panicking reports whether so many of v's members are out by failures and probes
// that v offers them all the same; see [Config.PanicThreshold].
func (v *View) Panicking() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.panicking
}

// deafTo reports whether err says that nothing listened.
func deafTo(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
