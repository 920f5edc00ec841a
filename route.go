package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Options are what a Router does beyond choosing. The zero Options are the
// documented defaults.
type Options struct {
	// Attempts is the greatest number of targets that one request is sent to.
	// 0 means 3; less than 0 means 1.
	Attempts int
	// FailOpen makes a Router that finds no Ready target choose among all that
	// are not Draining, as if they were Ready, instead of giving ErrNoTarget.
	FailOpen bool
	// Backoff is how long Retry waits before the second attempt, at the most: a
	// random time between a half of it and the whole. It doubles with each
	// further attempt up to MaxBackoff. 0 means 25 ms; less than 0: no wait.
	Backoff time.Duration
	// MaxBackoff bounds Backoff. 0 means 1 s, or Backoff where that is longer.
	MaxBackoff time.Duration
	// MaxRetryAfter bounds how long Retry waits because of Outcome.RetryAfter,
	// although the next attempt goes to another target: whoever answers 429
	// often speaks for a limit that its neighbours share. 0 means 2 s; less than
	// 0: RetryAfter is not waited for. (What the target itself asked for is
	// obeyed by the fleet: loadview lets it cool down for as long.)
	MaxRetryAfter time.Duration
	// Rand gives the jitter. It is safe for concurrent use; nil means the global
	// source.
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
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	return o
}

// Router joins a strategy with a fleet: it chooses and counts in one step, fails
// over, and reports what became of each request to both. Its methods are safe
// for concurrent use. Several Routers may share a Fleet.
type Router struct {
	strategy Strategy
	fleet    Fleet
	opts     Options
}

// New returns a Router that chooses with s among the targets of f. It starts no
// goroutine and needs no closing.
func New(s Strategy, f Fleet, o Options) *Router {
	return &Router{strategy: s, fleet: f, opts: o.WithDefaults()}
}

// Route chooses a target for p, leaving out those whose IDs are in exclude,
// counts the request and returns its lease. It never waits. ctx is the life of
// the request, not of the call: when it is done, the lease is settled as
// Canceled; who hands the lease on passes context.WithoutCancel(ctx). The error
// is a *NoTargetError where no target is Ready, ctx's cause where ctx is done
// already, else what the strategy or the fleet said.
func (r *Router) Route(ctx context.Context, p Prompt, exclude ...string) (*Lease, error) {
	return r.lease(ctx, p, slices.Clone(exclude), 1)
}

// lease is Route for the given attempt.
func (r *Router) lease(ctx context.Context, p Prompt, exclude []string, attempt int) (*Lease, error) {
	l := &Lease{router: r, ctx: ctx, exclude: exclude, attempt: attempt}
	l.decision.Prompt = p
	return l.open(func(targets []Target) (Decision, error) {
		return l.sending(r.pick(ctx, p, targets, exclude))
	})
}

// Assign counts a request that somebody else decided to send to the target with
// the given ID, in whatever State it is, and returns its lease. The strategy
// learns from it as from its own choices. The error is a *NoTargetError where
// the fleet does not offer the target: then all that it offers count as
// Excluded. All else is as for Route.
func (r *Router) Assign(ctx context.Context, p Prompt, id string) (*Lease, error) {
	l := &Lease{router: r, ctx: ctx, attempt: 1}
	l.decision.Prompt = p
	return l.open(func(targets []Target) (Decision, error) {
		return l.sending(r.assigned(ctx, p, targets, id))
	})
}

// pick lets the strategy choose and holds it to what it was offered.
func (r *Router) pick(ctx context.Context, p Prompt, targets []Target, exclude []string) (Decision, error) {
	offered, err := r.offer(targets, exclude)
	if err != nil {
		return Decision{}, err
	}
	d, err := r.strategy.Pick(ctx, p, offered)
	if e, ok := err.(*NoTargetError); ok || err == ErrNoTarget {
		// The strategy could count only what it was offered.
		none := noTarget(targets, exclude)
		if e != nil { // and what its filters ruled out
			none.Excluded += e.Excluded
			none.RetryAfter = e.RetryAfter
		}
		return Decision{}, none
	}
	if err != nil {
		return Decision{}, err
	}
	at := -1
	for i := range offered {
		if offered[i].ID == d.Target.ID {
			if offered[i].State == Ready {
				return d, nil
			}
			at = i
		}
	}
	if at < 0 {
		return Decision{}, fmt.Errorf("router: the strategy picked target %q, which was not offered", d.Target.ID)
	}
	return Decision{}, fmt.Errorf("router: the strategy picked target %q, which is %v", d.Target.ID, offered[at].State)
}

