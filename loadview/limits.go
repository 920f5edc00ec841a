package loadview

import (
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router"
)

// maxLimits bounds the parties of one member that are counted apart.
const maxLimits = 32

// emptyPause is how long a member that refused a request while it had none of the
// party's is not asked again.
const emptyPause = 100 * time.Millisecond

// party is whom a refusal speaks of: a provider's limit is one of a model and of an
// account, an engine's is one of all that it serves.
type party struct{ model, account string }

// maxName bounds the bytes of a party's names that are looked at.
const maxName = 256

func partyOf(p *router.Prompt) party {
	return party{p.Model[:min(len(p.Model), maxName)], p.Account[:min(len(p.Account), maxName)]}
}

// limit is one party's requests at a member, and how many the member takes at once.
type limit struct {
	party  party
	live   int64         // requests in flight
	good   bool          // one was served
	most   int64         // the requests in flight beyond which it refuses
	within int64         // successes since most was set or grew
	until  time.Duration // when most ceases to count; 0: it does not count
	pause  time.Duration // until when nothing is sent
	again  time.Duration // when one is tried all the same, if no other member is Ready
}

// heldUntil returns when the party may be served at the latest; 0: at once.
func (l *limit) heldUntil(now time.Duration) time.Duration {
	switch {
	case l.until <= now:
		return 0
	case l.live >= l.most:
		return l.until
	case l.pause > now:
		return l.pause
	}
	return 0
}

// lift ends the limit.
func (l *limit) lift() { l.until, l.pause, l.again, l.most, l.within = 0, 0, 0, 0, 0 }

// limitOf returns the count of p at m. Beyond the bound further parties share one.
func (m *member) limitOf(p party) *limit {
	for i, l := range m.limits {
		if l.party == p {
			if i > 0 { // the next one finds it first
				m.limits[0], m.limits[i] = l, m.limits[0]
			}
			return l
		}
	}
	l := &limit{party: party{strings.Clone(p.model), strings.Clone(p.account)}}
	if len(m.limits) < maxLimits {
		m.limits = append(m.limits, l)
		return l
	}
	idle := -1
	for i, x := range m.limits {
		if x.live == 0 && x != m.rest && (idle < 0 || x.until < m.limits[idle].until) {
			idle = i
		}
	}
	if idle >= 0 {
		m.limits[idle] = l
		return l
	}
	if m.rest == nil {
		m.rest = l
		m.limits = append(m.limits, l)
	}
	return m.rest
}

// held returns the limits of m that hold back p, nil: anybody. Without a limit of
// its own p goes by none.
func (m *member) held(p *party, now time.Duration) (all []*limit) {
	if m == nil {
		return nil
	}
	for _, l := range m.limits {
		if (p == nil || l.party == *p) && l.heldUntil(now) != 0 {
			all = append(all, l)
		}
	}
	return all
}

// putLimits publishes whether m holds somebody back, and sees to it that the ends are
// noticed.
func (p *pool) putLimits(m *member, now time.Duration) {
	var full, least time.Duration
	most := int64(0)
	for _, l := range m.limits {
		if l.until > now && (least == 0 || l.most < most) {
			most, least = l.most, l.until
		}
		if t := l.heldUntil(now); t != 0 {
			full = max(full, t)
			if !m.gone {
				p.watch(t)
			}
		}
	}
	m.full.Store(int64(full))
	m.least.Store(max(most, 1))
	m.leastTo.Store(int64(least))
}

// offerTo offers ts by the limits that hold for to; nil: for anybody. If
// none is Ready, those that were left alone for long enough are.
func (v *View) offerTo(to *party, ts []router.Target) {
	if v.full == 0 {
		return
	}
	now := v.now()
	ready := false
	for i := range ts {
		t := &ts[i]
		if to != nil && t.State == router.Full && len(v.byID[t.ID].held(to, now)) == 0 {
			t.State = router.Ready
		}
		ready = ready || t.State == router.Ready
	}
	for i := range ts {
		if t := &ts[i]; !ready && t.State == router.Full {
			notYet := func(l *limit) bool { return now < l.again }
			if !slices.ContainsFunc(v.byID[t.ID].held(to, now), notYet) {
				t.State = router.Ready
			}
		}
	}
}

// refused notes that m refused a request of l's party as full: the number of others
// in flight there becomes the limit. Replies to a burst come in any order, and so the
// least of these numbers counts. One request at a time is always tried, unless m
// asked for a pause while it had none.
func (p *pool) refused(m *member, l *limit, now, retryAfter time.Duration) {
	n := l.live
	if retryAfter == 0 {
		n = max(n, 1)
	}
	again := p.jitter(p.cfg.Load().FullFor)
	pause := min(again, emptyPause)
	if l.until <= now || n < l.most {
		l.most, l.within = n, 0
	}
	l.until = max(l.until, now+max(again, retryAfter))
	if l.live == 0 {
		l.pause = now + pause
		switch {
		case retryAfter == 0:
			again = 0 // next to members that are Ready alone it has its pause
		case l.again == 0: // the first one may speak of itself
			again = min(again, emptyPause)
		}
	}
	l.again = now + again
	p.putLimits(m, now)
}

// ended notes that a request of a party with a limit ended at its member: there is a
// place again. After as many successes as the limit allows at once, the limit grows
// by one, as the window of TCP does, so that a larger engine is found out and a full
// one is asked too much only now and then. A success beyond the limit shows that the
// limit has ended.
func (l *limit) ended(success, tried bool) {
	if success && (tried || l.most == 0) {
		l.lift()
		return
	}
	l.pause = 0
	l.most = max(l.most, 1)
	if success {
		if l.within++; l.within >= l.most {
			l.within = 0
			l.most++
		}
	}
}
