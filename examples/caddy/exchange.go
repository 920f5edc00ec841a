package warmroute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/prompt"
)

// exchange is one request with all its attempts. Only the goroutine of the handler
// uses it: Select and RoundTrip take turns.
type exchange struct {
	policy *Policy
	prompt router.Prompt
	body   []byte  // whole; nil if it was not read
	rest   *unread // sent if body is nil
	broken error   // the client did not send all of its body
	pool   reverseproxy.UpstreamPool
	lease  *router.Lease // of the present attempt
	tried  []string
}

// exchangeKey is the key of the *exchange in a request's context.
type exchangeKey struct{}

// begin reads the prompt and ties the exchange to the request, which is
// reverse_proxy's own copy and stays the same one for all attempts.
func (p *Policy) begin(r *http.Request) *exchange {
	x := &exchange{policy: p}
	if r.Body != nil && r.Body != http.NoBody {
		x.read(r)
	}
	if x.rest == nil && x.broken == nil {
		x.prompt, _ = prompt.FromRequest(r.URL.Path, r.Header, x.body) // not understood: routed and counted all the same
	}
	*r = *r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	return x
}

// read sets body; or rest, if the body is too long, exceeds the budget or must
// not be waited for; or broken.
func (x *exchange) read(r *http.Request) {
	b := &x.policy.bodies
	size := r.ContentLength
	if size < 0 {
		size = x.policy.MaxBody
	}
	if size > x.policy.MaxBody || caddyhttp.IsIncremental(r.Header) || !b.take(size) {
		x.policy.state.unread.Add(1)
		x.rest = &unread{Reader: r.Body, body: r.Body}
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, x.policy.MaxBody+1))
	if err != nil || int64(len(body)) > x.policy.MaxBody {
		b.free.Add(size)
		x.policy.state.unread.Add(1)
		x.broken = err
		x.rest = &unread{Reader: io.MultiReader(bytes.NewReader(body), r.Body), body: r.Body}
		return
	}
	b.free.Add(size - int64(len(body)))
	x.body = body
	x.decode(r)
	held := int64(len(body))
	if len(x.body) > 0 && len(body) > 0 && &x.body[0] != &body[0] {
		held = int64(len(x.body))
		b.free.Add(int64(len(body)) - held) // what has been decoded may exceed the budget for the moment
	}
	context.AfterFunc(r.Context(), func() { b.free.Add(held) })
}

// decode decodes a compressed body, or sets broken. The headers are those of all attempts.
func (x *exchange) decode(r *http.Request) {
	values := r.Header.Values("Content-Encoding")
	if !contentcoding.Encoded(values) || len(x.body) == 0 {
		return
	}
	body, err := x.policy.decoder.Decode(r.Context(), values, x.body)
	switch {
	case errors.Is(err, contentcoding.ErrUnsupported):
		x.broken = caddyhttp.Error(http.StatusUnsupportedMediaType, err)
	case errors.Is(err, contentcoding.ErrTooLarge):
		x.broken = caddyhttp.Error(http.StatusRequestEntityTooLarge, err)
	case err != nil:
		x.broken = caddyhttp.Error(http.StatusBadRequest, err)
	default:
		contentcoding.Remove(r.Header)
		x.body, r.ContentLength = body, int64(len(body))
	}
}

// rewind makes r's body the whole one again. GetBody lets Go's own transport do the
// same if an idle connection was closed.
func (x *exchange) rewind(r *http.Request) {
	switch {
	case x.rest != nil:
		r.Body = x.rest
	case x.body != nil:
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		r.Body, _ = r.GetBody()
	}
}

// route leases an upstream of pool, nil if none may be picked. It returns to those
// that were tried if no other is left: Caddy bounds the number of attempts.
func (x *exchange) route(ctx context.Context, pool reverseproxy.UpstreamPool) *reverseproxy.Upstream {
	if x.broken != nil && len(pool) > 0 {
		return pool[0] // RoundTrip sends nothing
	}
	if x.lease != nil {
		x.lease.Done(router.Outcome{Stage: router.Canceled}) // does nothing if RoundTrip saw the end
		x.lease = nil
	}
	x.pool = pool
	l, err := x.policy.state.router.Route(ctx, x.prompt, x.tried...)
	if errors.Is(err, router.ErrNoTarget) && len(x.tried) > 0 {
		x.tried = nil
		l, err = x.policy.state.router.Route(ctx, x.prompt)
	}
	x.pool = nil
	if err != nil {
		return nil
	}
	t := l.Decision().Target
	x.lease, x.tried = l, append(x.tried, t.ID)
	return t.Ref.(*reverseproxy.Upstream)
}

