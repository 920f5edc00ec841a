package loadview

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
)

// A member that replies that it does not have a model or an adapter may serve all others. So for lackFor it is not
// offered to requests for that one, as long as another member is Ready that has not replied so.
const (
	lackFor  = time.Minute
	maxLacks = 32 // of one member; the oldest goes first
)

// wanted is the model and the adapter of a request. Names of more than maxName bytes are not remembered.
type wanted struct{ model, adapter string }

func wantedBy(p *router.Prompt) wanted {
	if len(p.Model) > maxName || len(p.Adapter) > maxName {
		return wanted{}
	}
	return wanted{p.Model, p.Adapter}
}

// name is the name that the client used, most likely.
func (w wanted) name() string {
	if w.adapter != "" {
		return w.adapter
	}
	return w.model
}

type lack struct {
	wanted
	until time.Duration
}

// lacks are those of one member, the oldest first. Snapshot reads them without the lock, so they are replaced.
type lacks struct{ all atomic.Pointer[[]lack] }

func (l *lacks) list() []lack {
	if all := l.all.Load(); all != nil {
		return *all
	}
	return nil
}

// lacked takes in that f's member replied that it lacks what the request needs. A status of 404 is about its
// model or adapter, which is remembered. If that is an adapter, or the member has served other models, nobody is to
// blame. Otherwise the prompt of f is a suspect without blame: if another member serves it, as served has it, that
// counts as a failure of f's member; otherwise no member has it. It reports whether the lack was not remembered before.
func (p *pool) lacked(f *flight, key uint64, status int) (news bool) {
	now := p.now()
	if status == 404 && f.wanted != (wanted{}) && !f.member.gone {
		news = !f.member.lacks.has(f.wanted, now)
		p.noteLack(f.member, f.wanted, now)
		others := func(l *limit) bool { return l.good && l.party.model != f.limit.party.model }
		if f.wanted.adapter != "" || slices.ContainsFunc(f.member.limits, others) {
			return news
		}
	}
	if key == 0 {
		return news
	}
	x := p.suspects.find(key, now)
	if x == nil {
		x = p.suspects.add(key, now)
		p.suspected.Store(true)
	}
	for _, b := range x.blamed {
		if b.member == f.member {
			return news
		}
	}
	if len(x.blamed) < maxBlamed {
		x.blamed = append(x.blamed, blame{member: f.member, epoch: f.member.epoch})
	}
	return news
}

// noteLack remembers that m does not have w.
func (p *pool) noteLack(m *member, w wanted, now time.Duration) {
	old := m.lacks.list()
	kept := make([]lack, 0, len(old)+1)
	for _, l := range old {
		if l.until > now && l.wanted != w {
			kept = append(kept, l)
		}
	}
	if len(kept) == maxLacks {
		kept = kept[1:]
	}
	w = wanted{strings.Clone(w.model), strings.Clone(w.adapter)}
	kept = append(kept, lack{w, now + lackFor})
	m.lacks.all.Store(&kept)
	p.lacking = max(p.lacking, 1)
}

// passOver offers the members that do not have p's model or adapter as Unhealthy, if another one is Ready.
func (v *View) passOver(p *router.Prompt, ts []router.Target) {
	now, w := v.now(), wantedBy(p)
	if w == (wanted{}) {
		return
	}
	lacks := func(t *router.Target) bool {
		m := v.byID[t.ID]
		return m != nil && m.lacks.has(w, now)
	}
	if !slices.ContainsFunc(ts, func(t router.Target) bool { return t.State == router.Ready && !lacks(&t) }) {
		v.sweepLacks(now)
		return
	}
	for i := range ts {
		if t := &ts[i]; t.State == router.Ready && lacks(t) {
			t.State = router.Unhealthy
		}
	}
}

// sweepLacks ends the looks at lacks when none is left.
func (p *pool) sweepLacks(now time.Duration) {
	for _, m := range p.members {
		if len(m.lacks.names(now)) > 0 {
			return
		}
	}
	p.lacking = 0
}

func (l *lacks) has(w wanted, now time.Duration) bool {
	return slices.ContainsFunc(l.list(), func(x lack) bool { return x.until > now && x.wanted == w })
}

// names returns the names that are remembered.
func (l *lacks) names(now time.Duration) (names []string) {
	for _, x := range l.list() {
		if x.until > now {
			names = append(names, x.name())
		}
	}
	return names
}

// Loaded notes that a member has an adapter now, because the caller has loaded it there: it is offered to requests for
// that again, whatever it replied before. It reports whether the member lacked it.
func (v *View) Loaded(id, adapter string) bool {
	p := v.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.byID[id]
	if m == nil {
		return false
	}
	old := m.lacks.list()
	kept := slices.DeleteFunc(slices.Clone(old), func(l lack) bool { return l.name() == adapter })
	m.lacks.all.Store(&kept)
	return len(kept) < len(old)
}
