package router

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lease is one request in flight on one target. It holds the counter it raised,
// not a name for it. Every ending settles it exactly once: Done, Retry, the end
// of the ctx it was routed with, or a panic inside Do; later calls do nothing, and
// return when the lease is settled. No length of time settles it. Its methods are
// safe for concurrent use, but a strategy's Record and a Flight do not call them.
// The methods of a nil or zero Lease do nothing.
type Lease struct {
	router   *Router
	ctx      context.Context
	decision Decision
	flight   Flight
	attempt  attempt
	prepared any        // of a Preparer, until it picks
	held     [][]string // targets with the state of Prompt.Must, until one is picked
	sent     bool       // Sent was recorded
	counted  time.Time  // when the target was counted; zero if nobody asks (Trace.Timed)
	eligible []string   // targets that were not ruled out, if some were and none could be picked

	mu      sync.Mutex // serialises Record for this decision
	unwatch func() bool
	first   bool      // the first token was seen
	token   time.Time // when FirstToken was called; zero if nobody asks, or it was not
	settled bool
	outcome Outcome // once settled
	expired bool    // settled by the end of ctx, because the attempt timed out
	retried bool    // Retry was called
}

// attempt is which of a request's attempts a lease is for.
type attempt struct {
	n        int           // 1 for the first
	wait     time.Duration // of a further one, for a target; Options.Wait is for the first
	exclude  []string      // targets that were tried before, or are not wanted
	lacked   bool          // one of those before was Lacking
	inDo     bool          // Do settles it
	assigned bool          // Assign chose the target
	since    time.Time     // when the request entered the Queue first; zero: it did not
	began    time.Time     // when the request's first attempt was asked for; zero if nobody asks (Trace.Timed)
}

// zero reports whether l is nil or was not returned by a Router. Its methods do
// nothing then.
func (l *Lease) zero() bool { return l == nil || l.router == nil }

// open lets the fleet choose with pick, which goes through sending, and count the
// choice. A lease that was not opened is not used.
func (l *Lease) open(pick func([]Target) (Decision, error)) (*Lease, error) {
	if err := context.Cause(l.ctx); err != nil {
		return nil, err
	}
	trace := &l.router.opts.Trace
	var start time.Time
	if trace.Routed != nil || trace.Timed != nil {
		start = time.Now()
	}
	if trace.Timed != nil && l.attempt.began.IsZero() {
		l.attempt.began = start
	}
	d, flight, waited, err := l.chooseOrWait(pick)
	if err != nil {
		if trace.NoTarget != nil {
			trace.NoTarget(l.ctx, l.decision.Prompt, err)
		}
		if gone := context.Cause(l.ctx); waited > 0 && gone != nil {
			err = gone
		}
		return nil, err
	}
	l.decision, l.flight = d, flight
	if trace.Routed != nil || trace.Timed != nil {
		l.counted = time.Now()
	}
	if trace.Routed != nil {
		l.guard(func() {
			took := l.counted.Sub(start) - waited
			trace.Routed(l.ctx, RouteInfo{Decision: d, Attempt: l.attempt.n, Took: took, Waited: waited})
		})
	}
	l.watch()
	return l, nil
}

// choose is the fleet's Choose. If the fleet does not count the target that was
// picked, nothing was sent after all.
func (l *Lease) choose(pick func([]Target) (Decision, error)) (d Decision, f Flight, err error) {
	if !l.attempt.assigned {
		l.held = l.router.holding(l.decision.Prompt)
	}
	if p := l.router.preparer; p != nil && !l.attempt.assigned {
		l.prepared = p.Prepare(l.ctx, l.decision.Prompt)
	}
	err = errNotCounted
	defer func() { // deferred: the fleet is not ours, and may panic
		l.prepared, l.held = nil, nil // also if nothing was picked
		if err != nil && l.sent {
			l.router.strategy.Record(l.decision, Outcome{Stage: Failed, Err: err})
		}
	}()
	l.eligible = nil
	d, f, e := l.router.choose(l.ctx, l.decision.Prompt, pick)
	if e != nil {
		e = l.retryAfter(e)
	}
	if e == nil && f == nil {
		e = errNotCounted
	}
	err = e
	return d, f, err
}

var errNotCounted = errors.New("router: the fleet did not count the request")

// sending records Sent for the target that was picked, in the same step.
func (l *Lease) sending(d Decision, err error) (Decision, error) {
	if err != nil {
		return Decision{}, err
	}
	d.Prompt = l.decision.Prompt // Retry routes it, whatever the strategy left in d
	if d.Length == 0 {
		d.Length, d.Unit = d.Prompt.Length()
	}
	l.router.strategy.Record(d, Outcome{Stage: Sent})
	l.decision, l.sent = d, true
	return d, nil
}

