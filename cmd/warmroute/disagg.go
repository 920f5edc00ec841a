package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/membudget"
)

// matchKey is the key of a request's config.Match in its context, for the bodies of prefill targets.
type matchKey struct{}

// splitter returns the Splitter of a route, that of before if nothing has changed, and nil if no
// provider of the route has a role.
func (s *service) splitter(f *file.File, r *file.Route, before *routeState) (*disagg.Splitter, disagg.Config, error) {
	roles := r.Disagg != nil
	for _, t := range r.Targets {
		for i := range f.Providers {
			p := &f.Providers[i]
			roles = roles || p.Name == t.Provider && p.Role != file.RoleBoth
		}
	}
	m, ok := s.gateway.Route(r.Model)
	if !roles || !ok {
		return nil, disagg.Config{}, nil
	}
	c := disagg.Config{Router: m.Router}
	if d := r.Disagg; d != nil {
		c.Protocol, c.Strict = disagg.Protocol(d.Protocol), d.Strict
		c.MinUncached, c.MinInFlight = d.MinUncached, d.MinInFlight
		if c.MinUncached == 0 {
			c.MinUncached = -1
		}
		c.PrefillTimeout, c.DecodeTimeout = secs(d.PrefillTimeoutSecs), secs(d.DecodeTimeoutSecs)
		c.PinnedFor = secs(d.PinnedSecs)
	}
	if before != nil && before.split != nil {
		was := before.splitConfig
		if was.Router == c.Router && was.Protocol == c.Protocol && was.MinUncached == c.MinUncached &&
			was.MinInFlight == c.MinInFlight && was.Strict == c.Strict && was.PrefillTimeout == c.PrefillTimeout &&
			was.DecodeTimeout == c.DecodeTimeout && was.PinnedFor == c.PinnedFor {
			return before.split, was, nil
		}
	}
	settings := c
	c.Memory = s.memory.Account(membudget.Replies)
	c.Place, c.URL = placeOf, baseOf
	c.Transport = roundTripper(func(r *http.Request) (*http.Response, error) { return s.transport.RoundTrip(r) })
	c.Prepare = func(r *http.Request, t router.Target) {
		if ref, ok := t.Ref.(*config.Target); ok {
			r.Header = withHeader(r.Header, ref.Header)
		}
	}
	c.Rewrite = func(ctx context.Context, t router.Target, body []byte) []byte {
		m, ok := ctx.Value(matchKey{}).(config.Match)
		if !ok {
			return body
		}
		return renamed(m, t, body)
	}
	split, err := disagg.New(c)
	return split, settings, err
}

// splitOf returns the Splitter of a route, nil if it has none.
func (s *service) splitOf(route string) *disagg.Splitter {
	if routes := s.routes.Load(); routes != nil && (*routes)[route] != nil {
		return (*routes)[route].split
	}
	return nil
}

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func placeOf(t router.Target) disagg.Place {
	ref, ok := t.Ref.(*config.Target)
	if !ok {
		return disagg.Place{}
	}
	return disagg.Place{
		Role: disagg.Role(ref.Role), Zone: ref.Zone, Connector: ref.Connector, BootstrapPort: ref.BootstrapPort,
	}
}

func baseOf(t router.Target) (*url.URL, error) {
	if ref, ok := t.Ref.(*config.Target); ok {
		return ref.Base, nil
	}
	return nil, errors.New("the target has no address")
}

// renamed returns body with t's name for the model.
func renamed(m config.Match, t router.Target, body []byte) []byte {
	name := m.Rewrite(t)
	if m.Requested == "" || name == m.Requested {
		return body
	}
	at, _ := modelSpans(body)
	return rename(at, name).apply(body)
}

// begin prepares x for a route with roles. It returns the route's Router for such a request.
func (x *exchange) begin(s *disagg.Splitter, p router.Prompt) (*router.Router, error) {
	if s == nil {
		return x.match.Router, nil
	}
	if x.where != inJSON || len(x.in.Bytes()) == 0 || x.r.Method != http.MethodPost {
		return s.Router(), nil
	}
	r := disagg.Request{Path: x.r.URL.Path, Header: x.header, Body: x.in.Bytes()}
	if err := x.prompts.Add(2 * int64(len(r.Body))); err != nil { // a body for each of two targets
		return nil, err
	}
	split, err := s.Split(p, r)
	if err != nil {
		return nil, err
	}
	x.split = split
	return s.Router(), nil
}

// attempt makes one attempt, with the prompt computed elsewhere if that pays.
func (x *exchange) attempt() (*attempt, router.Outcome) {
	if x.split == nil {
		return x.ask(x.r.Context(), x.header, nil)
	}
	var a *attempt
	passOn := false
	ctx := context.WithValue(x.r.Context(), matchKey{}, x.match)
	o := x.split.Attempt(ctx, x.lease, func(ctx context.Context, at *disagg.Attempt) (router.Outcome, error) {
		if a != nil {
			a.close()
		}
		var o router.Outcome
		if a, o = x.ask(ctx, at.Header, at.Body); o.Stage != 0 {
			return o, nil
		}
		if a.resp.StatusCode >= 300 {
			passOn = true
			return router.Outcome{Stage: router.Failed, Status: a.resp.StatusCode}, nil
		}
		if !at.FirstToken() {
			a.closeBody()
			return a.failed(errIdleTimeout), nil
		}
		return router.Outcome{Stage: router.FirstToken}, nil
	})
	if a == nil { // it was not sent
		a = x.newAttempt(ctx)
	}
	if passOn || o.Stage == router.FirstToken {
		return a, router.Outcome{}
	}
	if o.Stage == 0 {
		o = o.Settled()
	}
	return a, o
}

// bodyFor returns the body for a target: that of at, or the client's.
func (x *exchange) bodyFor(t router.Target, body []byte) (open func() io.ReadCloser, size int) {
	if body != nil {
		body = renamed(x.match, t, body)
		return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }, len(body)
	}
	e := x.edit(t)
	return func() io.ReadCloser { return bodyOf(x.in, e) }, e.size(len(x.in.Bytes()))
}

// refusal passes on the reply with which a prefill target refused the request, if err has one.
func (x *exchange) refusal(err error) bool {
	var e *disagg.PrefillError
	if !errors.As(err, &e) {
		return false
	}
	h := x.client.w.Header()
	if v := e.Header.Get("Content-Type"); v != "" {
		h.Set("Content-Type", v)
	}
	x.client.arm()
	x.client.w.WriteHeader(e.Status)
	_, _ = x.client.Write(e.Body)
	return true
}
