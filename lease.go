package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is one request in flight on one target. It holds the counter it raised,
// not a name for it. Every ending settles it exactly once: Done, Retry, the end
// of the ctx it was routed with, or a panic inside Do; what comes later does
// nothing, and returns when the lease is settled. No length of time settles it.
// Its methods are safe for concurrent use, but not to be called by what Done
// calls in the strategy and the fleet.
type Lease struct {
	router   *Router
	ctx      context.Context
	decision Decision
	flight   Flight
	exclude  []string // targets that Retry leaves out beside this one
	attempt  int      // 1 for the first
	sent     bool     // Sent was recorded

	mu      sync.Mutex // serialises Record for this decision
	unwatch func() bool
	first   bool // the first token was seen
	settled bool
	outcome Outcome // once settled
}

// open lets the fleet choose with pick, which goes through sending, and counts
// what was chosen. A lease that was not opened is not used.
func (l *Lease) open(pick func([]Target) (Decision, error)) (*Lease, error) {
	if err := context.Cause(l.ctx); err != nil {
		return nil, err
	}
	trace := &l.router.opts.Trace
	var start time.Time
	if trace.Routed != nil {
		start = time.Now()
	}
	d, flight, err := l.choose(pick)
	if err != nil {
		if trace.NoTarget != nil {
			trace.NoTarget(l.ctx, l.decision.Prompt, err)
		}
		return nil, err
	}
	l.decision, l.flight = d, flight
	if trace.Routed != nil {
		l.guard(func() {
			trace.Routed(l.ctx, RouteInfo{Decision: d, Attempt: l.attempt, Took: time.Since(start)})
		})
	}
	l.watch()
	return l, nil
}

// choose is the fleet's Choose. Where the fleet counts nothing of what was
// picked, nothing was sent after all.
func (l *Lease) choose(pick func([]Target) (Decision, error)) (d Decision, f Flight, err error) {
	err = errNotCounted
	defer func() { // deferred: the fleet is not ours, and may panic
		if err != nil && l.sent {
			l.router.strategy.Record(l.decision, Outcome{Stage: Failed, Err: err})
		}
	}()
	d, f, e := l.router.fleet.Choose(l.ctx, pick)
	if e == nil && f == nil {
		e = errNotCounted
	}
	err = e
	return d, f, err
}

var errNotCounted = errors.New("router: the fleet did not count the request")

// sending records Sent for what was picked, in the same step.
func (l *Lease) sending(d Decision, err error) (Decision, error) {
	if err != nil {
		return Decision{}, err
	}
	d.Prompt = l.decision.Prompt // what Retry routes, whatever the strategy left in it
	if d.Length == 0 {
		d.Length, d.Unit = d.Prompt.Length()
	}
	l.router.strategy.Record(d, Outcome{Stage: Sent})
	l.decision, l.sent = d, true
	return d, nil
}

// guard calls f and settles the lease without blame where f does not return.
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

// Decision returns what was chosen, and why.
func (l *Lease) Decision() Decision { return l.decision }

// Attempt returns how many targets this request has been leased to, this one
// included: 1 for a lease that Route returned.
func (l *Lease) Attempt() int { return l.attempt }

// FirstToken tells that the first token of the reply was seen: the target's
// prefill is over and the request is not sent again. Calls after the first, or
// after the lease was settled, do nothing.
func (l *Lease) FirstToken() {
	if l.firstToken() && l.router.opts.Trace.FirstToken != nil {
		l.router.opts.Trace.FirstToken(l.ctx, l.decision)
	}
}

func (l *Lease) firstToken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled || l.first {
		return false
	}
	l.first = true
	l.flight.FirstToken()
	l.router.strategy.Record(l.decision, Outcome{Stage: FirstToken})
	return true
}

// Done settles the lease with what became of the request. A Stage that is not
// final is derived, as Do says. Calls after the first do nothing.
func (l *Lease) Done(o Outcome) { l.settle(o) }

