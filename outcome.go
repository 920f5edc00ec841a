package router

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"
)

// Stage is how far a request has come. The zero Stage says nothing: Record
// ignores it, Lease.Done and Router.Do derive a final one.
type Stage uint8

// The stages. The last three are final.
const (
	Sent       Stage = iota + 1 // handed to the target
	FirstToken                  // the first token of the reply was seen: prefill is over
	Finished                    // the reply ended as it should
	Failed                      // the target, or the way to it, failed
	Canceled                    // the client went away or its time ran out
)

// Final reports whether s ends a request.
func (s Stage) Final() bool { return s >= Finished && s <= Canceled }

// String returns the stage's name in snake case, fit for a metric label.
func (s Stage) String() string {
	switch s {
	case 0:
		return "none"
	case Sent:
		return "sent"
	case FirstToken:
		return "first_token"
	case Finished:
		return "finished"
	case Failed:
		return "failed"
	case Canceled:
		return "canceled"
	}
	return "stage_" + strconv.Itoa(int(s))
}

// Outcome reports how a request ended, or how far it has come.
type Outcome struct {
	Stage Stage
	// Status is the HTTP status of the reply; 0: none came. A number outside of
	// 100 to 599 is no status: the target failed.
	Status int
	Err    error
	// PromptTokens, CachedTokens and OutputTokens are the numbers that the engine
	// reported; 0 if it reported none.
	PromptTokens, CachedTokens, OutputTokens int
	// CachedReported says that the engine reported CachedTokens, so that 0 means
	// that nothing was cached. It is implied if CachedTokens is above 0.
	CachedReported bool
	// Streamed says that the reply came in parts, as the engine made it, so that the time from
	// its first token to its end is the time that the output took.
	Streamed bool
	// Reply is the canonical text of the reply's turn, as prompt.Reply collects
	// it. The engine has cached it too.
	Reply string
	// Made are the ids of state that the reply made at its target, such as the response's own: a later request with
	// one in Prompt.Must goes there. 64 are kept. Lease.Made reports them earlier.
	Made []string
	// RetryAfter is the time that a 429 or 503 asked for; 0: none.
	RetryAfter time.Duration
	// NotSent says that the request never reached the target, by no fault of the target's: a
	// limit or a lost connection on the way to it, another endpoint that was taken after
	// all. Such a lease ends as Failed, so that the prompt that Sent had added is taken back
	// and another target may be tried, but a Fleet blames no target. It has no meaning once
	// a token was seen.
	NotSent bool
	// Lacking says that a Status of 3xx, 401, 403 or 404 speaks of the target, not of the
	// request: the target lacks a model, an adapter or a permission that another
	// target may have, or sends its clients elsewhere, as to a login. Such a request is
	// tried on one other target, once.
	Lacking bool
}

// ErrAttemptTimeout is the cause of a context that ends because one attempt took
// too long, while the client still waits:
//
//	ctx, cancel := context.WithTimeoutCause(ctx, d, router.ErrAttemptTimeout)
//
// A lease with a context that ended by this cause, or with this error as
// Outcome.Err, is settled as Failed, which speaks against the target, not as
// Canceled.
var ErrAttemptTimeout error = attemptTimeout{}

type attemptTimeout struct{}

func (attemptTimeout) Error() string { return "router: the attempt timed out" }
func (attemptTimeout) Timeout() bool { return true }

// SawToken reports whether o itself says that a token of the reply was seen: the
// stage FirstToken, OutputTokens or a Reply. After it nothing is sent again, and
// nothing that was learned is taken back.
func (o Outcome) SawToken() bool {
	return o.Stage == FirstToken || o.OutputTokens > 0 || o.Reply != ""
}

// Settled returns o with a final Stage, derived if it is not final already, by
// the rules of Lease.Done, Lease.Retry and Router.Do:
//
//   - NotSent, and no token was seen: Failed, and Status is 0.
//   - Err is ErrAttemptTimeout: Failed.
//   - The lease's context is done: Canceled; Failed if its cause is
//     ErrAttemptTimeout. Settled knows of no context: here Err stands for it if it
//     is context.Canceled.
//   - Another Err, a Status of 400 or more, a 3xx that is Lacking, or a Status that is no HTTP status: Failed.
//   - Else: Finished.
func (o Outcome) Settled() Outcome {
	if errors.Is(o.Err, context.Canceled) {
		return o.settled(context.Canceled)
	}
	return o.settled(nil)
}

