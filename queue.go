package router

import (
	"context"
	"errors"
	"time"
)

// Queue is a waiting line in front of the targets of a Router (Options.Queue), for
// requests that no target has a place for. Package admission has one. Its methods are
// safe for concurrent use. Requests for which Assign is called, and those that follow
// state to the target that has it (Prompt.Must), do not wait.
type Queue interface {
	// Places returns targets, or a copy in which those without a place for another
	// request are Full. It is called with the fleet's lock held, for each choice: it is
	// quick, and neither changes nor keeps targets.
	Places(targets []Target) []Target
	// Busy reports whether requests for the model wait, so that another one would
	// overtake them. It is called for each choice.
	Busy(model string) bool
	// Wait holds w back until its turn has come, and calls w.Try then. It returns nil
	// once Try has returned false. If the time of the request or of the Queue is up
	// before, or the Queue is full, it returns the cause of ctx, or a
	// *NoTargetError with Shed.
	Wait(ctx context.Context, w *Waiting) error
	// Freed says that a request of a Router over this Queue saw its first token, or
	// ended. It does not block.
	Freed()
}

// Waiting is a request in a Queue. One goroutine at a time calls Try and Peek.
type Waiting struct {
	Prompt Prompt
	// Since is when the request came; one that is tried again keeps its time.
	Since time.Time
	// Any says that the request may go to any target that the fleet offers to its model
	// and account: if none has a place for one such request, none has one for another.
	Any bool
	// Try chooses a target. It returns true if no target had a place, and when to try
	// again; false if the request need not wait any more: a target was chosen, as
	// Decision says, or there is an error that waiting does not mend.
	Try func() (again Again, wait bool)
	// Peek returns the longest part of the prompt that is cached at a target with a
	// place, without choosing it; 0 if there is none.
	Peek func() int
	// Decision is the choice that the last Try made; zero if it made none.
	Decision Decision
}

// Again says when a request may find a place that found none.
type Again struct {
	// Changed is closed when the fleet's targets change; nil: the fleet says nothing.
	Changed <-chan struct{}
	// After is when time alone may make a target Ready; 0: unknown.
	After time.Duration
}

// freed reports to the Queue that a request has come further.
func (r *core) freed() {
	if q := r.opts.Queue; q != nil {
		q.Freed()
	}
}

// chooseOrQueue is choose, in q if no target has a place or others wait.
func (l *Lease) chooseOrQueue(q Queue, pick func([]Target) (Decision, error)) (d Decision, f Flight,
	waited time.Duration, err error) {
	if !q.Busy(l.decision.Prompt.Model) || len(l.router.holding(l.decision.Prompt)) > 0 {
		if d, f, err = l.choose(pick); !mayHavePlace(err) {
			if l.patience() > 0 && errors.Is(err, ErrNoTarget) {
				return l.chooseOrLook(pick)
			}
			return d, f, 0, err
		}
	}
	return l.queue(q, pick, err)
}

// queue is choose once it is the turn of the request in q. before is the error of a choice
// that failed, nil if there was none: it has the counts of a request that is shed before
// its turn. queue is apart from chooseOrQueue because its variables live on the heap.
func (l *Lease) queue(q Queue, pick func([]Target) (Decision, error), before error) (d Decision, f Flight,
	waited time.Duration, err error) {
	r := l.router
	err = before
	start := time.Now()
	if l.attempt.since.IsZero() {
		l.attempt.since = start
	}
	fleet, _ := r.fleet.(ChangeNotifier)
	w := &Waiting{Prompt: l.decision.Prompt, Since: l.attempt.since, Peek: l.peek,
		Any: r.keep == nil && len(l.attempt.exclude) == 0}
	w.Try = func() (again Again, wait bool) {
		if fleet != nil {
			again.Changed = fleet.Changed() // first, as in chooseOrLook
		}
		d, f, err = l.choose(pick)
		w.Decision = d
		var none *NoTargetError
		if errors.As(err, &none) {
			again.After = none.RetryAfter
			wait = none.Full > 0 || time.Since(start) < l.patience()
		}
		return again, wait
	}
	if up := q.Wait(l.ctx, w); up != nil {
		d, f = Decision{}, nil
		var shed, none *NoTargetError
		if errors.As(up, &shed) && errors.As(err, &none) { // with the counts of the last try
			c := *none
			c.Shed, c.Waited, c.RetryAfter = shed.Shed, shed.Waited, shed.RetryAfter
			up = &c
		}
		err = up
	}
	return d, f, time.Since(start), err
}

// mayHavePlace reports whether a target may have a place once another request ends.
func mayHavePlace(err error) bool {
	if err == nil {
		return false
	}
	var none *NoTargetError
	return errors.As(err, &none) && none.Full > 0
}

// peek is Waiting.Peek.
func (l *Lease) peek() int {
	r := l.router
	e, ok := r.strategy.(Explainer)
	if !ok {
		return 0
	}
	var free []Target
	err := r.look(l.ctx, l.decision.Prompt, func(targets []Target) {
		for _, t := range r.places(r.kept(targets, l.attempt.exclude)) {
			if t.State == Ready {
				free = append(free, t)
			}
		}
	})
	if err != nil || len(free) == 0 {
		return 0
	}
	best := 0
	for _, c := range e.Explain(l.ctx, l.decision.Prompt, free, make([]Candidate, 0, len(free))) {
		best = max(best, c.Cached)
	}
	return best
}
