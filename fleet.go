package router

import "context"

// Fleet is the set of targets that a Router chooses from, and their counters.
// Its methods are safe for concurrent use. loadview.View is one; a gateway's own
// pool, or a subset that the request names, can be others.
type Fleet interface {
	// Choose offers what may serve ctx, calls pick at most once and counts its
	// choice, all in one step, across all Routers over it: two requests at the
	// same instant see each other. The slice is pick's to read until it returns
	// and holds the targets that are not Ready too. Where pick fails, nothing is
	// counted and its error is returned; a *NoTargetError may have its RetryAfter
	// filled in. Choose does not wait.
	Choose(ctx context.Context, pick func([]Target) (Decision, error)) (Decision, Flight, error)
}

// Flight is one counted request of a Fleet: it holds the counter it raised, not
// a name for it. Its methods are safe for concurrent use and do not block.
type Flight interface {
	// FirstToken tells that prefill is over. Calls after the first, or after
	// Done, do nothing.
	FirstToken()
	// Done takes the request off the counters and tells the fleet what became of
	// it. Calls after the first do nothing.
	Done(Outcome)
}
