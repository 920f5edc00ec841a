package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"weak"
)

// Router joins a strategy with a fleet: it chooses and counts in one step, fails
// over, and reports the end of each request to both. Its methods are safe for
// concurrent use. Several Routers may share a Fleet.
type Router struct {
	*core
	keep func(Target) bool // nil: every target
}

// core is shared by a Router, those that Among made of it, and their leases.
type core struct {
	strategy Strategy
	preparer Preparer // strategy, if it is one
	fleet    Fleet
	opts     Options
}

// New returns a Router that chooses with s among the targets of f. If f is a
// ForgetNotifier, s, if it is a Forgetter, and Options.Holders forget the targets that
// f says are gone, for as long as the Router is in use; nothing else of the Router stays
// with f. It
// starts no goroutine and needs no closing.
func New(s Strategy, f Fleet, o Options) *Router {
	c := &core{strategy: s, fleet: f, opts: o.WithDefaults()}
	c.preparer, _ = s.(Preparer)
	c.forgetWithFleet()
	return &Router{core: c}
}

// forgetWithFleet has the strategy and Holders forget the targets that the fleet says are
// gone, until c is garbage.
func (c *core) forgetWithFleet() {
	n, ok := c.fleet.(ForgetNotifier)
	if !ok {
		return
	}
	w := weak.Make(c) // the fleet outlives its routers
	stop := n.OnForget(func(id string) {
		if c := w.Value(); c != nil {
			c.forget(id)
		}
	})
	runtime.AddCleanup(c, func(stop func()) { stop() }, stop)
}

func (c *core) forget(id string) {
	c.opts.Holders.Forget(id)
	if f, ok := c.strategy.(Forgetter); ok {
		f.Forget(id)
	}
}

// Forget has the strategy, if it is a Forgetter, and Options.Holders forget the target with this ID. A
// Fleet that is a ForgetNotifier does so by itself.
func (r *Router) Forget(id string) { r.forget(id) }

// Among returns a Router over the targets for which keep returns true, with the
// same strategy, fleet and options. The others count as Excluded. It is cheap
// enough to be made for one request. keep is called with the fleet's lock held, at
// least once for each target: it is quick, does not change the target's Ref, and
// calls neither fleet nor Router. Of a Router that Among returned, Among keeps the
// targets that both keep.
func (r *Router) Among(keep func(Target) bool) *Router {
	if outer := r.keep; outer != nil {
		inner := keep
		keep = func(t Target) bool { return outer(t) && inner(t) }
	}
	return &Router{core: r.core, keep: keep}
}

// Route chooses a target for p, leaving out those with IDs in exclude, counts the
// request and returns its lease. It waits only if Options.Wait says so. ctx is the
// life of the request, not of the call: when it is done, the lease is settled as
// Canceled, or as Failed if its cause is ErrAttemptTimeout; who hands the lease on
// passes context.WithoutCancel(ctx). The error is a *NoTargetError if no target is
// Ready, ctx's cause if ctx is done, else that of the strategy or the fleet.
func (r *Router) Route(ctx context.Context, p Prompt, exclude ...string) (*Lease, error) {
	return r.lease(ctx, p, attempt{n: 1, exclude: slices.Clone(exclude)})
}

// lease is Route for the given attempt.
func (r *Router) lease(ctx context.Context, p Prompt, a attempt) (*Lease, error) {
	l := &Lease{router: r, ctx: ctx, attempt: a}
	l.decision.Prompt = p
	return l.open(func(targets []Target) (Decision, error) {
		return l.sending(r.pick(l, targets))
	})
}

// Assign counts a request that another program decided to send to the target
// with the given ID, in whatever State it is, and returns its lease. The
// strategy learns from it as from its own choices. The error is a *NoTargetError
// if the fleet does not offer the target, or Among left it out: then all that it
// offers count as Excluded. It never waits. All else is as for Route.
func (r *Router) Assign(ctx context.Context, p Prompt, id string) (*Lease, error) {
	l := &Lease{router: r, ctx: ctx, attempt: attempt{n: 1, assigned: true}}
	l.decision.Prompt = p
	return l.open(func(targets []Target) (Decision, error) {
		return l.sending(r.assigned(ctx, p, targets, id))
	})
}

