package disagg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
)

// request is one request of Do with all its attempts. One goroutine at a time uses it.
type request struct {
	s *Splitter
	Request
	prompt    router.Prompt
	send      func(context.Context, *Attempt) (router.Outcome, error)
	supported bool

	alone  Skip     // why every further decode target computes the prompt itself; "": it need not
	failed []string // prefill targets that failed

	from   router.Decision // the prefill target that has computed the prompt; zero: none
	params []byte          // of its reply; nil: none
	since  time.Time       // when params came
	used   bool            // they were sent to a decode target
	held   bool            // its blocks wait for a decode target
	again  int             // prompts that were computed once more

	elsewhere bool // another target has computed the prompt for the last attempt
}

// maxAgain bounds the prompts of one request that are computed once more, because their blocks were
// gone, and maxPairs the prefill targets that one decode target is paired with.
const (
	maxAgain   = 2
	maxPairs   = 3
	maxSidecar = 2 // maxPairs where either of them may have failed
)

// attempt makes one attempt at a decode target.
func (q *request) attempt(ctx context.Context, l *router.Lease) (router.Outcome, error) {
	if why := q.skip(l.Decision()); why != "" {
		return q.itself(ctx, l, why)
	}
	l.PrefillElsewhere(true)
	switch q.s.cfg.Protocol {
	case SGLang:
		return q.both(ctx, l)
	case Sidecar:
		return q.sidecar(ctx, l)
	}
	return q.sequential(ctx, l)
}

// itself lets the decode target compute the prompt.
func (q *request) itself(ctx context.Context, l *router.Lease, why Skip) (router.Outcome, error) {
	q.s.skipped(ctx, l.Decision(), why)
	return q.do(ctx, l, q.Header, q.Body, false, nil)
}

// fallback goes on after no prefill target served the request.
func (q *request) fallback(ctx context.Context, l *router.Lease, err error) (router.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return router.Outcome{Err: cause}, cause
	}
	if q.s.cfg.Strict {
		var refusal *PrefillError
		if errors.As(err, &refusal) { // no other would serve it
			return router.Outcome{Stage: router.Failed, Status: refusal.Status}, refusal
		}
		return router.Outcome{NotSent: true}, fmt.Errorf("%w: %w", ErrPrefill, err)
	}
	why := SkipFailed
	if len(q.failed) == 0 && errors.Is(err, router.ErrNoTarget) {
		why = SkipNoTarget
	} else {
		q.alone = why
	}
	l.PrefillElsewhere(false)
	return q.itself(ctx, l, why)
}

// sequential has the prompt computed first, unless it was.
func (q *request) sequential(ctx context.Context, l *router.Lease) (router.Outcome, error) {
	for {
		if !q.handed(l.Decision()) {
			if err := q.prefill(ctx, l); err != nil {
				return q.fallback(ctx, l, err)
			}
		} else if q.used {
			q.s.n.reused.Add(1)
		}
		body := q.Body
		if q.s.cfg.Protocol == NIXL {
			if q.params == nil {
				q.held = false
				l.PrefillElsewhere(false)
				return q.itself(ctx, l, SkipNoParams)
			}
			var err error
			if body, err = WithParams(make([]byte, 0, len(q.Body)+len(q.params)+32), q.Body, q.params); err != nil {
				return router.Outcome{Stage: router.Failed, Status: http.StatusBadRequest}, err
			}
		}
		q.used = true
		o, err := q.do(ctx, l, q.Header, body, true, nil)
		served := o.SawToken() || o.Stage == router.Finished
		q.held = q.held && !served
		if q.s.cfg.Protocol != NIXL || served || unsent(o) || context.Cause(ctx) != nil {
			return o, err
		}
		// The engine may have fetched the blocks, or given them up, and the prefill engine may have other
		// prompts in them now. No engine would notice.
		q.strand(ctx)
		q.params, q.held = nil, false
		if o.Status != http.StatusInternalServerError || q.again == maxAgain {
			return o, err
		}
		q.again++ // the engine could not fetch the blocks, which may not be its fault
	}
}

// unsent reports whether a request that ended so has not reached the target.
func unsent(o router.Outcome) bool {
	var op *net.OpError
	return o.NotSent || errors.As(o.Err, &op) && op.Op == "dial"
}

// handed reports whether a decode target can have what was computed for another one.
func (q *request) handed(d router.Decision) bool {
	t, place := q.from.Target, q.s.cfg.Place
	if t.ID == "" || t.ID == d.Target.ID || !place(t).Fits(place(d.Target)) {
		return false
	}
	if q.s.cfg.Protocol == Stored {
		return true
	}
	if q.params != nil && time.Since(q.since) >= q.s.cfg.PinnedFor/3*2 {
		q.held = false
		q.s.n.expired.Add(1)
		if f := q.s.cfg.Trace.Expired; f != nil {
			f(q.from)
		}
		q.params = nil
	}
	return q.params != nil
}

