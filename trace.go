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
