package sim

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/loadview"
)

// Run simulates one run to its end.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	f, err := newFleet(&cfg)
	if err != nil {
		return nil, err
	}
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	r := f.result()
	return r, r.check()
}

type fleet struct {
	cfg    *Config
	now    instant
	events eventHeap
	serial uint64

	engines  []*engine
	ids      []string
	gates    []*gate
	reqs     []request
	hashes   [][]uint64
	after    [][]int32 // followers of each request
	left     int       // requests that have not ended
	rand     *rand.Rand
	seen     map[uint64]struct{} // the infinite cache
	pooled   *tier               // the one of Result.PooledShare
	span     instant
	timeline timeline
	err      error

	res Result
}

// gate is one gateway: it shares nothing with the others.
type gate struct {
	view     *loadview.View
	router   *router.Router
	inFlight []int // by replica: what a scrape subtracts
	members  []loadview.Member
}

type request struct {
	gate     int32
	replica  int32
	attempts int
	exclude  []string
	prompt   router.Prompt
	lease    *router.Lease
	ideal    int // tokens that the infinite cache had
	pooled   int // and the pooled one
	arrived  instant
	first    instant // 0: not seen
}

// The kinds of events, in the order in which those of one instant happen: what
// arrives at the end of a step may be admitted to the next one.
const (
	evFleet uint8 = iota
	evBack
	evScrape
	evSample
	evArrive
	evRetry
	evStep
)

type event struct {
	at     instant
	serial uint64 // first come first, among equals
	epoch  uint32
	index  int32
	kind   uint8
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.serial < b.serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (f *fleet) post(e event) {
	f.serial++
	e.serial = f.serial
	heap.Push(&f.events, e)
}

// base is the time at which runs begin.
var base = time.Unix(1_700_000_000, 0)

func (f *fleet) clock() time.Time { return base.Add(f.now.duration()) }

func newFleet(cfg *Config) (*fleet, error) {
	w := cfg.Workload
	f := &fleet{
		cfg:    cfg,
		reqs:   make([]request, len(w.Requests)),
		hashes: w.Blocks(cfg.Calibration.BlockSize),
		after:  make([][]int32, len(w.Requests)),
		left:   len(w.Requests),
		rand:   rand.New(rand.NewPCG(cfg.Seed, 1)),
		pooled: newTier(cfg.Calibration.Blocks * cfg.Replicas),
		seen:   make(map[uint64]struct{}, len(w.Requests)*8),
	}
	for i := range cfg.Replicas {
		f.addEngine(cfg.speed(i))
	}
	for g := range cfg.Gateways {
		if err := f.addGate(g); err != nil {
			return nil, err
		}
	}
	for i := range w.Requests {
		r := &w.Requests[i]
		if r.After != trace.None {
			f.after[r.After] = append(f.after[r.After], int32(i))
			continue
		}
		f.post(event{at: at(r.Arrival), kind: evArrive, index: int32(i)})
		f.span = max(f.span, at(r.Arrival))
	}
	for i, e := range cfg.Events {
		f.post(event{at: at(e.At), kind: evFleet, index: int32(i)})
	}
	if cfg.Scrape > 0 {
		for g := range f.gates {
			// Gateways do not scrape in step.
			first := at(cfg.Scrape) * instant(g+1) / instant(len(f.gates))
			f.post(event{at: first, kind: evScrape, index: int32(g)})
		}
	}
	f.timeline.init(f.span)
	f.post(event{at: f.timeline.step, kind: evSample})
	return f, nil
}

func (f *fleet) addEngine(speed float64) {
	i := len(f.engines)
	e := newEngine(&f.cfg.Calibration, speed)
	e.single = f.cfg.single
	e.first = func(s *seq) { f.firstToken(s) }
	e.finished = func(s *seq) { f.finished(s) }
	f.engines = append(f.engines, e)
	f.ids = append(f.ids, fmt.Sprintf("replica-%d", i))
	f.res.PerReplica = append(f.res.PerReplica, Replica{ID: f.ids[i]})
}

func (f *fleet) addGate(g int) error {
	source := rand.New(rand.NewPCG(f.cfg.Seed, uint64(g)+1000))
	s, err := f.cfg.Policy.New(Env{Rand: source.Uint64, Now: f.clock, Calibration: f.cfg.Calibration, Replicas: f.cfg.Replicas})
	if err != nil {
		return fmt.Errorf("sim: %s: %w", f.cfg.Policy.Name, err)
	}
	jitter := rand.New(rand.NewPCG(f.cfg.Seed, uint64(g)+2000))
	c := loadview.Config{Now: f.clock, Rand: jitter.Uint64}
	if x, ok := s.(router.Forgetter); ok {
		c.Trace.Forget = x.Forget
	}
	v, err := loadview.New(c)
	if err != nil {
		return err
	}
	gt := &gate{view: v, router: router.New(s, v, router.Options{Rand: jitter.Uint64})}
	f.gates = append(f.gates, gt)
	return f.offer(gt)
}

// offer tells a gateway which replicas there are.
func (f *fleet) offer(g *gate) error {
	for i := len(g.members); i < len(f.ids); i++ {
		g.members = append(g.members, loadview.Member{ID: f.ids[i], Ref: i})
		g.inFlight = append(g.inFlight, 0)
	}
	return g.view.Set(g.members)
}

func (f *fleet) run(ctx context.Context) error {
	for n := 0; f.left > 0 && f.err == nil; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(f.events) == 0 {
			return errors.New("sim: requests are left and nothing is to happen")
		}
		e := heap.Pop(&f.events).(event)
		f.now = e.at
		i := int(e.index)
		switch e.kind {
		case evArrive:
			r := &f.reqs[i]
			r.arrived = f.now
			r.gate = int32(f.rand.IntN(len(f.gates)))
			f.timeline.arrived(f.now)
			f.send(i)
		case evRetry:
			f.send(i)
		case evStep:
			if en := f.engines[i]; en.busy && en.epoch == e.epoch {
				en.finish(f.now)
				f.watch(i)
			}
		case evScrape:
			f.scrape(f.gates[i])
			f.post(event{at: f.now + at(f.cfg.Scrape), kind: evScrape, index: e.index})
		case evSample:
			f.timeline.sample(f.engines)
			f.post(event{at: f.now + f.timeline.step, kind: evSample})
		case evFleet:
			f.happen(i)
		case evBack:
			f.back(i)
		}
		if f.cfg.verify != nil {
			for _, en := range f.engines {
				f.cfg.verify(en)
			}
		}
	}
	return f.err
}

