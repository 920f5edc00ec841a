package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

// Proxy sends requests to the targets of a Router. Make one with New. Its methods are safe
// for concurrent use, and it starts no goroutine of its own.
type Proxy struct {
	cfg   Config
	proxy httputil.ReverseProxy

	bodies, prompts, replies *membudget.Account
}

var (
	_ http.Handler      = (*Proxy)(nil)
	_ http.RoundTripper = (*Proxy)(nil)
)

// New returns a Proxy. The error joins a *router.ConfigError for each field with a bad
// value.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg.WithDefaults()}
	p.prompts, p.replies = p.cfg.Memory.Account(membudget.Prompts), p.cfg.Memory.Account(membudget.Replies)
	if p.bodies = p.cfg.Memory.Account(membudget.Bodies); p.bodies == nil {
		own, err := membudget.New(membudget.Config{Limit: p.cfg.MaxBodies, Shares: map[string]float64{membudget.Bodies: 1}})
		if err != nil {
			return nil, err
		}
		p.bodies = own.Account(membudget.Bodies)
	}
	p.proxy = httputil.ReverseProxy{
		Transport: p, FlushInterval: -1, ErrorHandler: p.ServeError,
		ErrorLog: log.New(io.Discard, "", 0), // of replies that broke off, which router.Trace.Done has
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Del("Connection")
			r.Out.Header.Del("Upgrade") // a tunnel has no prompt
		},
	}
	return p, nil
}

// exchange is one request with all its attempts.
type exchange struct {
	p      *Proxy
	req    *http.Request
	header http.Header // for the targets
	body   []byte
	length int64 // of the body; -1: it has none
	prompt router.Prompt
	asked  membudget.Hold // of the prompt
	lease  *router.Lease
	sent   context.Context // of the attempt
	cancel context.CancelCauseFunc
}

