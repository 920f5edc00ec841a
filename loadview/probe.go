package loadview

import (
	"context"
	"io"
	"math"
	"slices"
	"time"

	"github.com/warmroute/router"
)

// probeAll probes one member until ctx is done.
func (c *client) probeAll(ctx context.Context, s *source) {
	cfg := &c.view.cfg.Probe
	failures, successes := 0, 0
	c.every(ctx, cfg.Interval, c.asked, func() {
		err := c.get(ctx, cfg.Timeout, s, s.health, "*/*", func(body io.Reader) error {
			_, err := io.CopyN(io.Discard, body, 4<<10) // so that the connection is kept
			if err == io.EOF {
				err = nil
			}
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failures, successes = min(failures+1, cfg.Failures), 0
			if failures == cfg.Failures {
				c.view.probed(s, false)
			}
		} else {
			failures, successes = 0, min(successes+1, cfg.Successes)
			if successes == cfg.Successes {
				c.view.probed(s, true)
			}
		}
	})
}

// probed takes over what the probes of a member say together.
func (v *View) probed(s *source, healthy bool) {
	v.mu.Lock()
	m := s.member
	if m.gone || m.source != s || m.has(unhealthy) != healthy {
		v.mu.Unlock()
		return
	}
	now := v.now()
	m.set(unhealthy, !healthy)
	if healthy {
		v.slowStart(m, now)
	}
	v.putState(m, now)
	v.mu.Unlock()
	v.tell()
}

// slowStart gives m, which is back, a handicap as large as the mean load of the
// Ready members, by weight.
func (v *View) slowStart(m *member, now time.Duration) {
	if v.cfg.Probe.SlowStart < 0 {
		return
	}
	load, weight := 0.0, 0.0
	for _, o := range v.members {
		if o != m && o.stateAt(now) == router.Ready {
			l := v.truth[o.index].Load
			load += float64(l.InFlight) + float64(l.Queued)
			weight += weightOf(v.truth[o.index])
		}
	}
	if weight == 0 {
		return
	}
	own := m.load()
	extra := math.Ceil(load/weight*weightOf(v.truth[m.index])) - float64(own.InFlight) - float64(own.Queued)
	if extra < 1 {
		return
	}
	m.extra.Store(int64(min(extra, maxQueued)))
	m.since.Store(int64(now))
	m.warm.Store(int64(now + v.cfg.Probe.SlowStart))
	if !slices.Contains(v.warming, m) {
		v.warming = append(v.warming, m)
	}
	v.putLoad(m)
}

func weightOf(t router.Target) float64 {
	if !(t.Weight > 0) {
		return 1
	}
	return t.Weight
}

// handicap returns what is left at now of the handicap. It may be called without
// the lock.
func (m *member) handicap(now time.Duration) int {
	extra := m.extra.Load()
	if extra == 0 {
		return 0
	}
	left := float64(m.warm.Load()-int64(now)) / float64(m.warm.Load()-m.since.Load())
	return int(math.Ceil(float64(extra) * min(max(left, 0), 1)))
}

// warmUp brings the handicaps into what is offered, as they are now.
func (v *View) warmUp() {
	now := v.now()
	v.warming = slices.DeleteFunc(v.warming, func(m *member) bool {
		done := int64(now) >= m.warm.Load()
		if done {
			m.extra.Store(0)
		}
		v.putLoad(m)
		return done
	})
}