// prefillRouter returns the Router over the targets that can compute the prompt for d.
func (q *request) prefillRouter(d router.Decision) *router.Router {
	place, at := q.s.cfg.Place, q.s.cfg.Place(d.Target)
	return q.s.cfg.Prefill.Among(func(t router.Target) bool {
		return t.ID != d.Target.ID && place(t).Fits(at)
	})
}

// prefill has the prompt computed for the decode target of l, first at the target that has computed it before.
func (q *request) prefill(ctx context.Context, l *router.Lease) error {
	var make1 func(dst, body []byte) ([]byte, error) = NIXLPrefill
	if q.s.cfg.Protocol == Stored {
		make1 = StoredPrefill
	}
	body, err := make1(make([]byte, 0, len(q.Body)+256), q.Body)
	if err != nil {
		return err
	}
	r := q.prefillRouter(l.Decision())
	var pl *router.Lease
	defer func() { // a panic, of the Transport for instance: it goes on by itself
		pl.Done(router.Outcome{Stage: router.Canceled})
	}()
	if before := q.from.Target.ID; before != "" {
		pl, _ = r.Among(func(t router.Target) bool { return t.ID == before }).Route(router.Aside(ctx), q.prompt)
	}
	alike := pl != nil
	if pl == nil {
		pl, err = r.Route(router.Aside(ctx), q.prompt, q.failed...)
	}
	for pl != nil {
		start := time.Now()
		reply, o := q.post(ctx, pl, body)
		d := pl.Decision()
		if o.Stage == router.Finished {
			pl.Done(o)
			if q.from.Target.ID != "" {
				q.s.n.again.Add(1)
			}
			q.from, q.params, q.since, q.used, q.held = d, Params(reply.Body), time.Now(), false, true
			q.s.n.split.Add(1)
			if f := q.s.cfg.Trace.Prefilled; f != nil {
				f(ctx, d, l.Decision(), q.since.Sub(start))
			}
			return nil
		}
		q.fail(ctx, d, o)
		if reply.refuses() {
			pl.Done(o)
			return reply
		}
		var next *router.Lease
		if next, err = pl.Retry(router.Aside(ctx), o); next == nil && alike && context.Cause(ctx) == nil {
			alike = false
			next, err = r.Route(router.Aside(ctx), q.prompt, q.failed...)
		}
		pl = next
	}
	return err
}

// fail counts a failed attempt at prefill.
func (q *request) fail(ctx context.Context, d router.Decision, o router.Outcome) {
	if o.Stage == router.Canceled {
		return
	}
	q.failed = append(q.failed, d.Target.ID)
	q.s.n.failed.Add(1)
	if f := q.s.cfg.Trace.PrefillFailed; f != nil {
		f(ctx, d, o)
	}
}

// do sends the request to the decode target and returns how that ended; elsewhere says that another target computes the
// prompt. begun, if it is not nil, is called with the first token.
func (q *request) do(ctx context.Context, l *router.Lease, h http.Header, body []byte, elsewhere bool,
	begun func()) (router.Outcome, error) {
	const waits, has, silent = 0, 1, 2
	var state atomic.Int32
	q.elsewhere = elsewhere
	sent, cancel := context.WithCancelCause(ctx)
	begins := false // and the reply goes on
	defer func() {
		if !begins {
			cancel(nil)
		}
	}()
	if bound := q.s.cfg.DecodeTimeout; elsewhere && bound >= 0 {
		timer := time.AfterFunc(bound, func() {
			if state.CompareAndSwap(waits, silent) {
				cancel(errSilent)
			}
		})
		defer timer.Stop()
	}
	a := &Attempt{Lease: l, Header: h, Body: body}
	a.begun = func() bool {
		if state.CompareAndSwap(waits, has) {
			l.FirstToken()
			if begun != nil {
				begun()
			}
		}
		return state.Load() == has
	}
	o, err := q.send(sent, a)
	if err != nil {
		o.Err = err
	}
	begins = o.Stage == router.FirstToken && o.Err == nil
	over := o.Err != nil || o.Stage == router.Canceled
	if over && state.Load() == silent && !o.SawToken() && context.Cause(ctx) == nil {
		q.s.n.silent.Add(1)
		return router.Outcome{Stage: router.Failed, Err: errSilent}, errSilent
	}
	if state.Load() == has && !o.SawToken() && o.Stage == 0 && o.Err != nil {
		o.Stage = router.FirstToken // Do derives the final one
	}
	if o.Stage == 0 {
		o = q.settled(ctx, o)
	}
	if elsewhere { // they are the other one's
		o.CachedTokens, o.CachedReported = 0, false
	}
	return o, o.Err
}

// settled returns o with the Stage that Router.Do would derive.
func (q *request) settled(ctx context.Context, o router.Outcome) router.Outcome {
	if context.Cause(ctx) != nil {
		return o // Do knows best
	}
	return o.Settled()
}

// strand notes that blocks were computed and not fetched.
func (q *request) strand(ctx context.Context) {
	if !q.held || q.s.cfg.Protocol != NIXL {
		return
	}
	q.s.n.stranded.Add(1)
	if f := q.s.cfg.Trace.Stranded; f != nil {
		f(ctx, q.from)
	}
}
