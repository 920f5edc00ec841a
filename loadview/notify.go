package loadview

import (
	"slices"
	"sync"

	"github.com/warmroute/router"
)

// Changed returns a channel that is closed at the next change after which a member
// may be Ready that was not: one recovered, was added, or ended its cool-down. The
// end of a cool-down is only seen when the View is next used; the RetryAfter of a
// *router.NoTargetError is the time until then. To wait for a target, get the channel
// first, then try Choose, then wait. The channel is shared by all
// who wait and by all Views over the pool; without anybody who waits a change costs
// nothing.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiters == nil {
		v.waiters = make(chan struct{})
	}
	return v.waiters
}

// signal ends the waiting. p.mu is held.
func (p *pool) signal() {
	if p.waiters != nil {
		close(p.waiters)
		p.waiters = nil
	}
}

// listeners are the functions of OnForget.
type listeners struct {
	mu  sync.Mutex
	all map[*listener]struct{}
}

type listener struct{ f func(id string) }

// OnForget registers f to be called when a member of any View over the pool is
// gone or its cache is, under the conditions of Trace.Forget and right after it,
// until stop is called. f is called without a lock of the View, maybe by several
// goroutines at once, and must not change the members. stop does not wait for a call
// that is under way. It may be called from f, and more than once.
func (v *View) OnForget(f func(id string)) (stop func()) {
	l, all := &listener{f}, &v.pool.forget
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.all == nil {
		all.all = map[*listener]struct{}{}
	}
	all.all[l] = struct{}{}
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.all, l)
	}
}

// Forget reports to Trace.Forget and to the functions of OnForget that the
// member's cache is gone or unknown. Counters and health stay as they are.
func (v *View) Forget(id string) {
	v.tellForget(id)
	v.forgetAll(id)
}

// tellForget passes on that a member lost its cache, unless it was said just before.
func (p *pool) tellForget(id string) {
	if p.peers == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m, now := p.byID[id], p.now()
	if m == nil || m.history.forgotten != 0 && now < m.history.forgotten+repeated {
		return
	}
	m.history.forgotten = max(now, 1)
	p.tellRestart(id, -1)
}

func (p *pool) forgetAll(id string) {
	p.cfg.Load().Adapters.Forget(id)
	if f := p.cfg.Load().Trace.Forget; f != nil {
		f(id)
	}
	p.forget.mu.Lock()
	fs := make([]*listener, 0, len(p.forget.all))
	for l := range p.forget.all {
		fs = append(fs, l)
	}
	p.forget.mu.Unlock()
	for _, l := range fs {
		p.forget.mu.Lock()
		_, there := p.forget.all[l]
		p.forget.mu.Unlock()
		if there {
			l.f(id)
		}
	}
}

// notify calls Trace.StateChanged for the changes that were not reported yet, unless
// another goroutine, or this one further up its stack, does it.
func (p *pool) notify() {
	if !p.pending.Load() {
		return
	}
	p.mu.Lock()
	if p.notifying {
		p.mu.Unlock()
		return
	}
	p.notifying = true
	defer func() { // also if the hook panics
		p.notifying = false
		p.mu.Unlock()
	}()
	for len(p.changed) > 0 || len(p.alarmed) > 0 {
		if n := len(p.alarmed); n > 0 {
			v := p.alarmed[n-1]
			p.alarmed = slices.Delete(p.alarmed, n-1, n)
			p.pending.Store(len(p.changed)+len(p.alarmed) > 0)
			if on := v.panicking; on != v.alarm {
				v.alarm = on
				p.notifyPanic(v, on)
			}
			continue
		}
		m := p.changed[0]
		p.changed = slices.Delete(p.changed, 0, 1)
		p.pending.Store(len(p.changed)+len(p.alarmed) > 0)
		m.waiting = false
		from, to := m.seen, seen(m.stateAt(p.now()))
		m.seen = to
		if from == to || m.gone {
			continue
		}
		p.tellOne(m.id, from, to)
	}
}

// seen returns the state that StateChanged has for s. Full changes with every
// request, and a full member is as well as a Ready one.
func seen(s router.State) router.State {
	if s == router.Full {
		return router.Ready
	}
	return s
}

// tellOne is called with the lock held, releases it for the hook and takes it
// again.
func (p *pool) tellOne(id string, from, to router.State) {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.cfg.Load().Trace.StateChanged(id, from, to)
}

// notifyPanic is tellOne for Trace.PanicChanged.
func (p *pool) notifyPanic(v *View, on bool) {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.cfg.Load().Trace.PanicChanged(v, on)
}