// settle settles the lease once and reports whether it was this call.
func (l *Lease) settle(o Outcome) bool {
	first, ok := l.end(&o)
	if !ok {
		return false
	}
	if l.unwatch != nil {
		l.unwatch()
	}
	trace := &l.router.opts.Trace
	if first && trace.FirstToken != nil {
		trace.FirstToken(l.ctx, l.decision)
	}
	if trace.Done != nil {
		trace.Done(l.ctx, l.decision, o)
	}
	return true
}

// end completes o and tells it to the fleet and the strategy, unless the lease
// was settled before: then ok is false. first says that o brought the first
// token.
func (l *Lease) end(o *Outcome) (first, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled {
		return false, false
	}
	if o.SawToken() { // and did not say so before
		first, l.first = !l.first, true
	}
	if l.first {
		o.NotSent = false
	}
	*o = o.settled(context.Cause(l.ctx))
	l.settled, l.outcome = true, *o
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
		l.settle(Outcome{Err: context.Cause(l.ctx)})
	})
}

// Retry settles the lease with o and, where another target might do better,
// waits for the backoff and leases one that was not tried yet, for the life of
// ctx. Otherwise it returns the last error, never a lease and an error both. A
// request is sent again only where it was this call that settled the lease, o,
// with its Stage derived, is Retryable, no first token was seen and
// Options.Attempts is not reached.
func (l *Lease) Retry(ctx context.Context, o Outcome) (*Lease, error) {
	next, err := l.retry(ctx, o)
	if next == nil && err == nil {
		err = errors.New("router: nothing to retry: the request finished")
	}
	return next, err
}

// retry is Retry, but for a request that finished both results are nil.
func (l *Lease) retry(ctx context.Context, o Outcome) (*Lease, error) {
	settled := l.settle(o)
	l.mu.Lock()
	o, first := l.outcome, l.first
	l.mu.Unlock()

	last := failure(l.ctx, o)
	if !settled || first || !o.Retryable() || l.attempt >= l.router.opts.Attempts {
		return nil, last
	}
	wait := l.router.opts.wait(l.attempt, o.RetryAfter)
	if f := l.router.opts.Trace.Retry; f != nil {
		f(ctx, RetryInfo{Decision: l.decision, Outcome: o, Attempt: l.attempt, Wait: wait})
	}
	if err := sleep(ctx, wait); err != nil {
		return nil, fmt.Errorf("%w (not sent again: %w)", last, err)
	}
	exclude := append(l.exclude, l.decision.Target.ID) // l.exclude is not used again
	next, err := l.router.lease(ctx, l.decision.Prompt, exclude, l.attempt+1)
	if err != nil {
		return nil, last
	}
	return next, nil
}

// failure returns the error that a settled request with outcome o ended with,
// nil where it finished without one.
func failure(ctx context.Context, o Outcome) error {
	switch {
	case o.Err != nil:
		return o.Err
	case o.Stage == Finished:
		return nil
	case o.Stage == Canceled:
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return context.Canceled
	}
	return &StatusError{Status: o.Status, RetryAfter: o.RetryAfter}
}

// StatusError is the error of a request that failed with an HTTP status and no
// other error. It is returned by pointer.
type StatusError struct {
	Status     int           // 0 where there was none
	RetryAfter time.Duration // what the target asked for; 0: nothing
}

// Error names the status.
func (e *StatusError) Error() string {
	if e.Status == 0 {
		return "router: the target failed"
	}
	return fmt.Sprintf("router: the target answered with status %d", e.Status)
}

// wait returns how long to wait after the given attempt.
func (o *Options) wait(attempt int, retryAfter time.Duration) time.Duration {
	var wait time.Duration
	if o.Backoff > 0 {
		b := o.Backoff
		for i := 1; i < attempt && b < o.MaxBackoff; i++ {
			if b > o.MaxBackoff/2 { // doubling might overflow
				b = o.MaxBackoff
			} else {
				b *= 2
			}
		}
		b = min(b, o.MaxBackoff)
		wait = b/2 + time.Duration(o.Rand()%uint64(b-b/2+1))
	}
	return max(wait, min(retryAfter, o.MaxRetryAfter))
}

// sleep waits for d or for ctx, and not at all where ctx cannot last that long.
func sleep(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	if t, ok := ctx.Deadline(); ok && time.Until(t) < d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
