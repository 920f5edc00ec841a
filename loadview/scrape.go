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

// scrapeAll scrapes one page, for all members that are on it, until ctx is done.
func (c *client) scrapeAll(ctx context.Context, sources []*source) {
	c.every(ctx, c.view.cfg.Scrape.Interval, c.scrapes, func() { c.scrape(ctx, sources) })
}

func (c *client) scrape(ctx context.Context, sources []*source) {
	v := c.view
	cfg := &v.cfg.Scrape
	v.mu.Lock()
	for _, s := range sources {
		s.member.peak = s.member.inFlight.Load()
	}
	v.mu.Unlock()

	var f families
	err := c.get(ctx, cfg.Timeout, sources[0], sources[0].metrics, "text/plain;version=0.0.4", func(body io.Reader) (err error) {
		r := c.readers.Get().(*reader)
		defer c.readers.Put(r)
		f, err = r.read(body, cfg.MaxBody)
		return err
	})
	if ctx.Err() != nil {
		return // it says nothing about the engine
	}
	type result struct {
		page page
		err  error
	}
	ranks := map[string]result{} // each is read once, however many members it has
	for _, s := range sources {
		r := result{err: err}
		if err == nil {
			var ok bool
			if r, ok = ranks[s.rank]; !ok {
				r.page, r.err = f.page(s.rank)
				ranks[s.rank] = r
			}
		}
		restarted, changed := v.report(s, r.page, r.err)
		if restarted {
			v.Forget(s.member.id)
		}
		if f := v.cfg.Trace.ScrapeChanged; f != nil && changed {
			f(s.member.id, r.err)
		}
	}
}

// report takes over what a scrape found, unless the member is another by now, and
// says whether its engine is another one than before, and whether the scrape
// began or ceased to fail.
func (v *View) report(s *source, p page, err error) (restarted, changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := s.member
	if m.gone || m.source != s {
		return false, false
	}
	// A page without the load may say that the engine was restarted all the same.
	if p.Dialect != noDialect {
		restarted = m.history.restarted(&p)
		p.read = v.now()
		m.page.Store(&p)
	}
	m.history.failed = err != nil
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
	return restarted, (err != nil) != (old != nil)
}
