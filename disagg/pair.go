package disagg

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/warmroute/router"
)

// sidecar sends to a decode target with a sidecar that has the prompt computed. A reply of 5xx may be the sidecar's, of
// a prefill target that failed: the decode target is asked with another one, and then alone.
func (q *request) sidecar(ctx context.Context, l *router.Lease) (router.Outcome, error) {
	for n := 1; ; n++ {
		o, err, more := q.sidecarWith(ctx, l)
		if !more || o.Status < 500 || context.Cause(ctx) != nil {
			return o, err
		}
		if n == maxSidecar {
			return q.fallback(ctx, l, &router.StatusError{Status: o.Status})
		}
	}
}

// sidecarWith is sidecar with one prefill target. more says that there may be others.
func (q *request) sidecarWith(ctx context.Context, l *router.Lease) (o router.Outcome, err error, more bool) {
	pl, err := q.prefillRouter(l.Decision()).Route(router.Aside(ctx), q.prompt, q.failed...)
	if err != nil {
		o, err = q.fallback(ctx, l, err)
		return o, err, false
	}
	defer pl.Done(router.Outcome{NotSent: true}) // unless it was settled
	base, err := q.s.cfg.URL(pl.Decision().Target)
	if err != nil {
		o, err = q.fallback(ctx, l, err)
		return o, err, false
	}
	h := q.Header.Clone()
	h.Set(HeaderPrefiller, hostPort(base))
	q.s.n.split.Add(1)
	computed := func() { pl.Done(router.Outcome{Stage: router.Finished}) }
	o, err = q.do(ctx, l, h, q.Body, true, computed)
	if o.SawToken() || o.Stage == router.Finished {
		computed()
		return o, err, false
	}
	q.failed = append(q.failed, pl.Decision().Target.ID) // it may be to blame
	return o, err, true
}

// hostPort returns the host and the port of u.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// newPair returns a number for SGLang that no other request has.
func newPair() int64 { return rand.Int64() }

const bootstrapPort = 8998 // SGLang's --disaggregation-bootstrap-port

// both sends to both targets at once, and gives both up if prefill fails.
func (q *request) both(ctx context.Context, l *router.Lease) (router.Outcome, error) {
	for n := 1; ; n++ {
		o, err, failed := q.pair(ctx, l)
		if failed == nil {
			return o, err
		}
		if n == maxPairs || context.Cause(ctx) != nil || errors.As(failed, new(*PrefillError)) {
			return q.fallback(ctx, l, failed)
		}
	}
}

// pair is both with one prefill target. failed says that it was that one which failed.
func (q *request) pair(ctx context.Context, l *router.Lease) (o router.Outcome, err, failed error) {
	pl, err := q.prefillRouter(l.Decision()).Route(router.Aside(ctx), q.prompt, q.failed...)
	if err != nil {
		return o, nil, err
	}
	defer pl.Done(router.Outcome{NotSent: true}) // unless it was settled
	t := pl.Decision().Target
	base, err := q.s.cfg.URL(t)
	if err != nil {
		return o, nil, err
	}
	port := q.s.cfg.Place(t).BootstrapPort
	if port == 0 {
		port = bootstrapPort
	}
	body, err := WithBootstrap(make([]byte, 0, len(q.Body)+128), q.Body, base.Hostname(), port, newPair())
	if err != nil {
		return router.Outcome{Stage: router.Failed, Status: http.StatusBadRequest}, err, nil
	}
	q.s.n.split.Add(1)
	decoding, giveUp := context.WithCancelCause(ctx)
	defer func() {
		if o.Stage != router.FirstToken { // the reply goes on
			giveUp(nil)
		}
	}()
	prefilling, stop := context.WithCancelCause(ctx)
	var reply *PrefillError
	var po router.Outcome
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		if reply, po = q.post(prefilling, pl, body); po.Stage == router.Failed {
			giveUp(errPrefillGone) // it would wait for the blocks for ever
		}
		pl.Done(po)
	}()
	defer func() {
		stop(errServed)
		<-done
	}()
	o, err = q.do(decoding, l, q.Header, body, true, func() { pl.FirstToken() })
	if o.SawToken() || o.Stage == router.Finished {
		if f := q.s.cfg.Trace.Prefilled; f != nil {
			f(ctx, pl.Decision(), l.Decision(), time.Since(start))
		}
		stop(errServed)
	} else {
		stop(context.Canceled)
	}
	<-done
	if po.Stage != router.Failed || o.SawToken() || o.Stage == router.Finished {
		return o, err, nil
	}
	q.fail(ctx, pl.Decision(), po)
	if reply.refuses() {
		return o, nil, reply
	}
	if failed = po.Err; failed == nil {
		failed = &router.StatusError{Status: po.Status}
	}
	return o, nil, failed
}
