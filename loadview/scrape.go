package loadview

import (
	"context"
	"io"
	"slices"
	"time"
)

// maxStarts bounds the start times that are remembered for an address.
const maxStarts = 8

// history is what one member's pages said before, to tell a restart.
type history struct {
	// Several servers may answer by turns under one address, so more than the last
	// is remembered, and only a start time that is none of these is a restart.
	starts []float64
	count  float64 // -1: there was none
	failed bool    // the last scrape
}

// restarted reports whether p is of another process than those before.
func (h *history) restarted(p *page) bool {
	back := h.failed && h.count > 0 && p.count < h.count
	h.count, h.failed = p.count, false
	if p.start < 0 {
		return back
	}
	if slices.Contains(h.starts, p.start) {
		return false
	}
	if len(h.starts) == maxStarts {
		h.starts = slices.Delete(h.starts, 0, 1)
	}
	h.starts = append(h.starts, p.start)
	return len(h.starts) > 1
}

// scrapeAll scrapes one member until ctx is done.
func (c *client) scrapeAll(ctx context.Context, s *source) {
	h := &history{count: -1}
	cfg := &c.view.cfg.Scrape
	c.every(ctx, cfg.Interval, c.scrapes, func() { c.scrape(ctx, s, h) })
}

func (c *client) scrape(ctx context.Context, s *source, h *history) {
	v, m := c.view, s.member
	cfg := &v.cfg.Scrape
	v.mu.Lock()
	m.peak = m.inFlight.Load()
	v.mu.Unlock()

	var p page
	err := c.get(ctx, cfg.Timeout, s, s.metrics, "text/plain;version=0.0.4", func(body io.Reader) (err error) {
		r := c.readers.Get().(*reader)
		defer c.readers.Put(r)
		p, err = r.read(body, cfg.MaxBody)
		return err
	})
	if ctx.Err() != nil {
		return // it says nothing about the engine
	}
	// A page without the load may say that the engine was restarted all the same.
	restarted := p.Dialect != noDialect && h.restarted(&p)
	h.failed = err != nil
	taken, changed := v.report(s, &p, err)
	if taken && restarted {
		v.Forget(m.id)
	}
	if f := v.cfg.Trace.ScrapeChanged; f != nil && changed {
		f(m.id, err)
	}
}

// report takes over what a scrape found, unless the member is another by now, and
// says whether it began or ceased to fail.
func (v *View) report(s *source, p *page, err error) (taken, changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := s.member
	if m.gone || m.source != s {
		return false, false
	}
	if p.Dialect != noDialect {
		p.read = v.now()
		m.page.Store(p)
	}
	if err == nil {
		others := int64(p.Running) + int64(p.Waiting) - m.peak
		v.putQueued(m, max(others, 0), max(p.read+v.cfg.Scrape.StaleAfter, time.Duration(1)))
	}
	old := m.trouble.Load()
	if err == nil {
		m.trouble.Store(nil)
	} else {
		m.trouble.Store(&err)
	}
	return true, (err != nil) != (old != nil)
}
