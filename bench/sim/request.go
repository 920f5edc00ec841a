package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
)

// send makes one attempt.
func (f *fleet) send(i int) {
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	if r.attempts == 0 {
		r.prompt = router.Prompt{Model: "bench", Adapter: t.Adapter, Session: t.Session}
		if !f.cfg.Policy.NoText {
			r.prompt.Text = t.PromptText()
		}
		if f.cfg.Tokens || f.cfg.Policy.Exact {
			r.ids = t.TokenIDs(i)
			r.prompt.Tokens = r.ids[:t.Input:t.Input]
		}
	}
	r.attempts++
	g := f.gates[r.gate]
	if g.line != nil {
		g.line.Route(g.router, r.prompt, r.exclude, func(l *router.Lease, err error) { f.start(i, l, err) })
		return
	}
	l, err := g.router.Route(context.Background(), r.prompt, r.exclude...)
	f.start(i, l, err)
}

// start hands request i to the engine that Route has chosen.
func (f *fleet) start(i int, l *router.Lease, err error) {
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	g := f.gates[r.gate]
	if err != nil {
		if !errors.Is(err, router.ErrNoTarget) {
			f.err = fmt.Errorf("sim: %s: request %d: %w", f.cfg.Policy.Name, i, err)
		}
		if none := (*router.NoTargetError)(nil); errors.As(err, &none) && none.Shed != "" {
			f.res.Shed++
		} else {
			f.res.Lost++
		}
		f.end(i)
		return
	}
	if r.attempts > 1 {
		f.res.Retries++
	}
	f.touch(int(r.gate))
	f.sent(int(r.gate), r.prompt, l.Decision().Target.ID)
	k := l.Decision().Target.Ref.(int)
	r.lease, r.replica = l, int32(k)
	g.inFlight[k]++
	f.res.PerReplica[k].Requests++
	e := f.engines[k]
	size := f.cfg.Calibration.BlockSize
	switch {
	case !e.alive:
		f.failed(i, errRefused)
		return
	case !e.fits(t.Input, t.Output):
		g.inFlight[k]--
		l.Done(router.Outcome{Status: 400, Err: errTooLong})
		f.res.Rejected++
		f.end(i)
		return
	}
	r.ideal, r.pooled = f.idealHit(f.hashes[i], t.Input, size)
	if g.prefill != nil && f.split(i) {
		return
	}
	f.submit(i, k, false, false)
}

// submit gives request i to engine k: all of it, its prompt alone, or all but the prompt, which was handed over.
func (f *fleet) submit(i, k int, pre, handed bool) {
	r, t, e := &f.reqs[i], &f.cfg.Workload.Requests[i], f.engines[k]
	s := &seq{req: int32(i), adapter: t.Adapter, hashes: f.hashes[i], ids: r.ids, prompt: t.Input,
		output: t.Output, pre: pre, handed: handed}
	if pre {
		s.output = 1
	}
	before := e.epoch
	e.submit(f.now, s)
	if e.epoch != before {
		f.watch(k)
	}
	f.publish(k)
}

// split has the prompt of request i, which is leased at a replica that decodes, computed by another one, if that is
// due and there is one for it.
func (f *fleet) split(i int) bool {
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	uncached := f.uncached(r)
	if uncached < f.cfg.Split.MinUncached {
		return false
	}
	g := f.gates[r.gate]
	l, err := g.prefill.Route(context.Background(), r.prompt)
	if err != nil {
		return false
	}
	k := l.Decision().Target.Ref.(int)
	if !f.engines[k].fits(t.Input, 1) {
		l.Done(router.Outcome{NotSent: true})
		return false
	}
	r.lease.PrefillElsewhere(true)
	r.pre, r.prefiller = l, int32(k)
	g.inFlight[k]++
	f.res.PerReplica[k].Requests++
	f.res.Split++
	f.res.HandedOver += int64(uncached)
	f.submit(i, k, true, false)
	return true
}

// uncached returns the tokens of a prompt that its policy believes to be missing at the chosen replica.
func (f *fleet) uncached(r *request) int {
	d := r.lease.Decision()
	n := d.Length - d.Cached
	if d.Unit == router.Bytes {
		n /= trace.BytesPerToken
	}
	return n
}

// prefilled hands the prompt of s over.
func (f *fleet) prefilled(s *seq) {
	r := &f.reqs[s.req]
	f.gates[r.gate].inFlight[r.prefiller]--
	r.pre.Done(router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: s.prompt, CachedTokens: s.cached,
		CachedReported: true, OutputTokens: 1})
	r.pre = nil
	f.touch(int(r.gate))
	took := f.cfg.Split.Token * Seconds(f.uncached(r))
	f.post(event{at: f.now + at(time.Duration(float64(took)*float64(time.Second))), kind: evHand, index: s.req})
}

var (
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
	errTooLong = errors.New("sim: longer than the cache of a replica")
)

