package main

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/errclass"
)

// closesWithin is how long after a request a kept connection may end as one that the engine had closed. Later
// the engine has worked on the request, which is not repeated there.
const closesWithin = time.Second

// sent is the connection of an attempt.
type sent struct {
	reused  atomic.Bool // it was kept from an earlier request
	replied atomic.Bool // a byte of the reply has come
	wrote   atomic.Pointer[time.Time]
}

// closed reports whether the connection was closed by the engine before it took the request, as far as that can be
// seen.
func (s *sent) closed() bool {
	at := s.wrote.Load()
	return s.reused.Load() && !s.replied.Load() && (at == nil || time.Since(*at) < closesWithin)
}

// trace returns ctx with the hooks that fill s.
func (s *sent) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(c httptrace.GotConnInfo) { s.reused.Store(c.Reused) },
		GotFirstResponseByte: func() { s.replied.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) {
			now := time.Now()
			s.wrote.Store(&now)
		},
	})
}

// unlinked returns the transport for the second try of a request that a kept connection did not answer, nil if there is
// none.
func unlinked(t http.RoundTripper) http.RoundTripper {
	own, ok := t.(*http.Transport)
	if !ok {
		return nil
	}
	fresh := own.Clone()
	fresh.DisableKeepAlives = true
	return fresh
}

// roundTrip sends the attempt's request. An engine may close a kept connection at the moment when it is used again. If
// it ends at once and before a byte of the reply, the request is sent once more, to the same target, on a connection of
// its own: that the old one was closed says nothing about the target.
func (x *exchange) roundTrip(a *attempt, request func(context.Context) *http.Request) (*http.Response, error) {
	var s sent
	resp, err := x.h.cfg.Transport.RoundTrip(request(s.trace(a.ctx)))
	if err == nil || x.h.fresh == nil || !s.closed() || a.ctx.Err() != nil {
		return resp, x.classed(err)
	}
	x.h.cfg.Log.Debug("a kept connection was closed", "target", x.lease.Decision().Target.ID, "err", err)
	x.h.reconnects.Add(1)
	resp, err = x.h.fresh.RoundTrip(request(a.ctx))
	return resp, x.classed(err)
}

// classed returns err, of the connection to a target or of its reply, without the target's words, which may be a
// client's. The log has them at the level debug.
func (x *exchange) classed(err error) error {
	if err == nil {
		return nil
	}
	x.h.cfg.Log.Debug("a target's error", "target", x.lease.Decision().Target.ID, "text", errclass.Text(err))
	return errclass.Wrap(err)
}