// RoundTrip sends req to the target that r chooses, and to others if that fails before the first token of the
// reply. If all fail, it returns the last one's reply, or an error: a *router.NoTargetError, the context's,
// ErrTooLarge, ErrBusy, or the last attempt's. The reply's Body has to be closed. Where req.URL leads makes no
// difference but for its path and its query.
func (p *Proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	x := &exchange{p: p, req: req, header: req.Header, length: -1}
	free, err := x.read()
	if err != nil {
		return nil, err
	}
	defer free() // when the reply has begun, nothing is sent again
	// A body that is not understood is routed and counted all the same.
	x.asked = p.prompts.Hold()
	if x.prompt, err = p.cfg.Parser.Within(&x.asked, req.URL.Path, x.header, x.body); errors.Is(err, membudget.ErrShed) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err = p.replies.Reserve(replyBytes); err != nil {
		x.asked.Release()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	passed := false
	defer func() {
		if !passed { // otherwise at the end of the reply
			x.release()
		}
	}()

	// The lease does not end with the client: its last bytes may be on the way when it
	// disconnects. Until the reply begins, it does.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	stop := context.AfterFunc(req.Context(), func() { cancel(context.Cause(req.Context())) })
	defer stop()
	r := p.cfg.Choose(req)
	if r == nil {
		cancel(nil)
		return nil, errors.New("httpproxy: there is no Router for the request")
	}
	if x.lease, err = r.Route(ctx, x.prompt); err != nil {
		cancel(nil)
		return nil, err
	}
	settled := false
	defer func() {
		if !settled { // a panic, of the Transport for instance: it goes on by itself
			x.lease.Done(router.Outcome{Stage: router.Canceled})
			cancel(nil)
		}
	}()
	for {
		resp, o := x.try()
		if resp != nil && o.Stage == 0 && stop() {
			settled, passed = true, x.pass(resp) // by its end
			return resp, nil
		}
		if cause := context.Cause(req.Context()); cause != nil {
			o = router.Outcome{Stage: router.Canceled, Status: o.Status, Err: cause}
		}
		next, last := x.lease.Retry(ctx, o)
		if next == nil {
			settled = true
			defer cancel(nil)
			resp, err := x.giveUp(resp, o, last)
			passed = x.pass(resp)
			return resp, err
		}
		x.close(resp)
		x.lease = next
	}
}

// replyBytes are reserved for each reply: the part that is held back, and what a Reply keeps in any case.
const replyBytes = prompt.MaxHold + prompt.ReplyBase

// pass reports whether resp is a reply to be passed on. Its Close releases the memory then.
func (x *exchange) pass(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	b, ok := resp.Body.(*body)
	if ok {
		b.release = x.release
	}
	return ok
}

// release gives the memory of the prompt and the reply back.
func (x *exchange) release() {
	x.asked.Release()
	x.p.replies.Release(replyBytes)
}

// read reads the body, and decodes it. free gives its bytes back.
func (x *exchange) read() (free func(), err error) {
	p := x.p
	hold := p.bodies.Hold()
	free = hold.Release
	if x.req.Body == nil || x.req.Body == http.NoBody {
		return free, nil
	}
	defer x.req.Body.Close()
	defer func() {
		if err != nil {
			free()
		}
	}()
	if x.req.ContentLength > p.cfg.MaxBody {
		return free, ErrTooLarge
	}
	x.body, err = membudget.ReadAll(&hold, x.req.Body, x.req.ContentLength, p.cfg.MaxBody)
	switch {
	case errors.Is(err, membudget.ErrShed):
		return free, p.busy(err)
	case err != nil:
		return free, &bodyError{err}
	case int64(len(x.body)) > p.cfg.MaxBody:
		return free, ErrTooLarge
	}
	if values := x.header.Values("Content-Encoding"); len(values) > 0 && p.cfg.Decode != nil {
		decoded, err := p.cfg.Decode(x.req.Context(), values, x.body)
		if err != nil {
			return free, &bodyError{err}
		}
		if err := hold.Set(int64(len(decoded))); err != nil {
			return free, p.busy(err)
		}
		x.body, x.header = decoded, x.header.Clone()
		for _, k := range [...]string{"Content-Encoding", "Content-Digest", "Content-Md5", "Digest"} {
			x.header.Del(k) // they are of the body as it came
		}
	}
	x.length = int64(len(x.body))
	return free, nil
}

// busy returns the error of a body for which there is no memory.
func (p *Proxy) busy(err error) error {
	if p.cfg.Memory == nil {
		return ErrBusy // MaxBodies is no account of the caller's
	}
	return fmt.Errorf("%w: %w", ErrBusy, err)
}

// bodyError is an error of the client's body.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

var errHeaderTimeout = fmt.Errorf("httpproxy: the target did not begin to reply in time: %w", router.ErrAttemptTimeout)

// try makes one attempt. A reply to be passed on has an Outcome without a Stage.
func (x *exchange) try() (*http.Response, router.Outcome) {
	failed := func(err error) (*http.Response, router.Outcome) {
		if context.Cause(x.sent) == errHeaderTimeout {
			err = errHeaderTimeout
		}
		x.cancel(nil)
		return nil, router.Outcome{Stage: router.Failed, Err: err}
	}
	x.sent, x.cancel = context.WithCancelCause(x.req.Context())
	base, err := baseOf(x.lease.Decision().Target)
	if err != nil {
		return failed(err)
	}
	out := x.req.Clone(x.sent)
	out.Header, out.RequestURI = x.header.Clone(), ""
	(&httputil.ProxyRequest{Out: out}).SetURL(base)
	out.Body, out.GetBody, out.ContentLength, out.TransferEncoding = nil, nil, 0, nil
	if x.length >= 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		out.Body, _ = out.GetBody()
		out.ContentLength = x.length
	}
	var timer *time.Timer
	if x.p.cfg.HeaderTimeout > 0 {
		cancel := x.cancel // of this attempt
		timer = time.AfterFunc(x.p.cfg.HeaderTimeout, func() { cancel(errHeaderTimeout) })
	}
	resp, err := x.p.cfg.Transport.RoundTrip(out)
	if err != nil {
		if timer != nil {
			timer.Stop()
		}
		return failed(errclass.Wrap(err))
	}
	if resp.StatusCode < 100 || resp.StatusCode == http.StatusSwitchingProtocols { // nobody asked for the latter
		resp.Body.Close()
		return failed(fmt.Errorf("httpproxy: the target's status is %03d", resp.StatusCode))
	}
	b := &body{
		lease: x.lease, status: resp.StatusCode, header: resp.Header, left: resp.ContentLength,
		client: x.req.Context(), cancel: x.cancel, text: prompt.ReplyTo(x.req.URL.Path, x.prompt),
	}
	b.text.Memory = x.p.replies
	o := b.text.Hold(resp)
	if timer != nil && !timer.Stop() {
		x.close(resp)
		return failed(errHeaderTimeout)
	}
	b.ReadCloser, resp.Body = resp.Body, b
	switch {
	case o.Status == 0 || o.Retryable():
		o = o.Settled()
		return resp, o
	case resp.StatusCode >= 300: // the client's own affair; Done does nothing later
		x.lease.Done(o)
		return resp, router.Outcome{Status: o.Status}
	}
	x.lease.FirstToken()
	return resp, router.Outcome{Status: o.Status}
}

