package router

import (
	"context"
	"time"
)

// Trace is a set of hooks through which a Router tells what happens, so that any
// metrics library fits. Each may be nil. They are called from the goroutine of
// the call that they tell of, Done also from one that the end of a context
// starts, and never under a lock of the Router or its Fleet, so that they may
// call both. They must be safe for concurrent use; a slow one slows that call.
type Trace struct {
	// Routed tells that a request was leased to a target.
	Routed func(context.Context, RouteInfo)
	// NoTarget tells that Route, Assign or Retry found no target, and why.
	// Nothing is looked for, and nothing told, where the context is done already.
	NoTarget func(context.Context, Prompt, error)
	// FirstToken tells that the first token of a reply was seen; just before
	// Done, where only the outcome said so.
	FirstToken func(context.Context, Decision)
	// Done tells how a lease was settled; the Stage is final.
	Done func(context.Context, Decision, Outcome)
	// Retry tells that another target is to be looked for. Where it is found,
	// Routed tells so.
	Retry func(context.Context, RetryInfo)
}

// RouteInfo is what Trace.Routed tells.
type RouteInfo struct {
	Decision Decision
	Attempt  int           // 1 for the first target
	Took     time.Duration // from the call to the counted choice, without Waited; with the time at the fleet's lock
	Waited   time.Duration // for a target to be there (Options.Wait)
}

// RetryInfo is what Trace.Retry tells: how the attempt ended that is to be
// followed by another.
type RetryInfo struct {
	Decision Decision
	Outcome  Outcome
	Attempt  int           // of the attempt that ended
	Wait     time.Duration // before the next one
}
