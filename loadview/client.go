package loadview

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/loadview/enginepage"
)

// client asks the engines, for the goroutines of one Run and one Config.
type client struct {
	pool           *pool
	cfg            *Config
	http           *http.Client
	scrapes, asked chan struct{} // a slot for each that may be under way
	readers        sync.Pool
}

func newClient(p *pool, cfg *Config) *client {
	return &client{
		pool: p,
		cfg:  cfg,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            cfg.Egress.Dialer().DialContext,
				TLSClientConfig:        cfg.TLS.Clone(),
				DisableCompression:     true, // it would cost more than it saves
				MaxIdleConnsPerHost:    2,    // a page and a probe
				IdleConnTimeout:        2 * max(cfg.Scrape.Interval, cfg.Probe.Interval),
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		scrapes: make(chan struct{}, cfg.Scrape.Parallel),
		asked:   make(chan struct{}, cfg.Probe.Parallel),
		readers: sync.Pool{New: func() any { return new(enginepage.Reader) }},
	}
}

// every calls f at jittered intervals, the first time within a fifth of one, in
// one of the slots.
func (c *client) every(ctx context.Context, interval time.Duration, slots chan struct{}, f func()) {
	u := func() float64 { return float64(c.cfg.Rand()>>11) / (1 << 53) }
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
func (c *client) get(ctx context.Context, timeout time.Duration, s *source, url, accept string,
	use func(io.Reader) error) error {
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
		return errclass.Wrap(err)
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