// guard calls f and settles the lease without blame if f does not return.
func (l *Lease) guard(f func()) {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: both go on by themselves
			l.settle(Outcome{Stage: Canceled, Err: errNoReturn})
		}
	}()
	f()
	returned = true
}

var errNoReturn = errors.New("router: send, or a Trace hook, did not return")

// Decision returns the choice and its reason; the zero Decision of a lease that is
// nil or zero.
func (l *Lease) Decision() Decision {
	if l.zero() {
		return Decision{}
	}
	return l.decision
}

// Attempt returns how many targets this request has been leased to, this one
// included: 1 for a lease that Route returned, 0 if the lease is nil or zero.
func (l *Lease) Attempt() int {
	if l.zero() {
		return 0
	}
	return l.attempt.n
}

// FirstToken reports that the first token of the reply was seen: the target's
// prefill is over and the request is not sent again. Calls after the first, or
// after the lease was settled, do nothing.
func (l *Lease) FirstToken() {
	if l.zero() || !l.firstToken() {
		return
	}
	l.router.freed()
	if f := l.router.opts.Trace.FirstToken; f != nil {
		f(l.ctx, l.decision)
	}
	l.timed(Outcome{Stage: FirstToken})
}

// PrefillElsewhere reports that another target computes the KV cache of the prompt, so
// that this one has nothing to prefill: the request does not count in its Load.Prefill.
// If elsewhere is false it counts there again. It is no first token: the request may still be sent to
// another target. It does nothing if the fleet's Flight is no PrefillFlight, or after FirstToken or the end.
func (l *Lease) PrefillElsewhere(elsewhere bool) {
	if l.zero() {
		return
	}
	f, ok := l.flight.(PrefillFlight)
	if !ok {
		return
	}
	l.mu.Lock()
	live := !l.settled && !l.first
	if live {
		f.PrefillElsewhere(elsewhere)
	}
	l.mu.Unlock()
	if live {
		l.router.freed()
	}
}

func (l *Lease) firstToken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.first {
		return false
	}
	l.first = true
	if l.router.opts.Trace.Timed != nil {
		l.token = time.Now()
	}
	l.flight.FirstToken()
	l.router.strategy.Record(l.decision, Outcome{Stage: FirstToken})
	l.served()
	return true
}

// Done settles the lease with the request's outcome. A Stage that is not final is
// derived, as Outcome.Settled has it. Calls after the first do nothing.
func (l *Lease) Done(o Outcome) {
	if !l.zero() {
		l.settle(o)
	}
}

// settle settles the lease once and reports whether it was this call.
func (l *Lease) settle(o Outcome) bool { return l.settleBy(o, false) }

// settleBy is settle, by the end of the lease's ctx if ctxDone is set.
func (l *Lease) settleBy(o Outcome, ctxDone bool) bool {
	first, ok := l.end(&o, ctxDone)
	if !ok {
		return false
	}
	if l.unwatch != nil {
		l.unwatch()
	}
	l.router.freed()
	trace := &l.router.opts.Trace
	if first && trace.FirstToken != nil {
		trace.FirstToken(l.ctx, l.decision)
	}
	if first {
		l.timed(Outcome{Stage: FirstToken})
	}
	if trace.Done != nil {
		trace.Done(l.ctx, l.decision, o)
	}
	l.timed(o)
	return true
}

// end completes o and reports it to the fleet and the strategy, unless the lease
// was settled before, or Do is to settle it: then ok is false. first says that o
// brought the first token.
func (l *Lease) end(o *Outcome, ctxDone bool) (first, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || ctxDone && l.attempt.inDo && l.first {
		return false, false
	}
	l.expired = ctxDone && errors.Is(o.Err, ErrAttemptTimeout)
	ended := context.Cause(l.ctx)
	if l.attempt.inDo && l.first && o.Err == nil {
		ended = nil // the client may have closed as soon as it had all of the reply
	}
	if o.SawToken() { // and did not say so before
		first, l.first = !l.first, true
	}
	if l.first {
		o.NotSent = false
	}
	*o = o.settled(ended)
	l.settled, l.outcome = true, *o
	l.bind(o.Made)
	if first || o.Stage == Finished {
		l.served()
	}
	// The counters first: they are right whatever the strategy does.
	if first {
		l.flight.FirstToken()
	}
	l.flight.Done(*o)
	if first {
		l.router.strategy.Record(l.decision, Outcome{Stage: FirstToken})
	}
	l.router.strategy.Record(l.decision, *o)
	return first, true
}

// watch settles the lease when its ctx is done.
func (l *Lease) watch() {
	if l.ctx.Done() == nil {
		return
	}
	l.mu.Lock() // the end of ctx waits until unwatch is there
	defer l.mu.Unlock()
	l.unwatch = context.AfterFunc(l.ctx, func() {
		l.settleBy(Outcome{Err: context.Cause(l.ctx)}, true)
	})
}
