package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

var (
	errHeaderTimeout = errors.New("the target did not begin to reply in time")
	errIdleTimeout   = errors.New("the target stopped in its reply")
)

// exchange is one client's request with all the attempts to get a reply to it.
type exchange struct {
	h       *Handler
	client  *client
	r       *http.Request
	in      *reqbody.Body
	header  http.Header // for the targets
	match   config.Match
	names   []reqbody.Span // the places of the model's name in the body, if it may have to be another
	where   namePlace      // of that name
	lease   *router.Lease
	beat    *heartbeat
	tokens  tokenUse
	prompts *membudget.Hold // the bytes of the prompt
	split   *disagg.Split   // nil: the target does it all
	limit   time.Duration   // of an attempt until its reply begins; 0: none
}

// edit returns the edit with which the body has t's name for the model.
func (x *exchange) edit(t router.Target) edit {
	name := x.match.Rewrite(t)
	if x.match.Requested == "" || name == x.match.Requested {
		return edit{}
	}
	if x.names == nil && x.where == inJSON { // the file has changed since the request came
		x.names, _ = modelSpans(x.in.Bytes())
	}
	switch x.where {
	case inForm:
		return edit{at: x.names, value: []byte(name)}
	case inPairs:
		return edit{at: x.names, value: []byte(url.QueryEscape(name))}
	case inQuery:
		return edit{}
	}
	return rename(x.names, name)
}

// attempt is one request to a target. The first bytes of the reply, which meter has seen if it is not nil, are in
// buf.read[:n].
type attempt struct {
	cancel context.CancelCauseFunc
	ctx    context.Context
	timer  *time.Timer
	resp   *http.Response
	buf    *buffer
	n      int
	end    error // of the last Read
	meter  *meter
}

