package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/loadview/enginepage"
)

// The bounds of the memory of a member's pages.
const (
	maxStarts = 8  // start times, and counters, of the servers under its address
	maxSilent = 64 // pages in a row that are not a server's, until its counter is forgotten
)

// history is the part of a member's earlier pages by which a restart is recognised.
type history struct {
	// Several servers may answer in turn under one address, so more than the last
	// is remembered, and only a start time that is none of these is a restart.
	starts []float64
	// For pages without a start time: the last counter of each of these servers.
	counters []counter
	failed   bool // the last scrape
	asleep   bool // the last page
	// forgotten is when a restart was seen last, or another gateway said so; 0: never.
	forgotten time.Duration
}

// counter is a number that only a restart sets back, as the last page of one server
// had it.
type counter struct {
	value  float64
	silent int // pages since then
}

// restarted reports whether p is of another process than those before. A second
// server under the address is one restart too, once.
func (h *history) restarted(p *page) bool {
	failed := h.failed
	h.failed = false
	if p.Start < 0 {
		total := p.Total
		if total < 0 && failed && len(h.counters) > 0 {
			total = 0 // not there before its first request
		}
		return total >= 0 && h.wentBack(total)
	}
	if slices.Contains(h.starts, p.Start) {
		return false
	}
	h.began(p.Start)
	return len(h.starts) > 1
}

// began remembers a start time.
func (h *history) began(start float64) {
	if len(h.starts) == maxStarts {
		h.starts = slices.Delete(h.starts, 0, 1)
	}
	h.starts = append(h.starts, start)
}

// wentBack reports whether total is lower than every counter before. Otherwise it is
// the next number of the nearest one below: no other assignment of pages to servers
// needs fewer servers.
func (h *history) wentBack(total float64) bool {
	nearest := -1
	for i := range h.counters {
		h.counters[i].silent++
		if v := h.counters[i].value; v <= total && (nearest < 0 || v > h.counters[nearest].value) {
			nearest = i
		}
	}
	if nearest >= 0 {
		h.counters[nearest] = counter{value: total}
	}
	h.counters = slices.DeleteFunc(h.counters, func(c counter) bool { return c.silent > maxSilent })
	if nearest >= 0 {
		return false
	}
	if len(h.counters) == maxStarts {
		oldest := slices.MaxFunc(h.counters, func(a, b counter) int { return a.silent - b.silent })
		h.counters = slices.DeleteFunc(h.counters, func(c counter) bool { return c == oldest })
	}
	h.counters = append(h.counters, counter{value: total})
	return len(h.counters) > 1
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
		s.member.peers.peak = s.member.peers.inFlight()
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
	slots, slotted := c.cfg.Adapters, (*enginepage.Adapters)(nil)
	if slots != nil && err == nil {
		slotted = text.Adapters()
	}
	if slotted == nil {
		slots = nil
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
		if slots != nil && len(sources) == 1 { // the lines are of one engine, and do not say of which
			slots.Page(s.member.id, adapters.Page{
				Slots: slotted.Slots, Running: slotted.Running, Loaded: slotted.Loaded, Exact: slotted.Exact,
			})
		}
		if f := p.cfg.Load().Trace.ScrapeChanged; f != nil && changed {
			f(s.member.id, r.err)
		}
	}
}

// report takes over the result of a scrape, unless the member is another by now. It
// reports whether the engine lost its cache (it was restarted, or fell asleep), and whether the scrape began or ceased
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
		st.read = p.now()
		restarted = p.sawRestart(m, &st)
		m.page.Store(&st)
		restarted = p.putAsleep(m, &st) || restarted
	}
	m.history.failed = err != nil
	if err == nil {
		others := int64(st.Running) + int64(st.Waiting) - m.peak
		m.peers.reported(m.peers.peak)
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

// sawRestart reports whether the engine was restarted, unless another gateway has said so before, and passes it on.
func (p *pool) sawRestart(m *member, st *page) bool {
	h := &m.history
	if !h.restarted(st) {
		return false
	}
	before := h.forgotten
	h.forgotten = max(st.read, 1)
	if p.peers != nil && st.Start < 0 && before != 0 && st.read < before+repeated {
		return false
	}
	p.tellRestart(m.id, st.Start)
	return true
}

// putAsleep notes whether the engine sleeps. It reports whether it fell asleep. What a
// page says stands as long as its other numbers, so that a page that is gone keeps
// nobody asleep.
func (p *pool) putAsleep(m *member, st *page) (fell bool) {
	fell = st.Asleep && !m.history.asleep
	woke := !st.Asleep && m.history.asleep
	m.history.asleep = st.Asleep
	switch {
	case fell:
		p.pass(m, peering.Asleep, []byte{1})
		if p.peers != nil {
			p.peers.Forget(m.id)
		}
	case woke:
		p.pass(m, peering.Asleep, []byte{0})
	}
	if !st.Asleep && m.asleep.Load() == 0 {
		return false
	}
	var until time.Duration
	if st.Asleep {
		until = max(st.read+p.cfg.Load().Scrape.StaleAfter, 1)
		p.watch(until)
	}
	m.asleep.Store(int64(until))
	if woke {
		p.slowStart(m, st.read)
	}
	p.putState(m, st.read)
	return fell
}