// Do routes p, calls send with the lease, and settles it; if the target failed
// before the first token, it does so again with another target, as Retry has it. An
// error of send becomes Outcome.Err. A Stage that is not final is derived: ctx
// done: Canceled; Err, or Status >= 400: Failed; else Finished. Once send has
// called FirstToken the end of ctx settles nothing before send has returned, and a
// reply that send then reports without an error has Finished: a client may close
// as soon as it has the last byte. A panic in send, http.ErrAbortHandler among
// them, settles the lease as Canceled, which blames no target, and goes on. Do
// returns nil for Finished without an error, else the last attempt's error;
// ErrNoTarget only if no attempt was made.
//
// send may call FirstToken; Done and Retry are for Do to call. If send has settled
// its lease, the request is not sent again.
func (r *Router) Do(ctx context.Context, p Prompt, send func(context.Context, *Lease) (Outcome, error)) error {
	l, err := r.lease(ctx, p, attempt{n: 1, inDo: true})
	for l != nil {
		l, err = l.retry(ctx, l.send(ctx, send))
	}
	return err
}

// send calls send for one attempt of Do and returns how it ended.
func (l *Lease) send(ctx context.Context, send func(context.Context, *Lease) (Outcome, error)) (o Outcome) {
	if d := l.router.opts.AttemptTimeout; d > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		timer := time.AfterFunc(d, func() {
			l.mu.Lock() // so that FirstToken comes before or is too late
			defer l.mu.Unlock()
			if !l.first {
				cancel(ErrAttemptTimeout)
			}
		})
		defer func() {
			timer.Stop()
			cancel(nil)
		}()
	}
	var err error
	l.guard(func() { o, err = send(ctx, l) })
	if err != nil {
		o.Err = err
	}
	if context.Cause(ctx) == ErrAttemptTimeout && o.Stage != Finished && (o.Err != nil || o.Stage == Canceled) {
		// A send that knows of contexts only has said that the client went away.
		o.Stage = 0
		if o.Err == nil {
			o.Err = ErrAttemptTimeout
		} else if !errors.Is(o.Err, ErrAttemptTimeout) {
			o.Err = fmt.Errorf("%w: %w", ErrAttemptTimeout, o.Err)
		}
	}
	return o
}

// Explain returns every candidate for p, best first, with the part that is cached
// there, its load, its score and why it would be taken or not, as the next Route
// would find it: if FailOpen steps in, a target that is neither Draining nor Asleep
// shows as Ready.
// If the strategy is no Explainer, the Ready ones come first and the scores are NaN.
// It changes nothing.
func (r *Router) Explain(ctx context.Context, p Prompt) ([]Candidate, error) {
	var all []Target
	err := r.look(ctx, p, func(targets []Target) {
		kept := r.places(r.kept(targets, nil))
		offered, ok := r.open(kept)
		if !ok {
			offered = kept
		}
		all = slices.Clone(offered)
		if len(all) < len(kept) { // those that FailOpen leaves out are candidates too
			for _, t := range kept {
				if t.State == Draining || t.State == Asleep {
					all = append(all, t)
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	explain := func(ts []Target) []Candidate { return r.explain(ctx, p, ts) }
	if lists := r.holding(p); len(lists) > 0 {
		return r.explainHeld(all, lists, explain), nil
	}
	return explain(all), nil
}

// explain returns every one of all as a candidate. It may sort all.
func (r *Router) explain(ctx context.Context, p Prompt, all []Target) []Candidate {
	if e, ok := r.strategy.(Explainer); ok {
		return e.Explain(ctx, p, all, make([]Candidate, 0, len(all)))
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
	return out
}
