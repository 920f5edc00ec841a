package loadview

import (
	"context"
	"errors"
	"fmt"

	"github.com/warmroute/router"
)

var errNoPick = errors.New("loadview: Choose: pick is nil")

// Choose offers every member, in the order of Set, lets pick choose and counts
// the choice, under one lock. It does not look at ctx.
//
// pick must not call the View, but for Snapshot. Its choice may be in any state;
// only its Target.ID is looked at, and one that was not offered is an error.
// If pick fails or panics nothing is counted and the View goes on. A
// *router.NoTargetError that pick returned unwrapped and without a RetryAfter comes
// back as a copy with the time until the first member that was offered and is not Ready may be.
//
// Prefill grows by the Decision's Length-Cached (a quarter of that in bytes),
// and falls by as much at FirstToken or Done.
func (v *View) Choose(ctx context.Context, pick func([]router.Target) (router.Decision, error)) (router.Decision,
	router.Flight, error) {
	return v.chooseFor(nil, nil, nil, pick)
}

// ChoosePrompt is Choose for a request with the prompt p. A member that is Full for
// other models or accounts alone is offered as Ready. If no member is Ready, one that
// is Full for p's is offered as Ready too now and then, so that the end of an overload
// is seen whatever a Retry-After said.
func (v *View) ChoosePrompt(ctx context.Context, p router.Prompt,
	pick func([]router.Target) (router.Decision, error)) (router.Decision, router.Flight, error) {
	to := partyOf(&p)
	return v.chooseFor(&p, &to, nil, pick)
}

// ChoosePart is ChoosePrompt among a part of the members: those that part returns of
// all, with other Weights and Refs if it likes, in a slice that may be all's own or
// part's. They are offered as the members of a View of their own would be: by
// [Config.PanicThreshold], which Trace.PanicChanged does not report here, and by
// whether one of them is Ready. part is called like pick.
func (v *View) ChoosePart(ctx context.Context, p router.Prompt, part func(all []router.Target) []router.Target,
	pick func([]router.Target) (router.Decision, error)) (router.Decision, router.Flight, error) {
	to := partyOf(&p)
	return v.chooseFor(&p, &to, part, pick)
}

func (v *View) chooseFor(
	p *router.Prompt, to *party, part func([]router.Target) []router.Target,
	pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	if pick == nil {
		return router.Decision{}, nil, errNoPick
	}
	d, f, err := v.choose(p, to, part, pick)
	v.notify()
	if err != nil {
		return router.Decision{}, nil, err
	}
	return d, f, nil
}

func (v *View) choose(
	p *router.Prompt, to *party, part func([]router.Target) []router.Target,
	pick func([]router.Target) (router.Decision, error),
) (router.Decision, *flight, error) {
	v.mu.Lock()
	defer v.mu.Unlock() // deferred: pick is not ours, and may panic
	if v.due != 0 {
		if now := v.now(); now >= v.due {
			v.expire(now)
		}
	}
	if len(v.warming) > 0 {
		v.warmUp()
	}
	r := v.roster.Load()
	copy(v.offered, v.truth)
	offered, panicking := v.offered, v.panicking
	if part != nil {
		offered = part(offered)
		panicking = v.offerPart(offered)
	}
	v.offerTo(to, offered)
	if p != nil && v.lacking > 0 {
		v.passOver(p, offered)
	}
	d, err := pick(offered)
	if err != nil {
		if e, ok := err.(*router.NoTargetError); ok && e != nil && e.RetryAfter == 0 {
			c := *e
			ids := make([]string, len(offered))
			for i := range offered {
				ids[i] = offered[i].ID
			}
			c.RetryAfter = v.readyIn(ids, to)
			err = &c
		}
		return d, nil, err
	}
	m := r.byID[d.Target.ID]
	if m == nil {
		return d, nil, fmt.Errorf("loadview: Choose: pick chose %q, which was not offered", d.Target.ID)
	}
	m.sent++
	f := &flight{pool: v.pool, member: m, epoch: m.epoch, seq: m.sent, answers: m.answers,
		text: d.Prompt.Text, tokens: d.Prompt.Tokens, prefill: prefill(d), context: lengthOf(d),
		spared: panicking && m.standing&out != 0}
	f.limit = m.limitOf(partyOf(&d.Prompt))
	f.wanted = wantedBy(&d.Prompt)
	limited := f.limit.until != 0
	if limited {
		now := v.now()
		if f.tried = f.limit.heldUntil(now) != 0; f.tried {
			f.limit.again = max(f.limit.again, now+v.cfg.Load().FullFor)
		}
	}
	f.limit.live++
	n := m.inFlight.Load() + 1
	m.inFlight.Store(n)
	m.peak = max(m.peak, n)
	m.prefill.Store(m.prefill.Load() + f.prefill)
	m.peers.context += f.context
	v.putLoad(m)
	halfOpen := m.halfOpen()
	if halfOpen {
		m.probe = f
		m.set(probing, true)
	}
	if halfOpen || limited {
		now := v.now()
		v.putLimits(m, now)
		v.putState(m, now)
	}
	return d, f, nil
}

