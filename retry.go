package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Retry settles the lease with o and, if another target might do better, waits for
// the backoff and leases one that was not tried yet, for the life of ctx. Otherwise
// it returns the last error, never a lease and an error both. A request is sent
// again only if
//
//   - it was this call that settled the lease, or the lease's own context, because
//     the attempt timed out (ErrAttemptTimeout),
//   - o, with its Stage derived, is retryable (Options.Retryable),
//   - no token was seen, and Options.Attempts is not reached.
func (l *Lease) Retry(ctx context.Context, o Outcome) (*Lease, error) {
	next, err := l.retry(ctx, o)
	if next == nil && err == nil {
		err = errFinished
	}
	return next, err
}

var (
	errFinished = errors.New("router: nothing to retry: the request finished")
	errNoLease  = errors.New("router: nothing to retry: the lease is nil or zero")
)

// retry is Retry, but for a request that finished both results are nil.
func (l *Lease) retry(ctx context.Context, o Outcome) (*Lease, error) {
	if l.zero() {
		return nil, errNoLease
	}
	mine := l.settle(o)
	l.mu.Lock()
	mine = mine || l.expired && !l.retried
	l.retried = true
	if o.NotSent && l.expired && !l.first {
		l.outcome.NotSent = true // its end came before the caller could say so
	}
	o, first := l.outcome, l.first
	l.mu.Unlock()

	last := failure(l.ctx, o)
	if !mine || first || !l.retryable(o) || l.attempt.n >= l.router.opts.Attempts {
		return nil, last
	}
	next, err := l.again(ctx, o)
	var sleepless *sleepError
	switch {
	case errors.As(err, &sleepless):
		return nil, fmt.Errorf("%w (not sent again: %w)", last, sleepless.error)
	case err != nil:
		return nil, last
	}
	return next, nil
}

// retryable reports whether o, which is final, may be followed by another attempt.
func (l *Lease) retryable(o Outcome) bool {
	if f := l.router.opts.Retryable; f != nil {
		return o.Stage == Failed && f(o)
	}
	if l.decision.Reason == ReasonState && (o.Status == 429 || o.Status == 503 || o.Status == 529 || o.Lacks()) {
		// It is full and has the state still, or says that it has it no more: any other would say so whatever is true.
		return false
	}
	return o.Retryable() && !(o.Lacks() && l.attempt.lacked)
}

// again leases another target after l ended with o.
func (l *Lease) again(ctx context.Context, o Outcome) (*Lease, error) {
	r := l.router
	next := l.attempt
	next.n++
	next.assigned = false // the strategy chooses now
	next.lacked = next.lacked || o.Lacks()
	// Never in place: two may go on from one lease.
	next.exclude = append(slices.Clip(next.exclude), l.decision.Target.ID)
	wait, asked := r.pause(ctx, l.decision.Prompt, l.attempt.n, o, next.exclude)
	if f := r.opts.Trace.Retry; f != nil {
		f(ctx, RetryInfo{Decision: l.decision, Outcome: o, Attempt: l.attempt.n, Wait: wait + asked})
	}
	if _, ok := r.fleet.(ChangeNotifier); !ok {
		wait, asked = wait+asked, 0
	}
	next.wait = asked
	err := lasts(ctx, wait+asked)
	if err == nil {
		err = sleep(ctx, wait)
	}
	if err != nil {
		return nil, &sleepError{err}
	}
	return r.lease(ctx, l.decision.Prompt, next)
}

// pause returns how long to wait after an attempt that ended with o, if exclude are
// the targets that were tried, and how much longer because of a Retry-After.
func (r *Router) pause(ctx context.Context, p Prompt, attempt int, o Outcome,
	exclude []string) (wait, asked time.Duration) {
	if !o.Stage.Final() {
		return 0, 0 // the attempt goes on
	}
	wait = r.opts.backoff(attempt)
	if asked := min(o.RetryAfter, r.opts.MaxRetryAfter); asked > wait && r.onlyLater(ctx, p, exclude) {
		return wait, asked - wait
	}
	return wait, 0
}

// onlyLater reports whether there are targets left, and none of them is Ready.
func (r *Router) onlyLater(ctx context.Context, p Prompt, exclude []string) bool {
	left, ready := 0, 0
	r.look(ctx, p, func(targets []Target) {
		for i := range targets {
			if r.rulesOut(&targets[i], exclude) {
				continue
			}
			left++
			if targets[i].State == Ready {
				ready++
			}
		}
	})
	return left > 0 && ready == 0
}

// sleepError says why the wait before an attempt was not waited for.
type sleepError struct{ error }

// lasts returns an error if ctx is done or cannot last for d.
func lasts(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t, ok := ctx.Deadline(); ok && d > 0 && time.Until(t) < d {
		return context.DeadlineExceeded
	}
	return nil
}

// sleep waits for d or for ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
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

// failure returns the error that a settled request with outcome o ended with,
// nil if it finished without one.
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
	Status     int           // 0 if there was none
	RetryAfter time.Duration // the time that the target asked for; 0: none
}

// Error names the status.
func (e *StatusError) Error() string {
	if e.Status == 0 {
		return "router: the target failed"
	}
	return fmt.Sprintf("router: the target answered with status %d", e.Status)
}

// Request is one request of a host that has a loop of its own: the host asks for a
// target each time that it sends, and decides itself whether to go on. Its leases
// have the numbers, the exclusions, the backoff and the hooks that Retry would give
// them, so that the host needs no list of targets that were tried. One goroutine at
// a time uses it; its leases are independent of it. Make one with Router.Request.
type Request struct {
	router *Router
	prompt Prompt
	last   *Lease
}

// Request returns a Request for p. It leases nothing yet.
func (r *Router) Request(p Prompt) *Request { return &Request{router: r, prompt: p} }

// Next leases a target for the next attempt, for the life of ctx. The first call is
// Route. A later one leases a target that was not leased before; if the last lease
// has failed it waits as Retry does, and if it is not settled, because the host
// sends to two targets at a time, it does not wait. Options.Attempts and
// Options.Retryable are not asked: the host has decided. But nothing is sent again
// after the first token or the end of a reply: then, and if no target is left, the
// error is that of the last attempt, or a *NoTargetError if it is not settled.
func (q *Request) Next(ctx context.Context) (*Lease, error) {
	next, err := q.next(ctx)
	if err != nil {
		return nil, err
	}
	q.last = next
	return next, nil
}

func (q *Request) next(ctx context.Context) (*Lease, error) {
	if q.last == nil {
		return q.router.Route(ctx, q.prompt)
	}
	l := q.last
	l.mu.Lock()
	o, first, settled := l.outcome, l.first, l.settled
	l.mu.Unlock()
	var last error
	if settled {
		last = failure(l.ctx, o)
	}
	switch {
	case last != nil && first:
		return nil, last
	case settled && o.Stage == Finished, first:
		return nil, errReply
	}
	next, err := l.again(ctx, o)
	var sleepless *sleepError
	switch {
	case errors.As(err, &sleepless) && last != nil:
		return nil, fmt.Errorf("%w (not sent again: %w)", last, sleepless.error)
	case errors.As(err, &sleepless):
		return nil, sleepless.error
	case err != nil && last != nil:
		return nil, last
	}
	return next, err
}

var errReply = errors.New("router: the request is not sent again: its reply has begun")

// Last returns the lease that the last call of Next returned; nil before.
func (q *Request) Last() *Lease { return q.last }