// settled is Settled; ended is the cause of a context that is done, nil for
// one that is not.
func (o Outcome) settled(ended error) Outcome {
	if o.SawToken() {
		o.NotSent = false
	}
	switch {
	case o.NotSent:
		o.Stage, o.Status = Failed, 0
	case o.Stage.Final():
	case errors.Is(o.Err, ErrAttemptTimeout) || errors.Is(ended, ErrAttemptTimeout):
		o.Stage = Failed
		if o.Err == nil {
			o.Err = ErrAttemptTimeout
		}
	case ended != nil:
		o.Stage = Canceled
	case o.Err != nil || o.Status >= 400 || o.Status != 0 && !o.hasStatus() || o.Lacking && lackingStatus(o.Status):
		o.Stage = Failed
	default:
		o.Stage = Finished
	}
	return o
}

// hasStatus reports whether Status is one that HTTP knows.
func (o Outcome) hasStatus() bool { return o.Status >= 100 && o.Status <= 599 }

// Retryable reports whether another target might do better. It derives a Stage
// that is not final, as Settled does. It is true for a request that Failed before
// a token was seen
//
//   - with no Status, 408, 429 or 5xx,
//   - with a Status below 400 and an Err: a reply that was an error after all,
//   - with a 3xx, 401, 403 or 404 that is Lacking,
//
// and false for a time-out after the request was sent, which the target may still
// be computing: an Err that is a time-out, with no status of 400 or more, unless
// NotSent is set or the connection itself timed out. [Options.Retryable] replaces
// this rule for a Router.
func (o Outcome) Retryable() bool {
	if o.SawToken() {
		return false
	}
	o = o.Settled()
	switch {
	case o.Stage != Failed:
		return false
	case o.NotSent:
		return true
	case o.Status < 400 && o.timedOut():
		return false
	case o.Status < 400 && (o.Status == 0 || o.Err != nil):
		return true
	}
	return o.refused() || o.Lacks()
}

// Blames reports whether o speaks against the target: it Failed, with no Status,
// 408, 429, 5xx or a number that is no status, or with a Status below 400 and an
// Err. Time-outs and failures after the first token are among them; NotSent, and
// the 4xx of a client's own making, are not. A Stage that is not final is derived,
// as Settled does.
func (o Outcome) Blames() bool {
	o = o.Settled()
	switch {
	case o.Stage != Failed || o.NotSent:
		return false
	case !o.hasStatus():
		return true
	case o.Status < 400:
		return o.Err != nil
	}
	return o.refused()
}

// refused reports whether the status says that the target could not serve the
// request now.
func (o Outcome) refused() bool {
	return o.Status == 408 || o.Status == 429 || o.Status >= 500 && o.Status <= 599
}

// Lacks reports whether o Failed, is Lacking, and has a Status that may be so. A Stage
// that is not final is derived, as Settled does.
func (o Outcome) Lacks() bool {
	o = o.Settled()
	return o.Stage == Failed && o.Lacking && !o.NotSent && lackingStatus(o.Status)
}

// lackingStatus reports whether a status may speak of the target: an engine redirects nobody.
func lackingStatus(status int) bool {
	return status >= 300 && status <= 399 || status == 401 || status == 403 || status == 404
}

// timedOut reports whether Err is a time-out of a request that may have been sent.
func (o Outcome) timedOut() bool {
	var t interface{ Timeout() bool }
	if !errors.As(o.Err, &t) || !t.Timeout() {
		return false
	}
	var op *net.OpError
	return !errors.As(o.Err, &op) || op.Op != "dial"
}

// Progress follows one decision through the calls of Strategy.Record, so that
// each stage counts once, after Sent only, and in order. The zero Progress is a
// decision that was picked and not sent. One goroutine at a time uses it; it fits
// into a strategy's Decision.Memo.
type Progress struct {
	stage Stage // the last that counted
	token bool
}

// Next returns the stage by which o moves the decision on: Sent, FirstToken or a
// final one. It returns 0 if o is to be ignored: it has no stage, repeats one,
// comes out of order, or Sent was not recorded.
func (p *Progress) Next(o Outcome) Stage {
	switch {
	case o.Stage == Sent && p.stage == 0:
	case o.Stage == FirstToken && p.stage == Sent:
		p.token = true
	case o.Stage.Final() && (p.stage == Sent || p.stage == FirstToken):
		p.token = p.token || o.SawToken()
	default:
		return 0
	}
	p.stage = o.Stage
	return o.Stage
}

// SawToken reports whether a token of the reply was seen.
func (p *Progress) SawToken() bool { return p.token }

// TakenBack reports whether the request Failed before a token was seen: whatever
// it alone had added is taken back.
func (p *Progress) TakenBack() bool { return p.stage == Failed && !p.token }