// maxPrefill bounds one request's part, so that no sum of them overflows.
const maxPrefill int64 = 1 << 40

// prefill returns the tokens that d's target has to prefill. Four bytes of text
// count as a token.
func prefill(d router.Decision) int64 {
	n := int64(max(d.Length, 0)) - int64(max(d.Cached, 0))
	if d.Unit != router.Tokens {
		n /= 4
	}
	return min(max(n, 0), maxPrefill)
}

// flight is one counted request. It holds the member with the counter that it
// raised: one that left and came back is another.
type flight struct {
	pool    *pool
	member  *member
	prefill int64 // its part of member.prefill
	// elsewhere is prefill while another member computes it.
	elsewhere int64
	context   int64    // and of member.peers.context
	epoch     uint32   // member.epoch when it was sent
	seq       uint64   // member.sent when it was sent
	answers   uint64   // member.answers when it was sent
	text      string   // the prompt's
	tokens    []uint32 // the prompt's
	limit     *limit   // its party's at member
	wanted    wanted
	tried     bool // sent although the limit held its party back
	spared    bool // sent in a panic, to a member that was out
	began     bool // a first token was seen
	done      bool
}

// PrefillElsewhere takes the request off Prefill, or counts it there again.
func (f *flight) PrefillElsewhere(elsewhere bool) {
	p, m := f.pool, f.member
	p.mu.Lock()
	if !f.began && !f.done {
		from, to := &f.prefill, &f.elsewhere
		if !elsewhere {
			from, to = to, from
		}
		m.prefill.Store(m.prefill.Load() - f.prefill)
		*from, *to = 0, *from+*to
		m.prefill.Store(m.prefill.Load() + f.prefill)
		p.putLoad(m)
	}
	p.mu.Unlock()
	p.notify()
}

// FirstToken takes the request off Prefill. If it is the one that a half-open
// breaker let through, it has succeeded: a long stream need not end first.
func (f *flight) FirstToken() {
	p, m := f.pool, f.member
	p.mu.Lock()
	if !f.began && !f.done {
		f.began = true
		p.answered(m)
	}
	if (m.probe == f || f.spared && m.standing&out != 0) && !f.done {
		p.learn(f, success, 0, 0)
		f.epoch = m.epoch // the rest of it counts like any other request
	}
	if f.tried && !f.done { // the limit is no more
		f.tried = false
		f.limit.lift()
		now := p.now()
		p.putLimits(m, now)
		p.putState(m, now)
	}
	if f.prefill != 0 {
		m.prefill.Store(m.prefill.Load() - f.prefill)
		f.prefill = 0
		p.putLoad(m)
	}
	p.mu.Unlock()
	p.notify()
}

// Done takes the request off the counters and learns from o. A Stage that is not
// final is derived: Canceled if Err is context.Canceled, Failed if there
// is another Err or Status >= 400, else Finished.
func (f *flight) Done(o router.Outcome) {
	p, m := f.pool, f.member
	w, pause := p.judge(o)
	var key uint64
	lacks := w == neither && o.Lacks()
	if lacks || w == failure && suspicious(o) || w == success && p.suspected.Load() {
		key = p.suspects.key(f.text, f.tokens)
	}
	p.mu.Lock()
	if f.done {
		p.mu.Unlock()
		return
	}
	f.done = true
	if w == failure && o.Status == 0 && m.answers != f.answers && timedOut(o.Err) {
		w = neither // it answers others meanwhile: this request takes long
	}
	if o.Status != 0 || w == success {
		p.answered(m)
	}
	if w == failure && o.Status == 0 && deafTo(o.Err) {
		m.set(deaf, true)
	}
	m.inFlight.Store(m.inFlight.Load() - 1)
	f.limit.live--
	m.prefill.Store(m.prefill.Load() - f.prefill)
	f.prefill = 0
	m.peers.context -= f.context
	p.putLoad(m)
	news := lacks && p.lacked(f, key, o.Status)
	if w == success {
		f.limit.good = true
		m.recent.add(w)
	}
	// The usual end of a request on a member in good health needs no clock.
	if w == failure || w == refusal || pause > 0 || m.probe == f || f.limit.until != 0 ||
		w == success && (key != 0 || m.blemished() || f.spared) {
		p.learn(f, w, pause, key)
	}
	p.mu.Unlock()
	p.notify()
	if hook := p.cfg.Load().Trace.Lacks; news && hook != nil {
		hook(m.id, f.wanted.name())
	}
}

// answered notes that an answer came from m.
func (p *pool) answered(m *member) {
	m.answers++
	if m.has(deaf) {
		m.set(deaf, false)
		p.putState(m, p.now())
	}
}