// idealHit returns the part of a prompt that the infinite cache, and the pooled
// one, hold when it is sent. From then on they hold all of it, with the reply.
func (f *fleet) idealHit(hashes []uint64, prompt, size int) (ideal, pooled int) {
	usable := min((prompt-1)/size, len(hashes))
	for ideal < usable {
		if _, ok := f.seen[hashes[ideal]]; !ok {
			break
		}
		ideal++
	}
	for pooled < ideal && f.pooled.has(hashes[pooled]) {
		pooled++
	}
	for _, h := range hashes[ideal:] {
		f.seen[h] = struct{}{}
	}
	for i := len(hashes) - 1; i >= 0; i-- { // the end goes first
		f.pooled.put(hashes[i])
	}
	return ideal * size, pooled * size
}

func (f *fleet) firstToken(s *seq) {
	r := &f.reqs[s.req]
	if s.pre {
		r.pre.FirstToken()
		return
	}
	r.first = f.now
	if s.handed { // others came while its prompt was computed
		r.ideal, r.pooled = max(r.ideal, s.cached), max(r.pooled, s.cached)
	}
	if s.cached > r.ideal {
		f.err = fmt.Errorf("sim: %s: request %d found %d tokens, an infinite cache has %d", f.cfg.Policy.Name, s.req,
			s.cached, r.ideal)
	}
	f.believed(r, s)
	r.lease.FirstToken()
	f.touch(int(r.gate))
	p := &f.res.PerReplica[r.replica]
	p.PromptTokens += int64(s.prompt)
	p.CachedTokens += int64(s.cached)
	f.res.PromptTokens += int64(s.prompt)
	f.res.CachedTokens += int64(s.cached)
	f.res.LoadedTokens += int64(s.loaded)
	f.res.IdealShare += float64(r.ideal) // sums until the end
	f.res.PooledShare += float64(r.pooled)
	f.timeline.first(r.arrived, f.now, s.prompt, s.cached)
}

// believed compares the policy's prediction with the tokens that were found cached.
func (f *fleet) believed(r *request, s *seq) {
	d := r.lease.Decision()
	n := d.Cached
	if d.Unit == router.Bytes {
		n /= trace.BytesPerToken
	}
	f.res.BelievedTokens += int64(min(n, s.prompt))
	if off := n - s.cached; off > -f.cfg.Calibration.BlockSize && off < f.cfg.Calibration.BlockSize {
		f.res.RightShare++ // a count until the end
	}
}

func (f *fleet) finished(s *seq) {
	if s.pre {
		f.prefilled(s)
		return
	}
	i := int(s.req)
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: s.prompt, CachedTokens: s.cached,
		CachedReported: true, OutputTokens: s.made}
	if s.handed { // the engine reports the other replica's
		o.CachedTokens, o.CachedReported = 0, false
	}
	perToken := 0.0
	if s.made > 1 {
		perToken = (f.now - r.first).seconds() / float64(s.made-1)
		f.timeline.token = append(f.timeline.token, perToken)
	}
	if f.cfg.Good != nil && f.cfg.Good((r.first-r.arrived).seconds(), perToken) {
		f.res.Good++
	}
	if !f.cfg.Policy.NoText {
		o.Reply = t.KnownReply()
	}
	f.gates[r.gate].inFlight[r.replica]--
	r.lease.Done(o)
	f.touch(int(r.gate))
	f.res.Finished++
	f.res.OutputTokens += int64(s.made)
	f.end(i)
}

// failed settles an attempt as Router.Do would, and retries if Do would.
func (f *fleet) failed(i int, err error) {
	r := &f.reqs[i]
	f.gates[r.gate].inFlight[r.replica]--
	r.lease.Done(router.Outcome{Stage: router.Failed, Err: err})
	f.touch(int(r.gate))
	switch {
	case r.first != 0:
		f.res.Broken++
		f.end(i)
	case r.attempts >= f.cfg.Attempts:
		f.res.Lost++
		f.end(i)
	default:
		r.exclude = append(slices.Clip(r.exclude), f.ids[r.replica])
		r.lease = nil
		f.post(event{at: f.now + f.backoff(r.attempts), kind: evRetry, index: int32(i)})
	}
}

// backoff is that of router.Options: half of 25 ms to the whole, twice as long
// each time, at most a second.
func (f *fleet) backoff(attempt int) instant {
	b := min(at(25*time.Millisecond)<<min(attempt-1, 10), second)
	return b/2 + instant(f.rand.Int64N(int64(b/2)))
}

// end lets the followers of a request come, whatever became of it.
func (f *fleet) end(i int) {
	r := &f.reqs[i]
	r.prompt, r.ids, r.lease, r.exclude = router.Prompt{}, nil, nil, nil
	f.timeline.done(i, r, f.now)
	f.left--
	f.res.Time = f.now.seconds()
	for _, k := range f.after[i] {
		f.post(event{at: f.now + at(f.cfg.Workload.Requests[k].Think), kind: evArrive, index: k})
	}
}