// transport is reverse_proxy's, and sees how each attempt ends. It embeds the one
// it stands for since Caddy asks that for more than RoundTrip.
type transport struct {
	*reverseproxy.HTTPTransport
}

// RoundTrip sends one attempt. It holds a good reply back until its first token is
// there, so that Caddy can still send the request elsewhere while the prompt waits
// or is in prefill, and if an error comes in place of the answer: engines send a
// stream's header at once.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if ok && x.broken != nil {
		return x.blameClient(req)
	}
	resp, err := t.HTTPTransport.RoundTrip(req)
	if !ok || x.lease == nil { // a health check
		return resp, err
	}
	if err != nil {
		if x.rest != nil && x.rest.failed() != nil {
			x.broken = x.rest.failed()
			x.lease.Done(router.Outcome{Stage: router.Canceled})
			return x.blameClient(req)
		}
		x.lease.Done(router.Outcome{Err: err})
		return nil, err
	}
	if resp.StatusCode < 100 { // net/http would panic
		resp.Body.Close()
		err := fmt.Errorf("the upstream's status is %03d", resp.StatusCode)
		x.lease.Done(router.Outcome{Err: err})
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		x.lease.FirstToken() // a tunnel: the end of the request's context settles it
		return resp, nil
	}
	r := &reply{lease: x.lease, status: resp.StatusCode, header: resp.Header}
	r.text = prompt.ReplyTo(req.URL.Path, x.prompt)
	switch o := r.text.Hold(resp); {
	case o.Status >= 400 && resp.StatusCode >= 400: // Caddy's retry_match decides
		x.lease.Done(o)
		return resp, nil
	case o.Retryable(): // an error, or nothing, before the first token
		resp.Body.Close()
		x.lease.Done(o)
		return nil, o.Err
	}
	x.lease.FirstToken()
	r.ReadCloser, resp.Body = resp.Body, r
	return resp, nil
}

// blameClient ends a request with a body that broke off. As an upstream's
// failure, Caddy would send it again and mark one upstream after the other as
// failed.
func (x *exchange) blameClient(req *http.Request) (*http.Response, error) {
	status := 0
	var handler caddyhttp.HandlerError
	var tooLarge *http.MaxBytesError
	if errors.As(x.broken, &handler) {
		status = handler.StatusCode // a handler before this one limits the body
	} else if errors.As(x.broken, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	if status < 400 || status > 599 {
		return nil, fmt.Errorf("the client's body broke off: %w: %w", x.broken, context.Canceled)
	}
	header := make(http.Header)
	if status == http.StatusUnsupportedMediaType {
		header.Set("Accept-Encoding", contentcoding.Supported())
	}
	return &http.Response{
		StatusCode: status,
		Status:     strconv.Itoa(status) + " " + http.StatusText(status),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     header,
		Body:       http.NoBody,
		Request:    req,
	}, nil
}

// reply is a reply's body. Its end settles the lease. A panic between does so
// too: the server ends the request's context.
type reply struct {
	io.ReadCloser
	lease  *router.Lease
	status int
	header http.Header
	text   prompt.Reply // is cached too, and begins the next turn
	ended  bool         // Read has settled the lease
}

func (r *reply) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if n > 0 {
		r.lease.Made(r.text.Made()...) // the client may use an id as soon as it has it
	}
	if err != nil {
		r.ended = true
		r.lease.Done(r.text.Outcome(r.status, r.header))
	}
	return n, err
}

func (r *reply) Close() error {
	if !r.ended {
		o := r.text.Outcome(r.status, r.header)
		o.Stage = router.Canceled
		r.lease.Done(o)
	}
	return r.ReadCloser.Close()
}

// unread is a body that is not known as a whole. It can be sent again as long as no
// attempt has read from it, so closing it does nothing until then.
type unread struct {
	io.Reader
	body    io.Closer
	touched atomic.Bool
	closed  atomic.Bool
	err     atomic.Pointer[error]
}

func (u *unread) Read(p []byte) (int, error) {
	u.touched.Store(true)
	n, err := u.Reader.Read(p)
	if err != nil && err != io.EOF && !u.closed.Load() {
		u.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// failed returns the error of the client's body, nil if it did not break off.
func (u *unread) failed() error {
	if err := u.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (u *unread) Close() error {
	if !u.touched.Load() {
		return nil
	}
	u.closed.Store(true)
	return u.body.Close()
}

// budget is the memory for bodies, in bytes.
type budget struct{ free atomic.Int64 }

// take reports whether n bytes could be taken; the caller adds them to free again.
func (b *budget) take(n int64) bool {
	if b.free.Add(-n) >= 0 {
		return true
	}
	b.free.Add(n)
	return false
}
