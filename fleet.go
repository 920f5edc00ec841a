package router

import (
	"context"
	"time"
)

// Fleet is the set of targets that a Router chooses from, and their counters.
// Its methods are safe for concurrent use. loadview.View is one; a gateway's own
// pool, or a subset that the request names, can be others.
type Fleet interface {
	// Choose offers the targets that may serve ctx, calls pick at most once and
	// counts its choice, all in one step, across all Routers over it: two requests at the
	// same instant see each other. The slice is pick's to read until it returns
	// and holds the targets that are not Ready too. If pick fails, nothing is
	// counted and its error is returned; a *NoTargetError may have its RetryAfter
	// filled in. Choose does not wait.
	Choose(ctx context.Context, pick func([]Target) (Decision, error)) (Decision, Flight, error)
}

// PromptChooser is an optional part of a Fleet that may offer a target in another
// State to one prompt than to another: a limit holds for whom it was given. A Router
// over such a Fleet calls it in place of Choose: a type that embeds one and has a
// Choose of its own needs its own ChoosePrompt too.
type PromptChooser interface {
	// ChoosePrompt is Choose for a request with the prompt p.
	ChoosePrompt(ctx context.Context, p Prompt, pick func([]Target) (Decision, error)) (Decision, Flight, error)
}

// ReadyTimer is an optional part of a Fleet that knows when its targets may be Ready again.
type ReadyTimer interface {
	// ReadyIn returns the time until the first of the targets with these IDs that is not Ready
	// for a request with the prompt p may be; 0: unknown. A Router asks for the RetryAfter of a
	// *NoTargetError of a request that may not go to all targets. It is not called within Choose.
	ReadyIn(p Prompt, ids []string) time.Duration
}

// Flight is one counted request of a Fleet: it holds the counter it raised, not
// a name for it. Its methods are safe for concurrent use and do not block.
type Flight interface {
	// FirstToken reports that prefill is over. Calls after the first, or after
	// Done, do nothing.
	FirstToken()
	// Done takes the request off the counters and reports its outcome to the
	// fleet. Calls after the first do nothing.
	Done(Outcome)
}

// PrefillFlight is an optional part of a Flight, for Lease.PrefillElsewhere.
type PrefillFlight interface {
	// PrefillElsewhere takes the request off the tokens that wait for prefill, or if
	// elsewhere is false counts it there again. It says nothing of the target's health.
	// Calls after FirstToken or Done do nothing.
	PrefillElsewhere(elsewhere bool)
}

// ChangeNotifier is an optional part of a Fleet, for Options.Wait.
type ChangeNotifier interface {
	// Changed returns a channel that is closed by the next change after which a
	// target may be picked that could not be picked before: one joined, or became
	// Ready. A caller that gets the channel before it calls Choose misses no change.
	// A change that time alone makes (the end of a cool-down) need not close it: the
	// *NoTargetError of that Choose says in RetryAfter when to look again. The
	// channel may be closed without such a change, too; all callers between two
	// changes may get the same one.
	Changed() <-chan struct{}
}

// ForgetNotifier is an optional part of a Fleet that learns when a target is gone
// or its cache is. New registers the Router with it, for its strategy and Options.Holders.
type ForgetNotifier interface {
	// OnForget registers f, which is called with the ID of each such target, not
	// under a lock of the fleet's. For a target that left, all f have returned
	// before one with the same ID can join, so that this one begins cold. stop ends
	// that: no call of f begins after it has returned. It may be called from any
	// goroutine, f among them, and more than once.
	OnForget(f func(id string)) (stop func())
}