// buffer is the scratch of passing a reply on.
type buffer struct {
	read [16 << 10]byte
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// run asks one target after the other until one begins to reply, and passes that
// reply on. Nothing is sent again once the first token of a reply has come.
func (x *exchange) run() {
	// A panic below, or a return that forgot, must not leave the request counted.
	defer func() { x.lease.Done(router.Outcome{Stage: router.Canceled}) }()
	x.beat = x.beats()
	defer func() { x.beat.stop() }()
	if x.split != nil {
		defer func() { x.split.End(x.r.Context()) }()
	}
	for {
		a, o := x.attempt()
		if !again(o) {
			x.reply(a)
			return
		}
		if x.beat.committed() {
			x.lost(a, o)
			return
		}
		next, err := x.lease.Retry(x.r.Context(), o)
		if next == nil && x.beat.stop() {
			x.lost(a, o)
			return
		}
		if next == nil {
			x.giveUp(a, o, err)
			return
		}
		x.beat.moves(next)
		x.h.cfg.Log.Info("sent again", "path", x.r.URL.Path, "target", x.lease.Decision().Target.ID,
			"status", o.Status, "err", o.Err, "to", next.Decision().Target.ID)
		if a.resp != nil {
			a.drain()
		}
		a.close()
		x.lease = next
	}
}

// again reports whether an attempt with outcome o failed as a target fails. An o
// without a Stage is a reply to be passed on.
func again(o router.Outcome) bool { return o.Stage != 0 }

func (x *exchange) newAttempt(ctx context.Context) *attempt {
	a := &attempt{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(x.h.cfg.HeaderTimeout, func() { a.cancel(errHeaderTimeout) })
	return a
}

// ask sends the request, with body if that is not nil, to the lease's target and waits for the first token of
// the reply, or its first byte if it is not one to a prompt. The Outcome has a Stage if there is no reply to pass on,
// or one that another target may better; in the latter case a.resp is set.
func (x *exchange) ask(ctx context.Context, header http.Header, body []byte) (*attempt, router.Outcome) {
	a := x.newAttempt(ctx)
	if x.limit > 0 {
		defer time.AfterFunc(x.limit, func() { a.cancel(router.ErrAttemptTimeout) }).Stop()
	}

	target := x.lease.Decision().Target
	ref, ok := target.Ref.(*config.Target)
	if !ok {
		return a, a.failed(errors.New("the target has no address"))
	}
	open, size := x.bodyFor(target, body)
	u := x.r.URL
	if name := x.match.Rewrite(target); x.where == inQuery && x.match.Requested != "" && name != x.match.Requested {
		u = renameQuery(u, name)
	}
	if hasSecret(ref.Header) {
		u = withoutSecrets(u)
	}
	resp, err := x.roundTrip(a, func(ctx context.Context) *http.Request {
		return (&http.Request{
			Method:        x.r.Method,
			URL:           resolve(ref.Base, u),
			Host:          ref.Base.Host,
			Proto:         "HTTP/1.1",
			ProtoMajor:    1,
			ProtoMinor:    1,
			Header:        withHeader(header, ref.Header),
			Body:          open(),
			GetBody:       func() (io.ReadCloser, error) { return open(), nil },
			ContentLength: int64(size),
		}).WithContext(ctx)
	})
	if err != nil {
		return a, a.failed(err)
	}
	a.resp = resp
	a.timer.Reset(x.h.cfg.IdleTimeout)
	if resp.StatusCode >= 300 || resp.StatusCode < 100 {
		none := prompt.ReplyTo(x.r.URL.Path, x.lease.Decision().Prompt)
		if o := none.Outcome(resp.StatusCode, resp.Header); o.Retryable() {
			o.Stage = router.Failed
			return a, o
		}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // nobody asked for it
		a.closeBody()
		return a, a.failed(errors.New("the target switched protocols"))
	}
	a.buf = buffers.Get().(*buffer)
	a.meter = x.newMeter(resp)
	return a, x.hold(a)
}

// hold reads the reply until it has begun, is over, or is an error. Only then the Outcome has a Stage.
func (x *exchange) hold(a *attempt) router.Outcome {
	r := a.meter.reply
	if r != nil {
		r.Opaque = prompt.APIOf(x.r.URL.Path) == ""
	}
	var first time.Time
	for a.end == nil && a.n < len(a.buf.read) {
		n, err := a.resp.Body.Read(a.buf.read[a.n:])
		a.meter.observe(a.buf.read[a.n : a.n+n])
		a.n, a.end = a.n+n, err
		if n == 0 {
			continue
		}
		if r == nil || !r.Pending() {
			break
		}
		if now := time.Now(); first.IsZero() {
			first = now
		} else if now.Sub(first) >= prompt.HoldFor {
			break
		}
		a.timer.Reset(x.h.cfg.IdleTimeout)
	}
	begun := a.n > 0 && (r == nil || r.Begun())
	if a.end != nil && a.end != io.EOF && !begun {
		a.closeBody()
		return a.failed(x.classed(a.end))
	}
	if r != nil && !begun && (a.end == io.EOF || r.Wrong()) {
		if o := r.Outcome(a.resp.StatusCode, a.resp.Header); o.Err != nil && o.Retryable() {
			return o
		}
	}
	return router.Outcome{}
}

// failed returns the outcome of an attempt that got no reply because of err.
func (a *attempt) failed(err error) router.Outcome {
	if c := cause(a.ctx); c != nil {
		err = c
		if !slow(c) {
			return router.Outcome{Stage: router.Canceled, Err: err}
		}
	}
	return router.Outcome{Stage: router.Failed, Err: err}
}

// slow reports whether err is one of a target that took too long.
func slow(err error) bool {
	return errors.Is(err, errHeaderTimeout) || errors.Is(err, errIdleTimeout) || errors.Is(err, router.ErrAttemptTimeout)
}

// giveUp ends a request after its last attempt failed with o. The target's own answer is
// passed on if there is one.
func (x *exchange) giveUp(a *attempt, o router.Outcome, err error) {
	switch {
	case x.r.Context().Err() != nil:
		a.close()
		return
	case a.resp != nil:
		x.h.cfg.Log.Warn("failed", "path", x.r.URL.Path, "target", x.lease.Decision().Target.ID, "status", o.Status)
		x.reply(a)
		return
	}
	a.close()
	if x.refusal(err) {
		return
	}
	x.h.cfg.Log.Warn("failed", "path", x.r.URL.Path, "target", x.lease.Decision().Target.ID, "err", err)
	tellChoice(x.client.w.Header(), x.lease, x.h.cfg.Silent)
	x.client.arm()
	if slow(o.Err) {
		refuse(x.client.w, http.StatusGatewayTimeout, 0, "the engine did not answer in time")
		return
	}
	refuse(x.client.w, http.StatusBadGateway, 0, "the engine could not be reached or broke off")
}

// drainBytes and drainTime bound the part that is read of an unused reply, so
// that its connection can be used again.
const (
	drainBytes = 32 << 10
	drainTime  = 100 * time.Millisecond
)

func (a *attempt) drain() {
	a.timer.Reset(drainTime)
	io.Copy(io.Discard, io.LimitReader(a.resp.Body, drainBytes))
}

func (a *attempt) closeBody() {
	if a.resp != nil {
		// That this may fail changes nothing: the reply is over for us.
		_ = a.resp.Body.Close()
		a.resp = nil
	}
}

// close ends the attempt, at the target too if it is still at work.
func (a *attempt) close() {
	a.timer.Stop()
	a.cancel(nil)
	a.closeBody()
	a.meter.close()
	if a.buf != nil {
		buffers.Put(a.buf)
		a.buf = nil
	}
}
