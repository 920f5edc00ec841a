package router

import "slices"

// holding returns the targets that p must go to, by ID: one list for each id of p.Must that Holders knows.
func (r *Router) holding(p Prompt) [][]string {
	if len(p.Must) == 0 {
		return nil
	}
	return r.opts.Holders.all(p.Must)
}

// holders returns copies of those of the kept targets that have the state, none if no list names
// any of them. The first list decides; each later one narrows the choice if it leaves any. If one
// of them is Ready, the others are left out; if none is, they are offered all the same, because no
// other target can answer: the copies are Ready then.
func holders(kept []Target, lists [][]string) (out []Target) {
	for _, ids := range lists {
		from := out
		if from == nil {
			from = kept
		}
		var have []Target
		for i := range from {
			if slices.Contains(ids, from[i].ID) {
				have = append(have, from[i])
			}
		}
		if have != nil {
			out = have
		}
	}
	if slices.ContainsFunc(out, func(t Target) bool { return t.State == Ready }) {
		return slices.DeleteFunc(out, func(t Target) bool { return t.State != Ready })
	}
	for i := range out {
		out[i].State = Ready
	}
	return out
}

// held is pick for a prompt that only some targets can answer. It returns false if none of them is offered.
func (r *Router) held(l *Lease, targets []Target, lists [][]string) (Decision, bool) {
	among := holders(r.kept(targets, l.attempt.exclude), lists)
	if len(among) == 0 {
		return Decision{}, false
	}
	var d Decision
	var err error
	if r.preparer == nil {
		d, err = r.strategy.Pick(l.ctx, l.decision.Prompt, among)
	} else {
		d, err = r.preparer.PickPrepared(l.ctx, l.decision.Prompt, among, l.prepared)
	}
	id := d.Target.ID
	if err != nil || !slices.ContainsFunc(among, func(t Target) bool { return t.ID == id }) {
		d, id = Decision{}, among[0].ID // a filter of the strategy's does not make another target have the state
	}
	d.Target = targets[slices.IndexFunc(targets, func(t Target) bool { return t.ID == id })]
	d.Reason = ReasonState
	return d, true
}

// explainHeld puts the targets that p must go to in front of cs, the candidates without regard to that.
func (r *Router) explainHeld(all []Target, lists [][]string, explain func([]Target) []Candidate) []Candidate {
	among := holders(all, lists)
	if len(among) == 0 {
		return explain(all)
	}
	front := explain(among)
	if len(front) == 0 {
		return explain(all)
	}
	front[0].Reason = ReasonState
	for i := range front {
		at := slices.IndexFunc(all, func(t Target) bool { return t.ID == front[i].Target.ID })
		if at >= 0 {
			front[i].Target = all[at]
		}
	}
	for _, c := range explain(all) {
		if !slices.ContainsFunc(front, func(f Candidate) bool { return f.Target.ID == c.Target.ID }) {
			front = append(front, c)
		}
	}
	return front
}

// bind remembers that the target of l has the state with these ids.
func (l *Lease) bind(ids []string) {
	for _, id := range ids[:min(len(ids), maxHeldIDs)] {
		l.router.opts.Holders.Bind(id, l.decision.Target.ID)
	}
}

// served remembers the state that l's target has shown to have by answering.
func (l *Lease) served() {
	l.bind(l.decision.Prompt.Must)
	l.bind(l.decision.Prompt.Brings)
}

// Made reports the ids of state that the reply has made at the target, as Outcome.Made does, at once: the next
// request may name one before the reply has ended. A host calls it before the client gets the bytes that name the
// id. It may be called more than once, and after the lease was settled.
func (l *Lease) Made(ids ...string) {
	if !l.zero() {
		l.bind(ids)
	}
}
