package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/warmroute/router/loadview/enginepage"
)

// maxStarts bounds the start times that are remembered for an address.
const maxStarts = 8

// history is the part of a member's earlier pages by which a restart is recognised.
type history struct {
	// Several servers may answer in turn under one address, so more than the last
	// is remembered, and only a start time that is none of these is a restart.
	starts []float64
	count  float64 // -1: there was none
	failed bool    // the last scrape
}

// restarted reports whether p is of another process than those before.
func (h *history) restarted(p *page) bool {
	back := h.failed && h.count > 0 && p.Total < h.count
	h.count, h.failed = p.Total, false
	if p.Start < 0 {
		return back
	}
	if slices.Contains(h.starts, p.Start) {
		return false
	}
	if len(h.starts) == maxStarts {
		h.starts = slices.Delete(h.starts, 0, 1)
	}
	h.starts = append(h.starts, p.Start)
	return len(h.starts) > 1
}

// scrapeAll scrapes one page, for all members that are on it, until ctx is done.
func (c *client) scrapeAll(ctx context.Context, sources []*source) {
	c.every(ctx, c.cfg.Scrape.Interval, c.scrapes, func() { c.scrape(ctx, sources) })
}

func (c *client) scrape(ctx context.Context, sources []*source) {
	p := c.pool
	cfg := &c.cfg.Scrape
	p.mu.Lock()
	for _, s := range sources {
		s.member.peak = s.member.inFlight.Load()
	}
	p.mu.Unlock()

	var text enginepage.Page
	err := c.get(ctx, cfg.Timeout, sources[0], sources[0].metrics, "text/plain;version=0.0.4",
		func(body io.Reader) (err error) {
			r := c.readers.Get().(*enginepage.Reader)
			defer c.readers.Put(r)
			text, err = r.Read(body, p.dialects, cfg.MaxBody)
			if errors.Is(err, enginepage.ErrTooLong) {
				err = fmt.Errorf("%w: more than Scrape.MaxBody, %d bytes", err, cfg.MaxBody)
			}
			return err
		})
	if ctx.Err() != nil {
		return // it is no evidence about the engine
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
				r.page.State, r.err = text.State(s.rank)
				ranks[s.rank] = r
			}
		}
		restarted, changed := p.report(s, r.page, r.err)
		if restarted {
			p.forgetAll(s.member.id)
		}
		if f := p.cfg.Load().Trace.ScrapeChanged; f != nil && changed {
			f(s.member.id, r.err)
		}
	}
}

// report takes over the result of a scrape, unless the member is another by now. It
// reports whether the engine was restarted, and whether the scrape began or ceased
// to fail.
func (p *pool) report(s *source, st page, err error) (restarted, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := s.member
	if m.gone || m.source != s {
		return false, false
	}
	// A page without the load may show a restart all the same.
	if st.Dialect != "" {
		restarted = m.history.restarted(&st)
		st.read = p.now()
		m.page.Store(&st)
	}
	m.history.failed = err != nil
	if err == nil {
		others := int64(st.Running) + int64(st.Waiting) - m.peak
		p.putQueued(m, max(others, 0), max(st.read+p.cfg.Load().Scrape.StaleAfter, time.Duration(1)))
	}
	old := m.trouble.Load()
	if err == nil {
		m.trouble.Store(nil)
	} else {
		m.trouble.Store(&err)
	}
	return restarted, (err != nil) != (old != nil)
}
