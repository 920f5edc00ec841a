package sharing

import (
	"slices"
	"time"
)

// lag measures how long this gateway's own frames take to come back.
type lag struct {
	samples [256]time.Duration
	n       int
	last    time.Duration // the last sample
	at      time.Duration // when it came
	waiting uint64        // the frame that is waited for; 0: none
	since   time.Duration // when it was sent
	bad     time.Duration // since when it is too long; 0: it is not
	good    time.Duration // since when it is not, after it was
}

func (l *lag) publish(frame uint64, now time.Duration) {
	if l.waiting == 0 {
		l.waiting, l.since = frame, now
	}
}

func (l *lag) echo(frame uint64, took, now time.Duration) {
	if frame >= l.waiting {
		l.waiting = 0
	}
	l.last, l.at = max(took, 0), now
	l.samples[l.n%len(l.samples)] = l.last
	l.n++
}

// now returns the lag as it is.
func (l *lag) now(now time.Duration) time.Duration {
	d := l.last
	if l.waiting != 0 {
		d = max(d, now-l.since)
	}
	return d
}

// quantiles returns the median and the 99th percentile of the last samples.
func (l *lag) quantiles() (p50, p99 time.Duration) {
	s := slices.Clone(l.samples[:min(l.n, len(l.samples))])
	if len(s) == 0 {
		return 0, 0
	}
	slices.Sort(s)
	return s[len(s)/2], s[len(s)*99/100]
}

// tend looks after peers and lag.
func (n *Node) tend(now time.Duration) {
	var changed []uint16
	n.mu.Lock()
	for _, p := range n.peers {
		if now > p.heard+n.cfg.Silence {
			changed = append(changed, n.count(p, -1)...)
		}
		if now > p.heard+forgetPeer {
			n.leave(p)
		}
		changed = append(changed, n.judgePeer(p, now)...)
	}
	more, flipped := n.judgeLag(now)
	changed = append(changed, more...)
	rank, live := 0, 1
	for _, p := range n.peers {
		if p.counted {
			live++
			if p.id < n.cfg.ID {
				rank++
			}
		}
	}
	n.place.Store(uint64(rank)<<32 | uint64(live))
	off, current := n.loadOff.Load(), n.lag.now(now)
	n.recycle(stampOf(now))
	n.mu.Unlock()
	n.changed(changed)
	if flipped && n.cfg.Hooks.LoadChanged != nil {
		n.cfg.Hooks.LoadChanged(!off, current)
	}
	n.ask(now)
}

// recycle drops what is known of targets that are long gone, so that their numbers can be used again.
func (n *Node) recycle(now stamp) {
	free := n.targets.release(now)
	if len(free) == 0 {
		return
	}
	n.table.mu.Lock()
	for _, k := range free {
		n.table.setHorizon(k, now+1)
	}
	n.table.mu.Unlock()
	for _, k := range free {
		for _, p := range n.peers {
			delete(p.gauges, k)
		}
		if all := *n.sums.Load(); int(k) < len(all) {
			longer := slices.Clone(all)
			longer[k] = new(Sum)
			n.sums.Store(&longer)
		}
	}
	n.targets.reuse(free)
}

// forgetPeer is how long a silent peer is remembered.
const forgetPeer = 10 * time.Minute

// judgePeer stops counting a peer that is late, and begins again when it is not.
func (n *Node) judgePeer(p *peer, now time.Duration) (changed []uint16) {
	if p.roundTrip <= 2*n.cfg.MaxLag {
		if p.late != 0 {
			p.late = 0
			if !n.loadOff.Load() && now <= p.heard+n.cfg.Silence {
				return n.count(p, 1)
			}
		}
		return nil
	}
	if p.late == 0 {
		p.late = max(now, 1)
	}
	if now >= p.late+n.cfg.LagFor {
		return n.count(p, -1)
	}
	return nil
}

// judgeLag drops the load half if the bus is too slow, and takes it up again.
func (n *Node) judgeLag(now time.Duration) (changed []uint16, flipped bool) {
	l := &n.lag
	if l.now(now) > n.cfg.MaxLag {
		l.good = 0
		if l.bad == 0 {
			l.bad = max(now, 1)
		}
		if n.loadOff.Load() || now < l.bad+n.cfg.LagFor {
			return nil, false
		}
		n.loadOff.Store(true)
		for _, p := range n.peers {
			changed = append(changed, n.count(p, -1)...)
		}
		return changed, true
	}
	l.bad = 0
	if !n.loadOff.Load() {
		return nil, false
	}
	if l.good == 0 {
		l.good = max(now, 1)
	}
	if now < l.good+n.cfg.LagFor {
		return nil, false
	}
	n.loadOff.Store(false)
	for _, p := range n.peers {
		if p.late == 0 && now <= p.heard+n.cfg.Silence {
			changed = append(changed, n.count(p, 1)...)
		}
	}
	return changed, true
}