// watch posts the end of what engine i is at.
func (f *fleet) watch(i int) {
	if e := f.engines[i]; e.busy {
		f.post(event{at: e.end, kind: evStep, index: int32(i), epoch: e.epoch})
	}
}

// send makes one attempt.
func (f *fleet) send(i int) {
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	if r.attempts == 0 {
		r.prompt = router.Prompt{Model: "bench", Session: t.Session}
		if !f.cfg.Policy.NoText {
			r.prompt.Text = t.PromptText()
		}
		if f.cfg.Tokens {
			r.prompt.Tokens = tokenIDs(t)
		}
	}
	r.attempts++
	g := f.gates[r.gate]
	l, err := g.router.Route(context.Background(), r.prompt, r.exclude...)
	if err != nil {
		if !errors.Is(err, router.ErrNoTarget) {
			f.err = fmt.Errorf("sim: %s: request %d: %w", f.cfg.Policy.Name, i, err)
		}
		f.res.Lost++
		f.end(i)
		return
	}
	if r.attempts > 1 {
		f.res.Retries++
	}
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
	before := e.epoch
	e.submit(f.now, &seq{req: int32(i), hashes: f.hashes[i], prompt: t.Input, output: t.Output})
	if e.epoch != before {
		f.watch(k)
	}
}

var (
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
	errTooLong = errors.New("sim: longer than the cache of a replica")
)

// tokenIDs are the bytes of the text, four to an id.
func tokenIDs(t *trace.Request) []uint32 {
	text := t.PromptText()
	ids := make([]uint32, 0, t.Input)
	var b [4]byte
	for len(text) > 0 {
		n := copy(b[:], text)
		clear(b[n:])
		ids = append(ids, binary.LittleEndian.Uint32(b[:]))
		text = text[n:]
	}
	return ids
}

// idealHit is what the infinite cache, and the pooled one, have of a prompt that
// is sent now. They have the whole of it, reply included, from then on.
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
	r.first = f.now
	if s.cached > r.ideal {
		f.err = fmt.Errorf("sim: %s: request %d found %d tokens where an infinite cache has %d", f.cfg.Policy.Name, s.req, s.cached, r.ideal)
	}
	r.lease.FirstToken()
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

func (f *fleet) finished(s *seq) {
	i := int(s.req)
	r, t := &f.reqs[i], &f.cfg.Workload.Requests[i]
	o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: s.prompt, CachedTokens: s.cached, OutputTokens: s.made}
	if !f.cfg.Policy.NoText {
		o.Reply = t.KnownReply()
	}
	f.gates[r.gate].inFlight[r.replica]--
	r.lease.Done(o)
	f.res.Finished++
	f.res.OutputTokens += int64(s.made)
	f.end(i)
}

// failed settles an attempt as Router.Do would, and tries again where that would.
func (f *fleet) failed(i int, err error) {
	r := &f.reqs[i]
	f.gates[r.gate].inFlight[r.replica]--
	r.lease.Done(router.Outcome{Stage: router.Failed, Err: err})
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
	r.prompt, r.lease, r.exclude = router.Prompt{}, nil, nil
	f.timeline.done(i, r, f.now)
	f.left--
	f.res.Time = f.now.seconds()
	for _, k := range f.after[i] {
		f.post(event{at: f.now + at(f.cfg.Workload.Requests[k].Think), kind: evArrive, index: k})
	}
}

func (f *fleet) scrape(g *gate) {
	for k, e := range f.engines {
		n := -1
		if e.alive {
			n = max(0, e.queued()-g.inFlight[k])
		}
		// The ids are those that Set was given.
		_ = g.view.SetQueued(f.ids[k], n)
	}
}

func (f *fleet) happen(i int) {
	ev := &f.cfg.Events[i]
	switch ev.Kind {
	case Die:
		e := f.engines[ev.Replica]
		if !e.alive {
			return
		}
		for _, s := range e.kill(f.now) {
			f.failed(int(s.req), errReset)
		}
		if ev.Down > 0 {
			f.post(event{at: f.now + at(ev.Down), kind: evBack, index: int32(i)})
		}
	case Slow:
		f.engines[ev.Replica].slow(f.now, ev.Speed, &f.cfg.Calibration)
		f.watch(ev.Replica)
	case Join:
		speed := ev.Speed
		if speed == 0 {
			speed = 1
		}
		f.addEngine(speed)
		for _, g := range f.gates {
			if err := f.offer(g); err != nil {
				f.err = err
			}
		}
	}
}

func (f *fleet) back(i int) {
	ev := &f.cfg.Events[i]
	f.engines[ev.Replica].alive = true
	if ev.Tell {
		for _, g := range f.gates {
			g.view.Forget(f.ids[ev.Replica])
		}
	}
}
