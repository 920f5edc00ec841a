package loadview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var errRunning = errors.New("loadview: Run: the View runs already")

// Run scrapes the metrics pages, each once for all members that are on it, and
// probes the health of the members that have URLs for these, until ctx is done,
// and returns ctx's error. It follows every change of the members. One Run at a
// time serves all Views over the pool; another is an error at once.
//
// A slow, hanging or lying engine costs one of the parallel slots for the
// timeout and nothing else: no Choose waits for any of it. Redirects are
// failures, and the proxies of the environment are not used.
//
// Queued of a member that is scraped is the number of requests that its engine
// reports, running and waiting, less the most that this process had in flight there
// at any instant of the scrape, so that no request of ours is counted twice; it is
// not less than 0. It stands until the next page. A scrape that fails and a page
// that does not report the load (or that has a NaN in it) leave it; it is unknown
// at the age of Scrape.StaleAfter.
//
// A page shows that the engine was restarted when its process_start_time_seconds
// is one not seen before, or, if it has none, when a counter is lower than before (a
// further server under the address looks the same, once). It shows that the engine
// sleeps: the member is Asleep until a page says that it is awake, or none was read for
// Scrape.StaleAfter. Trace.Forget and the functions of OnForget are called at a
// restart and once when it falls asleep.
//
// When Run ends, the verdicts of the probes stay as they are.
func (v *View) Run(ctx context.Context) error {
	p := v.pool
	if !p.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer p.running.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	j := &jobs{pool: p, ctx: ctx, scrapes: map[string]*scraping{}, probes: map[*source]context.CancelFunc{}}
	defer func() {
		cancel()
		j.running.Wait()
		j.begin(nil)
	}()
	for {
		if cfg := p.cfg.Load(); j.client == nil || j.client.cfg != cfg {
			j.begin(cfg)
		}
		j.adjust()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.work:
		}
	}
}

// jobs are the goroutines of one Run.
type jobs struct {
	pool    *pool
	ctx     context.Context
	client  *client
	scrapes map[string]*scraping // by pageKey
	probes  map[*source]context.CancelFunc
	running sync.WaitGroup
}

// begin stops all jobs and lets those that follow use cfg; nil: none follows.
func (j *jobs) begin(cfg *Config) {
	for k, s := range j.scrapes {
		s.stop()
		delete(j.scrapes, k)
	}
	for s, stop := range j.probes {
		stop()
		delete(j.probes, s)
	}
	if j.client != nil {
		j.client.http.CloseIdleConnections()
	}
	if cfg != nil {
		j.client = newClient(j.pool, cfg)
	}
}

// adjust starts and stops jobs, so that they are those of the members.
func (j *jobs) adjust() {
	pages, asked := map[string][]*source{}, map[*source]bool{}
	for _, s := range j.pool.sources() {
		if s.metrics != "" {
			k := s.pageKey()
			pages[k] = append(pages[k], s)
		}
		if s.health != "" {
			asked[s] = true
		}
	}
	c := j.client
	for k, s := range j.scrapes {
		if !slices.Equal(s.sources, pages[k]) {
			s.stop()
			delete(j.scrapes, k)
		}
	}
	for k, sources := range pages {
		if j.scrapes[k] == nil {
			ctx, stop := context.WithCancel(j.ctx)
			j.scrapes[k] = &scraping{sources, stop}
			j.running.Go(func() { c.scrapeAll(ctx, sources) })
		}
	}
	for s, stop := range j.probes {
		if !asked[s] {
			stop()
			delete(j.probes, s)
		}
	}
	for s := range asked {
		if j.probes[s] == nil {
			ctx, stop := context.WithCancel(j.ctx)
			j.probes[s] = stop
			j.running.Go(func() { c.probeAll(ctx, s) })
		}
	}
}

// scraping is one page that is scraped, for all members that are on it.
type scraping struct {
	sources []*source
	stop    context.CancelFunc
}

// pageKey is equal for members that are on one page, read in the same way.
func (s *source) pageKey() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q", s.metrics)
	for _, k := range slices.Sorted(maps.Keys(s.header)) {
		fmt.Fprintf(&b, " %q %q", k, s.header[k])
	}
	return b.String()
}

func (p *pool) sources() []*source {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := make([]*source, len(p.members))
	for i, m := range p.members {
		s[i] = m.source
	}
	return s
}
