package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/egress"
)

// defaults fills in what is 0.
func (s *Scrape) defaults(bad func(field, format string, args ...any)) {
	durations(bad, "Scrape", &s.Interval, DefaultScrapeInterval, &s.Timeout)
	if s.StaleAfter < 0 {
		bad("Scrape.StaleAfter", "%v is negative", s.StaleAfter)
	}
	if s.StaleAfter == 0 {
		s.StaleAfter = 3 * min(s.Interval, math.MaxInt64/3)
	}
	if s.MaxBody < 0 {
		bad("Scrape.MaxBody", "%d is negative", s.MaxBody)
	}
	if s.MaxBody == 0 {
		s.MaxBody = DefaultMaxBody
	}
	counts(bad, "Scrape.Parallel", &s.Parallel, DefaultParallel)
}

// defaults fills in what is 0.
func (p *Probe) defaults(bad func(field, format string, args ...any)) {
	durations(bad, "Probe", &p.Interval, DefaultProbeInterval, &p.Timeout)
	counts(bad, "Probe.Failures", &p.Failures, DefaultProbeFailures)
	counts(bad, "Probe.Successes", &p.Successes, DefaultProbeSuccesses)
	counts(bad, "Probe.Parallel", &p.Parallel, DefaultParallel)
	if p.SlowStart == 0 {
		p.SlowStart = DefaultSlowStart
	}
}

func durations(bad func(field, format string, args ...any), of string, interval *time.Duration, def time.Duration, timeout *time.Duration) {
	if *interval < 0 {
		bad(of+".Interval", "%v is negative", *interval)
	}
	if *timeout < 0 {
		bad(of+".Timeout", "%v is negative", *timeout)
	}
	if *interval == 0 {
		*interval = def
	}
	if *timeout == 0 {
		*timeout = DefaultTimeout
	}
}

func counts(bad func(field, format string, args ...any), field string, n *int, def int) {
	if *n < 0 {
		bad(field, "%d is negative", *n)
	}
	if *n == 0 {
		*n = def
	}
}

// checkURL checks a member's URL, which may be "".
func checkURL(p egress.Policy, url string) error {
	if url == "" {
		return nil
	}
	if err := p.CheckURL(url); err != nil {
		return err
	}
	if !strings.HasPrefix(strings.ToLower(url), "http") {
		return errors.New("it is not an http or https URL")
	}
	return nil
}

// setSource takes over what Run needs to know of m.
func (v *View) setSource(m *member, c Member) {
	next := &source{member: m, metrics: c.Metrics, health: c.Health, rank: c.Rank, header: c.Header.Clone()}
	old := m.source
	if old != nil && reflect.DeepEqual(*old, *next) {
		return
	}
	m.source = next
	m.history = history{count: -1}
	if old == nil {
		return
	}
	if old.metrics != "" && next.metrics == "" { // nobody will say that it is over
		m.page.Store(nil)
		m.trouble.Store(nil)
		m.stale.Store(0)
		m.set(queueUnknown, true)
	}
	if old.health != "" && next.health == "" {
		m.set(unhealthy, false)
	}
}

var errRunning = errors.New("loadview: Run: the View runs already")

// Run scrapes the metrics pages, each once for all members that are on it, and
// probes the health of the members that have URLs for these, side by side and whoever they are at the time, until ctx is
// done, whose error it returns. One Run at a time; another is an error at once.
//
// A slow, hanging or lying engine costs one of the parallel slots for the
// timeout and nothing else: no Choose waits for any of it. Redirects are
// failures, and the proxies of the environment are not used.
//
// Queued of a member that is scraped is what its engine has running and waiting
// less what this process had in flight there while the page was made, and not
// less than 0: the most at any instant of the scrape, so that nothing of ours is
// counted twice. It stands until the next page. A scrape that fails and a page
// that does not tell the load (or that has a NaN in it) leave it; it is unknown
// at the age of Scrape.StaleAfter.
//
// A page shows that the engine was restarted when its process_start_time_seconds
// is one not seen before, or where it has none, when after failed scrapes a
// counter is lower than before. That is told to Trace.Forget.
//
// When Run ends, what the probes found stays as it is.
func (v *View) Run(ctx context.Context) error {
	if !v.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer v.running.Store(false)
	c := v.newClient()
	defer c.http.CloseIdleConnections()

	scrapes := map[string]*scraping{} // by what is shared
	probes := map[*source]context.CancelFunc{}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		pages, asked := map[string][]*source{}, map[*source]bool{}
		for _, s := range v.sources() {
			if s.metrics != "" {
				k := s.pageKey()
				pages[k] = append(pages[k], s)
			}
			asked[s] = s.health != ""
		}
		for k, j := range scrapes {
			if !slices.Equal(j.sources, pages[k]) {
				j.stop()
				delete(scrapes, k)
			}
		}
		for k, sources := range pages {
			if scrapes[k] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			scrapes[k] = &scraping{sources, stop}
			wg.Go(func() { c.scrapeAll(ctx, sources) })
		}
		for s, stop := range probes {
			if !asked[s] {
				stop()
				delete(probes, s)
			}
		}
		for s, ask := range asked {
			if !ask || probes[s] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			probes[s] = stop
			wg.Go(func() { c.probeAll(ctx, s) })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.sets:
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

func (v *View) sources() []*source {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := make([]*source, len(v.members))
	for i, m := range v.members {
		s[i] = m.source
	}
	return s
}

// client is what the goroutines of one Run share.
type client struct {
	view           *View
	http           *http.Client
	scrapes, asked chan struct{} // a slot for each that may be under way
	readers        sync.Pool
}

func (v *View) newClient() *client {
	return &client{
		view: v,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            v.cfg.Egress.Dialer().DialContext,
				TLSClientConfig:        v.cfg.TLS.Clone(),
				DisableCompression:     true, // it would cost more than it saves
				MaxIdleConnsPerHost:    2,    // a page and a probe
				IdleConnTimeout:        2 * max(v.cfg.Scrape.Interval, v.cfg.Probe.Interval),
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		scrapes: make(chan struct{}, v.cfg.Scrape.Parallel),
		asked:   make(chan struct{}, v.cfg.Probe.Parallel),
		readers: sync.Pool{New: func() any { return new(reader) }},
	}
}

// every calls f at jittered intervals, the first time within a fifth of one, in
// one of the slots.
func (c *client) every(ctx context.Context, interval time.Duration, slots chan struct{}, f func()) {
	u := func() float64 { return float64(c.view.cfg.Rand()>>11) / (1 << 53) }
	timer := time.NewTimer(time.Duration(float64(interval) / 5 * u()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		f()
		<-slots
		next := time.Duration(float64(interval) * (0.9 + 0.2*u()))
		timer.Reset(max(next-time.Since(begin), interval/10))
	}
}

// get asks url and hands the body of a 2xx to use.
func (c *client) get(ctx context.Context, timeout time.Duration, s *source, url, accept string, use func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for k, vs := range s.header {
		req.Header[k] = vs
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", accept)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "warmroute")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		return fmt.Errorf("status %d; redirects are not followed", code)
	case code < 200 || code > 299:
		return fmt.Errorf("status %d", code)
	}
	return use(resp.Body)
}
