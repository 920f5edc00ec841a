package main

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// sent is the connection of an attempt.
type sent struct {
	reused  atomic.Bool // it was kept from an earlier request
	replied atomic.Bool // a byte of the reply has come
}

// trace returns ctx with the hooks that fill s.
func (s *sent) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(c httptrace.GotConnInfo) { s.reused.Store(c.Reused) },
		GotFirstResponseByte: func() { s.replied.Store(true) },
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
// it ends before a byte of the reply, the request is sent once more, to the same target, on a connection of its own:
// that the old one was closed says nothing about the target. An engine ends the work for a connection that is closed.
func (x *exchange) roundTrip(a *attempt, request func(context.Context) *http.Request) (*http.Response, error) {
	var s sent
	resp, err := x.h.cfg.Transport.RoundTrip(request(s.trace(a.ctx)))
	if err == nil || x.h.fresh == nil || !s.reused.Load() || s.replied.Load() || a.ctx.Err() != nil {
		return resp, err
	}
	x.h.cfg.Log.Debug("a kept connection was closed", "target", x.lease.Decision().Target.ID, "err", err)
	x.h.reconnects.Add(1)
	return x.h.fresh.RoundTrip(request(a.ctx))
}