// close drops a reply that is not passed on.
func (x *exchange) close(resp *http.Response) {
	if resp != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be kept
		_ = resp.Body.Close()
	}
}

// giveUp returns the last target's own reply if there is one, or the error. The lease is
// settled.
func (x *exchange) giveUp(resp *http.Response, o router.Outcome, err error) (*http.Response, error) {
	if resp != nil && o.Stage != router.Canceled && o.Status != 0 {
		return resp, nil
	}
	x.close(resp)
	x.cancel(nil)
	if o.Err != nil {
		return nil, o.Err
	}
	return nil, err
}

// body is a reply's body. Its end settles the lease.
type body struct {
	io.ReadCloser
	lease  *router.Lease
	status int
	header http.Header
	client context.Context // of the request
	cancel context.CancelCauseFunc
	left   int64        // bytes until its end; negative: unknown
	text   prompt.Reply // is cached too, and begins the next turn
	ended  atomic.Bool

	release func()    // gives the request's memory back
	closed  sync.Once // releases
}

// Read reads the next part.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.lease.Made(b.text.Made()...) // the client may use an id as soon as it has it
		if b.left > 0 {
			b.left -= int64(n)
		}
	}
	if err != nil {
		o := b.text.Outcome(b.status, b.header)
		switch broke := err != io.EOF && errors.Is(o.Err, err); {
		case broke && b.whole(): // behind its end
			o.Stage, o.Err = router.Finished, nil
		case o.Err != nil && b.client.Err() != nil: // by the client
			o.Stage = router.Canceled
		}
		b.end(o)
	}
	return n, err
}

// Close settles the lease if the end was not read: as finished if all of the reply had
// come, as canceled otherwise.
func (b *body) Close() error {
	o := b.text.Outcome(b.status, b.header)
	if !b.whole() {
		o.Stage = router.Canceled
	}
	b.end(o)
	err := b.ReadCloser.Close()
	b.cancel(nil)
	b.closed.Do(func() {
		b.text.Close()
		if b.release != nil {
			b.release()
		}
	})
	return err
}

// whole reports whether all of the reply has come.
func (b *body) whole() bool { return b.left == 0 || b.text.Ended() }

func (b *body) end(o router.Outcome) {
	if b.ended.CompareAndSwap(false, true) {
		b.lease.Done(o)
	}
}

// LeaseOf returns the lease of a reply that a Proxy's RoundTrip returned, for its Decision; nil if resp is not one.
func LeaseOf(resp *http.Response) *router.Lease {
	if b, ok := resp.Body.(*body); ok {
		return b.lease
	}
	return nil
}
