package lmcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/warmroute/router/internal/errclass"
)

var errRunning = errors.New("lmcache: Run: the Poller runs already")

// Run polls the targets, side by side, until ctx is done, and returns ctx's error.
// It follows every Set. One Run at a time; another is an error at once. A slow,
// hanging or lying target delays no other. Only a 2xx is an answer, redirects are
// not followed, and the proxies of the environment are not used.
//
// When Run ends, the last answers stay until they are stale.
func (p *Poller) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer p.running.Store(false)
	client := p.client()
	jobs := map[*source]context.CancelFunc{}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		want := map[*source]bool{}
		for _, s := range p.table.Load().list {
			want[s] = true
		}
		for s, stop := range jobs {
			if !want[s] {
				stop()
				delete(jobs, s)
			}
		}
		for s := range want {
			if jobs[s] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			jobs[s] = stop
			wg.Go(func() { p.follow(ctx, client, s) })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.sets:
		}
	}
}

func (p *Poller) client() *http.Client {
	transport := p.transport
	if transport == nil {
		transport = &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return p.limits.Load().dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig: p.tls.Clone(),
			// A connection that stays open would not notice that its host's name
			// means another address now or that the policy denies it.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// follow polls s until ctx is done, the first time within a fifth of Refresh, so
// that a fleet is not polled all at once.
func (p *Poller) follow(ctx context.Context, client *http.Client, s *source) {
	u := func() float64 { return float64(p.rand()>>11) / (1 << 53) }
	timer := time.NewTimer(time.Duration(float64(s.Refresh) / 5 * u()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		a, err := p.ask(ctx, client, s)
		if ctx.Err() != nil {
			return // it says nothing about the target
		}
		p.note(s, begin, a, err)
		next := time.Duration(float64(s.Refresh) * (0.9 + 0.2*u()))
		timer.Reset(max(next-time.Since(begin), s.Refresh/10))
	}
}

// ask makes one poll.
func (p *Poller) ask(ctx context.Context, client *http.Client, s *source) (answer, error) {
	if err := p.limits.Load().policy.CheckURL(redacted(s.Endpoint)); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	a, err := get(ctx, client, s)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no whole answer within %v: %w", s.Timeout, err)
	}
	return a, err
}

func get(ctx context.Context, client *http.Client, s *source) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, nil)
	if err != nil {
		return answer{}, errclass.Wrap(err)
	}
	for name, values := range s.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, text/plain;version=0.0.4;q=0.9")
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "warmroute")
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, errclass.Wrap(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		return answer{}, fmt.Errorf("status %d; redirects are not followed", code)
	case code < 200 || code > 299:
		return answer{}, fmt.Errorf("status %d", code)
	}
	return decode(resp.Body, s.Kind)
}

// note publishes the result of a poll, logs it and calls the hooks.
func (p *Poller) note(s *source, begin time.Time, a answer, err error) {
	old := s.status.Load()
	now := time.Now()
	next := &status{state: Available, kind: a.kind, occupancy: a.occupancy, at: now}
	switch {
	case err != nil:
		next = &status{state: Failed, kind: old.kind, occupancy: old.occupancy, at: old.at, err: err,
			failures: old.failures + 1}
	case !a.available:
		next.state = Unavailable
	}
	s.status.Store(next)
	if f := p.trace.Polled; f != nil {
		f(s.ID, now.Sub(begin), err)
	}
	if old.state == next.state {
		return
	}
	st := s.at(now)
	level := zap.InfoLevel
	if next.state != Available {
		level = zap.WarnLevel
	}
	p.log.Log(level, "LMCache occupancy", zap.String("target", s.ID), zap.String("endpoint", st.Endpoint),
		zap.Stringer("from", old.state), zap.Stringer("to", next.state), zap.Float64("occupancy",
			st.Occupancy), zap.Error(err))
	if f := p.trace.Changed; f != nil {
		f(old.state, st)
	}
}
