package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// pick lets the strategy choose for l and holds it to the targets that were offered.
func (r *Router) pick(l *Lease, targets []Target) (Decision, error) {
	exclude := l.attempt.exclude
	if len(l.held) > 0 {
		if d, ok := r.held(l, targets, l.held); ok {
			l.prepared = nil
			return d, nil
		}
	}
	kept := r.places(r.kept(targets, exclude))
	offered, ok := r.open(kept)
	if !ok {
		return Decision{}, l.noTarget(len(targets), kept)
	}
	var d Decision
	var err error
	if r.preparer == nil {
		d, err = r.strategy.Pick(l.ctx, l.decision.Prompt, offered)
	} else {
		d, err = r.preparer.PickPrepared(l.ctx, l.decision.Prompt, offered, l.prepared)
	}
	l.prepared = nil
	if e, ok := err.(*NoTargetError); ok || err == ErrNoTarget {
		// The strategy could count only the targets that it was offered.
		none := l.noTarget(len(targets), kept)
		if e != nil { // and those that its filters ruled out
			none.Excluded += e.Excluded
			if none.RetryAfter = e.RetryAfter; e.RetryAfter > 0 {
				l.eligible = nil
			}
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

// assigned is pick if the target is given.
func (r *Router) assigned(ctx context.Context, p Prompt, targets []Target, id string) (Decision, error) {
	i := slices.IndexFunc(targets, func(t Target) bool { return t.ID == id })
	if i < 0 || r.rulesOut(&targets[i], nil) {
		return Decision{}, &NoTargetError{Offered: len(targets), Excluded: len(targets)}
	}
	// Asked to choose among this one alone, the strategy finds the part that is
	// cached there and gives the decision its memo.
	only := [1]Target{targets[i]}
	only[0].State = Ready
	d, err := r.strategy.Pick(ctx, p, only[:])
	if err != nil || d.Target.ID != id {
		d = Decision{}
	}
	d.Target, d.Reason = targets[i], ReasonAssigned
	return d, nil
}

// rulesOut reports whether t is not to be offered, whatever its state.
func (r *Router) rulesOut(t *Target, exclude []string) bool {
	return slices.Contains(exclude, t.ID) || r.keep != nil && !r.keep(*t)
}

// kept returns the targets that are not ruled out. It copies only if it must.
func (r *Router) kept(targets []Target, exclude []string) []Target {
	if len(exclude) == 0 && r.keep == nil {
		return targets
	}
	kept := make([]Target, 0, len(targets))
	for i := range targets {
		if !r.rulesOut(&targets[i], exclude) {
			kept = append(kept, targets[i])
		}
	}
	return kept
}

// places returns kept with Full for those that have no place for another request.
func (r *Router) places(kept []Target) []Target {
	if q := r.opts.Queue; q != nil {
		return q.Places(kept)
	}
	return kept
}

// open returns the targets that Pick may see of those that were kept: all, or, if
// none of them is Ready and FailOpen is set, copies of those that are neither Draining nor
// Asleep with State Ready. It reports false if Pick could choose none of them.
func (r *Router) open(kept []Target) ([]Target, bool) {
	for i := range kept {
		if kept[i].State == Ready {
			return kept, true
		}
	}
	if !r.opts.FailOpen || r.opts.Queue != nil && slices.ContainsFunc(kept, isFull) {
		return nil, false
	}
	open := make([]Target, 0, len(kept))
	for _, t := range kept {
		if t.State != Draining && t.State != Asleep {
			t.State = Ready
			open = append(open, t)
		}
	}
	return open, len(open) > 0
}

func isFull(t Target) bool { return t.State == Full }

// noTarget counts why none was picked of those that were kept of the offered targets.
func (l *Lease) noTarget(offered int, kept []Target) *NoTargetError {
	e := &NoTargetError{Offered: offered, Excluded: offered - len(kept)}
	if _, ok := l.router.fleet.(ReadyTimer); ok && e.Excluded > 0 {
		l.eligible = make([]string, len(kept))
		for i := range kept {
			l.eligible[i] = kept[i].ID
		}
	}
	for i := range kept {
		if kept[i].State != Ready {
			e.NotReady++
		}
		if kept[i].State == Full {
			e.Full++
		}
	}
	return e
}

// retryAfter returns err, of a Choose, with the RetryAfter of the targets that l might
// go to, if some were ruled out.
func (l *Lease) retryAfter(err error) error {
	none, ok := err.(*NoTargetError)
	if !ok || l.eligible == nil {
		return err
	}
	c := *none
	if c.RetryAfter = 0; len(l.eligible) > 0 {
		c.RetryAfter = l.router.fleet.(ReadyTimer).ReadyIn(l.decision.Prompt, l.eligible)
	}
	return &c
}

// choose lets the fleet choose for a request with the prompt p.
func (r *Router) choose(ctx context.Context, p Prompt, pick func([]Target) (Decision, error)) (Decision,
	Flight, error) {
	if c, ok := r.fleet.(PromptChooser); ok {
		return c.ChoosePrompt(ctx, p, pick)
	}
	return r.fleet.Choose(ctx, pick)
}

// look shows f the targets that the fleet has for p, and has the fleet count nothing.
func (r *Router) look(ctx context.Context, p Prompt, f func([]Target)) error {
	seen := errors.New("router: only looking")
	_, _, err := r.choose(ctx, p, func(targets []Target) (Decision, error) {
		f(targets)
		return Decision{}, seen
	})
	if errors.Is(err, seen) {
		return nil
	}
	return err
}
