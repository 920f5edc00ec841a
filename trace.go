package router

import (
	"context"
	"time"
)

// Trace is a set of hooks that a Router calls, so that any metrics library fits.
// Each may be nil. They are called by the goroutine of the call that they report,
// Done also by one that the end of a context starts, and never under a lock of the
// Router or its Fleet, so that they may call both. They must be safe for concurrent
// use; a slow one slows that call.
type Trace struct {
	// Routed reports that a request was leased to a target.
	Routed func(context.Context, RouteInfo)
	// NoTarget reports that Route, Assign, Retry or Next found no target, and why. It
	// is not called if the context was done before.
	NoTarget func(context.Context, Prompt, error)
	// FirstToken reports that the first token of a reply was seen; just before Done,
	// if only the outcome said so.
	FirstToken func(context.Context, Decision)
	// Done reports how a lease was settled; the Stage is final.
	Done func(context.Context, Decision, Outcome)
	// Retry reports that another target is to be looked for. If it is found, Routed
	// is called.
	Retry func(context.Context, RetryInfo)
	// Timed reports how long a request took: up to its first token, after FirstToken, and
	// up to the end of each attempt, after Done. It is not called for leases of an Aside.
	Timed func(context.Context, Timing)
}

// Timing is the argument of Trace.Timed.
type Timing struct {
	Decision Decision
	// Outcome is that of Done, or at the first token one with the Stage FirstToken
	// alone.
	Outcome Outcome
	Attempt int // 1 for the first target
	// Request is the time since the call that began the first attempt: of Route, Do, Assign or Request.Next. The
	// wait for a target and the attempts that failed before are included.
	Request time.Duration
	// Took is the time since this attempt's target was counted.
	Took time.Duration
	// Reply is the time since the first token was seen; 0 at the first token, if none was
	// seen, and if only the outcome said so.
	Reply time.Duration
}

// asideKey is the key of Aside.
type asideKey struct{}

// Aside returns ctx for a lease that is a part of a request of which another lease
// has the reply, such as the prefill of a prompt that a further target decodes: its
// times are not a request's, so Trace.Timed does not report them.
func Aside(ctx context.Context) context.Context { return context.WithValue(ctx, asideKey{}, true) }

// timed calls Trace.Timed with o.
func (l *Lease) timed(o Outcome) {
	f := l.router.opts.Trace.Timed
	if f == nil || l.ctx.Value(asideKey{}) != nil {
		return
	}
	now := time.Now()
	t := Timing{Decision: l.decision, Outcome: o, Attempt: l.attempt.n, Request: now.Sub(l.attempt.began),
		Took: now.Sub(l.counted)}
	if o.Stage.Final() {
		l.mu.Lock()
		if !l.token.IsZero() {
			t.Reply = now.Sub(l.token)
		}
		l.mu.Unlock()
	}
	f(l.ctx, t)
}

// RouteInfo is the argument of Trace.Routed.
type RouteInfo struct {
	Decision Decision
	Attempt  int           // 1 for the first target
	Took     time.Duration // from the call to the counted choice, without Waited; the wait for the fleet's lock included
	Waited   time.Duration // until a target could be picked (Options.Wait)
}

// RetryInfo is the argument of Trace.Retry: how the attempt ended that is to be
// followed by another.
type RetryInfo struct {
	Decision Decision
	// Outcome is that of the attempt; its Stage is 0 if the attempt goes on while
	// Request.Next leases a further target.
	Outcome Outcome
	Attempt int           // of that attempt
	Wait    time.Duration // before the next one, at the most
}
