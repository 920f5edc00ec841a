package loadview

import (
	"context"
	"io"
)

// probeAll probes one member until ctx is done.
func (c *client) probeAll(ctx context.Context, s *source) {
	cfg := &c.cfg.Probe
	failures, successes := 0, 0
	answers := c.pool.answers(s)
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
		before := answers
		answers = c.pool.answers(s)
		if err != nil && timedOut(err) && answers != before {
			return // it answers requests: the probe is slow, not the member
		}
		if err != nil {
			failures, successes = min(failures+1, cfg.Failures), 0
			if failures == cfg.Failures {
				c.pool.probed(s, err)
			}
		} else {
			failures, successes = 0, min(successes+1, cfg.Successes)
			if successes == cfg.Successes {
				c.pool.probed(s, nil)
			}
		}
	})
}

// answers returns the number of answers that the member of s has given so far.
func (p *pool) answers(s *source) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.member.answers
}

// probed takes over the verdict of a member's probes: nil, or why they fail.
func (p *pool) probed(s *source, err error) {
	healthy := err == nil
	p.mu.Lock()
	m := s.member
	if m.gone || m.source != s || m.has(probedDown) != healthy {
		p.mu.Unlock()
		return
	}
	now := p.now()
	m.set(probedDown, !healthy)
	m.set(deaf, err != nil && deafTo(err))
	if healthy {
		p.slowStart(m, now)
	}
	p.putState(m, now)
	p.mu.Unlock()
	p.notify()
}
