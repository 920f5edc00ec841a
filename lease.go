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
// nothing. No length of time settles it. Its methods are safe for concurrent use.
type Lease struct {
	router   *Router
	ctx      context.Context
	decision Decision
	flight   Flight
	exclude  []string // targets that Retry leaves out beside this one
	attempt  int      // 1 for the first

	mu      sync.Mutex // serialises Record for this decision
	unwatch func() bool
	first   bool // the first token was seen
	settled bool
	retried bool
	outcome Outcome // once settled
}

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
	if l.settled {
		return false
	}
	return l.firstTokenLocked()
}

func (l *Lease) firstTokenLocked() bool {
	if l.first {
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
	unwatch, ok := l.settleLocked(&o)
	if !ok {
		return false
	}
	if unwatch != nil {
		unwatch()
	}
	if f := l.router.opts.Trace.Done; f != nil {
		f(l.ctx, l.decision, o)
	}
	return true
}

func (l *Lease) settleLocked(o *Outcome) (unwatch func() bool, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled {
		return nil, false
	}
	// Who saw a token and did not say so has still seen it.
	if o.Stage == FirstToken || o.OutputTokens > 0 || o.Reply != "" {
		l.firstTokenLocked()
	}
	if !o.Stage.Final() {
		switch {
		case l.ctx.Err() != nil:
			o.Stage = Canceled
		case o.Err != nil || o.Status >= 400:
			o.Stage = Failed
		default:
			o.Stage = Finished
		}
	}
	l.settled, l.outcome = true, *o
	l.flight.Done(*o)
	l.router.strategy.Record(l.decision, *o)
	return l.unwatch, true
}

// watch settles the lease when its ctx is done.
func (l *Lease) watch() {
	if l.ctx.Done() == nil {
		return
	}
	stop := context.AfterFunc(l.ctx, func() {
		l.settle(Outcome{Stage: Canceled, Err: context.Cause(l.ctx)})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwatch = stop
}

// Retry settles the lease with o and, where another target might do better,
// waits for the backoff and leases one that was not tried yet, for the life of
// ctx. Otherwise it returns the last error, never a lease and an error both. A
// request is sent again only where o, with its Stage derived, is Retryable, no
// first token was seen, Options.Attempts is not reached and this is the first
// Retry of this lease.
func (l *Lease) Retry(ctx context.Context, o Outcome) (*Lease, error) {
	next, err := l.retry(ctx, o)
	if next == nil && err == nil {
		err = errors.New("router: nothing to retry: the request finished")
	}
	return next, err
}

// retry is Retry, but for a request that finished both results are nil.
func (l *Lease) retry(ctx context.Context, o Outcome) (*Lease, error) {
	l.settle(o)
	l.mu.Lock()
	o = l.outcome
	again := o.Retryable() && !l.first && !l.retried && l.attempt < l.router.opts.Attempts
	l.retried = true
	l.mu.Unlock()

	last := failure(l.ctx, o)
	if !again {
		return nil, last
	}
	wait := l.router.opts.wait(l.attempt, o.RetryAfter)
	if f := l.router.opts.Trace.Retry; f != nil {
		f(ctx, RetryInfo{Decision: l.decision, Outcome: o, Attempt: l.attempt, Wait: wait})
	}
	if err := sleep(ctx, wait); err != nil {
		return nil, fmt.Errorf("%w (not sent again: %w)", last, err)
	}
	exclude := append(l.exclude[:len(l.exclude):len(l.exclude)], l.decision.Target.ID)
	next, err := l.router.lease(ctx, l.decision.Prompt, exclude, l.attempt+1)
	if err != nil {
		return nil, last
	}
	return next, nil
}

// run calls send and settles the lease without blame where send does not return.
func (l *Lease) run(ctx context.Context, send func(context.Context, *Lease) (Outcome, error)) (Outcome, error) {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: both go on by themselves
			l.settle(Outcome{Stage: Canceled, Err: errors.New("router: send did not return")})
		}
	}()
	o, err := send(ctx, l)
	returned = true
	return o, err
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
			b *= 2
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