// assigned is pick where the target is given.
func (r *Router) assigned(ctx context.Context, p Prompt, targets []Target, id string) (Decision, error) {
	i := slices.IndexFunc(targets, func(t Target) bool { return t.ID == id })
	if i < 0 {
		return Decision{}, &NoTargetError{Offered: len(targets), Excluded: len(targets)}
	}
	// Asked to choose among this one alone, the strategy tells what is cached
	// there and gives the decision its memo.
	only := [1]Target{targets[i]}
	only[0].State = Ready
	d, err := r.strategy.Pick(ctx, p, only[:])
	if err != nil || d.Target.ID != id {
		d = Decision{}
	}
	d.Target, d.Reason = targets[i], ReasonAssigned
	return d, nil
}

// offer returns what Pick may see of targets: all but the excluded, and where
// none of them is Ready and FailOpen is set, copies of those that are not
// Draining with State Ready. It copies only where it must.
func (r *Router) offer(targets []Target, exclude []string) ([]Target, error) {
	offered := targets
	if len(exclude) > 0 {
		offered = make([]Target, 0, len(targets))
		for i := range targets {
			if !slices.Contains(exclude, targets[i].ID) {
				offered = append(offered, targets[i])
			}
		}
	}
	for i := range offered {
		if offered[i].State == Ready {
			return offered, nil
		}
	}
	if r.opts.FailOpen {
		open := make([]Target, 0, len(offered))
		for _, t := range offered {
			if t.State != Draining {
				t.State = Ready
				open = append(open, t)
			}
		}
		if len(open) > 0 {
			return open, nil
		}
	}
	return nil, noTarget(targets, exclude)
}

// noTarget counts why none of targets was picked.
func noTarget(targets []Target, exclude []string) *NoTargetError {
	e := &NoTargetError{Offered: len(targets)}
	for i := range targets {
		if slices.Contains(exclude, targets[i].ID) {
			e.Excluded++
		} else if targets[i].State != Ready {
			e.NotReady++
		}
	}
	return e
}

// Do routes p, calls send with the lease, and settles it; where the target
// failed before the first token, it does so again with another target, as Retry
// has it. An error of send becomes Outcome.Err. A Stage that is not final is
// derived: ctx done: Canceled; Err, or Status >= 400: Failed; else Finished. A
// panic in send, http.ErrAbortHandler among them, settles the lease as Canceled,
// which blames no target, and goes on. Do returns nil for Finished without an
// error, else the last attempt's error; ErrNoTarget only where no attempt was
// made.
//
// send may call FirstToken; Done and Retry are for Do to call, and a request
// whose lease send has settled is not sent again.
func (r *Router) Do(ctx context.Context, p Prompt, send func(context.Context, *Lease) (Outcome, error)) error {
	l, err := r.Route(ctx, p)
	for l != nil {
		var o Outcome
		l.guard(func() { o, err = send(ctx, l) })
		if err != nil {
			o.Err = err
		}
		l, err = l.retry(ctx, o)
	}
	return err
}

// Explain returns every candidate for p, best first, with what is cached there,
// its load, its score and why it would be taken or not, as the next Route would
// find it: where FailOpen steps in, a target that is not Draining shows as Ready.
// Where the strategy is no Explainer, the Ready ones come first and the scores
// are NaN. It changes nothing.
func (r *Router) Explain(ctx context.Context, p Prompt) ([]Candidate, error) {
	var all []Target
	seen := errors.New("router: only looking") // makes Choose count nothing
	_, _, err := r.fleet.Choose(ctx, func(targets []Target) (Decision, error) {
		offered, err := r.offer(targets, nil)
		if err != nil {
			offered = targets
		}
		all = slices.Clone(offered)
		if len(all) < len(targets) { // what FailOpen leaves out is a candidate too
			for _, t := range targets {
				if t.State == Draining {
					all = append(all, t)
				}
			}
		}
		return Decision{}, seen
	})
	if err != nil && !errors.Is(err, seen) {
		return nil, err
	}
	if e, ok := r.strategy.(Explainer); ok {
		return e.Explain(ctx, p, all, make([]Candidate, 0, len(all))), nil
	}
	slices.SortStableFunc(all, func(a, b Target) int {
		return cmp.Compare(min(a.State, 1), min(b.State, 1))
	})
	out := make([]Candidate, len(all))
	for i, t := range all {
		c := Candidate{Target: t, Score: math.NaN(), Reason: ReasonOf(t.State)}
		c.Length, c.Unit = p.Length()
		out[i] = c
	}
	return out, nil
}

// Forget tells the strategy, where it wants to know, that the target with this
// ID is gone, or its cache is.
func (r *Router) Forget(id string) {
	if f, ok := r.strategy.(Forgetter); ok {
		f.Forget(id)
	}
}
