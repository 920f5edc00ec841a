package loadview

import (
	"math"
	"slices"
	"time"

	"github.com/warmroute/router"
)

// slowStart gives m, which is back, a handicap as large as the mean load of the
// Ready members, by weight.
func (p *pool) slowStart(m *member, now time.Duration) {
	if p.cfg.Load().Probe.SlowStart < 0 {
		return
	}
	load, weight := 0.0, 0.0
	for _, o := range p.members {
		if o != m && o.stateAt(now) == router.Ready {
			load += float64(o.load.InFlight) + float64(o.load.Queued)
			weight += weightOf(o)
		}
	}
	if weight == 0 {
		return
	}
	own := m.loadNow()
	extra := math.Ceil(load/weight*weightOf(m)) - float64(own.InFlight) - float64(own.Queued)
	if extra < 1 {
		return
	}
	m.extra.Store(int64(min(extra, float64(maxQueued))))
	m.since.Store(int64(now))
	m.warm.Store(int64(now + p.cfg.Load().Probe.SlowStart))
	if !slices.Contains(p.warming, m) {
		p.warming = append(p.warming, m)
	}
	p.putLoad(m)
}

func weightOf(m *member) float64 {
	if !(m.weight > 0) {
		return 1
	}
	return m.weight
}

// handicap returns the part of the handicap that is left at now. It may be called without
// the lock.
func (m *member) handicap(now time.Duration) int {
	extra := m.extra.Load()
	if extra == 0 {
		return 0
	}
	left := float64(m.warm.Load()-int64(now)) / float64(m.warm.Load()-m.since.Load())
	return int(math.Ceil(float64(extra) * min(max(left, 0), 1)))
}

// warmUp brings the handicaps, as they are now, into the loads that are offered.
func (p *pool) warmUp() {
	now := p.now()
	p.warming = slices.DeleteFunc(p.warming, func(m *member) bool {
		done := int64(now) >= m.warm.Load()
		if done {
			m.extra.Store(0)
		}
		p.putLoad(m)
		return done
	})
}
