package router

import (
	"math/rand/v2"
	"time"
)

// Options say how a Router retries, waits and reports. The zero Options are the
// documented defaults.
type Options struct {
	// Attempts is the greatest number of targets that one request is sent to.
	// 0 means 3; less than 0 means 1.
	Attempts int
	// AttemptTimeout bounds one attempt of Do until its first token was reported,
	// or send has returned. The context of a send that takes longer ends with the
	// cause ErrAttemptTimeout: the attempt Failed, which speaks against its target,
	// and by default the request is not sent again, because the target may be
	// computing the reply. 0: no bound.
	AttemptTimeout time.Duration
	// Retryable reports whether a request that failed before its first token may be
	// sent to another target. The Stage of the Outcome is final. nil means
	// Outcome.Retryable, and an Outcome that is Lacking is followed by one other
	// attempt at the most. It must be safe for concurrent use.
	Retryable func(Outcome) bool
	// FailOpen makes a Router that finds no Ready target choose among all that
	// are neither Draining nor Asleep, as if they were Ready, instead of returning ErrNoTarget.
	// With a Queue it does so only if none of them is Full.
	FailOpen bool
	// Wait is how long Route, Do and the first attempt of a Request wait for a
	// target if none can be picked, as while a fleet scales up from zero. The fleet
	// must be a ChangeNotifier, or say in NoTargetError.RetryAfter when to look
	// again; otherwise nothing is waited for. 0: Route never waits.
	Wait time.Duration
	// Queue holds requests back while no target has a place for them; package admission
	// has one. Wait is then for requests that find no target which is Ready or Full.
	// nil: no request is held back. Several Routers over the same targets share one.
	Queue Queue
	// Backoff is the longest time that Retry waits before the second attempt; the
	// wait is drawn between a half of it and the whole. It doubles with each
	// further attempt up to MaxBackoff. 0 means 25 ms; less than 0: no wait.
	Backoff time.Duration
	// MaxBackoff bounds Backoff. 0 means 1 s, or Backoff if that is longer.
	MaxBackoff time.Duration
	// MaxRetryAfter bounds how long Retry waits because of Outcome.RetryAfter. It
	// does so only if no target that the request was not sent to is Ready, but one
	// may be by then; a Ready one is tried after Backoff. It ends as soon as one is
	// Ready if the fleet is a ChangeNotifier. 0 means 2 s; less than 0:
	// RetryAfter is not waited for. (The target itself is left alone for as long as
	// it asked by the fleet: loadview holds it back.)
	MaxRetryAfter time.Duration
	// Holders remembers which target has the state that a Prompt.Must refers to. Several Routers may share one. It is
	// forgotten with its targets as the strategy is. nil means one of the Router's own with the default bounds.
	Holders *Holders
	// Rand is the source of the jitter. It is safe for concurrent use; nil means the
	// global source.
	Rand func() uint64
	// Trace has the hooks that the Router calls; any may be nil.
	Trace Trace
}

// WithDefaults returns o with the default in place of each field that is zero and
// has one.
func (o Options) WithDefaults() Options {
	if o.Attempts == 0 {
		o.Attempts = 3
	}
	if o.Backoff == 0 {
		o.Backoff = 25 * time.Millisecond
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = max(time.Second, o.Backoff)
	}
	if o.MaxRetryAfter == 0 {
		o.MaxRetryAfter = 2 * time.Second
	}
	if o.Holders == nil {
		o.Holders = new(Holders)
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	return o
}

// backoff returns how long to wait after the given attempt.
func (o *Options) backoff(attempt int) time.Duration {
	if o.Backoff <= 0 {
		return 0
	}
	b := o.Backoff
	for i := 1; i < attempt && b < o.MaxBackoff; i++ {
		if b > o.MaxBackoff/2 { // doubling might overflow
			b = o.MaxBackoff
		} else {
			b *= 2
		}
	}
	b = min(b, o.MaxBackoff)
	return b/2 + time.Duration(o.Rand()%uint64(b-b/2+1))
}
