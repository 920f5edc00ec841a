package sim

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
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
	// A View's clock is f's. A Router leaves its View when it is collected, so it is kept as long as that can reach it.
	f.gates, f.engines, f.reqs, f.hashes, f.seen, f.pooled = nil, nil, nil, nil, nil, nil
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
	streams  []stream // of the engines' KV events
	drops    *rand.Rand
	losses   *rand.Rand
	mail     map[uint32][]byte // frames under way
	mails    uint32
	services map[string]func([]byte) []byte
	touched  []int // gates that have something to publish
	reqs     []request
	hashes   [][]uint64
	after    [][]int32 // followers of each request
	left     int       // requests that have not ended
	rand     *rand.Rand
	seen     map[uint64]struct{} // the infinite cache
	pooled   *tier               // the one of Result.PooledShare
	span     instant
	timeline timeline
	tick     atomic.Int64 // now, for clock
	err      error

	res Result
}

// gate is one gateway.
type gate struct {
	share    *share.Share // nil: it shares nothing with the others by package share
	paths    *paths       // nil: nor whole paths
	strategy router.Strategy
	receive  func([]byte)
	polled   instant // when Poll is to be called; 0: not
	touched  bool
	line     *Line // nil: there is none
	view     *loadview.View
	router   *router.Router
	prefill  *router.Router // over the replicas that compute prompts only; nil: there are none
	listener listener
	inFlight []int // by replica: the requests that a scrape subtracts
	members  []loadview.Member
}

type request struct {
	gate     int32
	replica  int32
	attempts int
	exclude  []string
	prompt   router.Prompt
	ids      []uint32 // tokens of prompt and output, if they are requested
	lease    *router.Lease
	// Where another replica computes the prompt.
	pre       *router.Lease
	prefiller int32

	ideal   int // tokens that the infinite cache had
	pooled  int // and the pooled one
	arrived instant
	first   instant // 0: not seen
}

// The kinds of events, in their order within one instant: a request that
// arrives at the end of a step may be admitted to the next one.
const (
	evFleet uint8 = iota
	evBack
	evScrape
	evSample
	evHear
	evReplay
	evFrame
	evPoll
	evGossip
	evLine
	evArrive
	evRetry
	evHand
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

// clock is read by goroutines of a Share too.
func (f *fleet) clock() time.Time { return base.Add(instant(f.tick.Load()).duration()) }

func newFleet(cfg *Config) (*fleet, error) {
	w := cfg.Workload
	f := &fleet{
		cfg:    cfg,
		reqs:   make([]request, len(w.Requests)),
		hashes: w.Blocks(cfg.Calibration.BlockSize),
		after:  make([][]int32, len(w.Requests)),
		left:   len(w.Requests),
		rand:   rand.New(rand.NewPCG(cfg.Seed, 1)),
		drops:  dropSource(cfg.Seed),
		losses: rand.New(rand.NewPCG(cfg.Seed, 4)),
		mail:   map[uint32][]byte{}, services: map[string]func([]byte) []byte{},
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
	for g, gt := range f.gates {
		if gt.share != nil {
			if _, err := gt.share.Open(); err != nil {
				return nil, err
			}
			f.touch(g)
		}
		if gt.paths != nil {
			f.post(event{at: f.tickOf(g) + at(cfg.Share.Lag), kind: evGossip, index: int32(g)})
		}
	}
	f.poll()
	f.timeline.init(f.span)
	f.post(event{at: f.timeline.step, kind: evSample})
	return f, nil
}

func (f *fleet) addEngine(speed float64) {
	i := len(f.engines)
	e := newEngine(&f.cfg.Calibration, speed)
	e.single = f.cfg.single
	e.slots, e.toLoad = f.cfg.Slots, instant(float64(f.cfg.Load)*float64(second)/speed)
	e.first = func(s *seq) { f.firstToken(s) }
	e.finished = func(s *seq) { f.finished(s) }
	if f.cfg.Policy.Exact {
		e.pool.news = &news{size: f.cfg.Calibration.BlockSize}
	}
	f.engines = append(f.engines, e)
	f.streams = append(f.streams, stream{})
	f.ids = append(f.ids, fmt.Sprintf("replica-%d", i))
	f.res.PerReplica = append(f.res.PerReplica, Replica{ID: f.ids[i]})
}

func (f *fleet) addGate(g int) error {
	source := rand.New(rand.NewPCG(f.cfg.Seed, uint64(g)+1000))
	gt := new(gate)
	if f.cfg.Policy.Exact {
		var err error
		if gt.listener.index, err = kvindex.New(kvindex.Config{}); err != nil {
			return err
		}
	}
	if err := f.join(gt, g); err != nil {
		return err
	}
	s, err := f.cfg.Policy.New(Env{
		Share: gt.share,
		Rand:  source.Uint64, Now: f.clock, Calibration: f.cfg.Calibration, Replicas: f.cfg.Replicas,
		Index: gt.listener.index, Adapters: f.adapters,
	})
	if err != nil {
		return fmt.Errorf("sim: %s: %w", f.cfg.Policy.Name, err)
	}
	jitter := rand.New(rand.NewPCG(f.cfg.Seed, uint64(g)+2000))
	v, err := loadview.New(loadview.Config{Now: f.clock, Rand: jitter.Uint64, Share: gt.share})
	if err != nil {
		return err
	}
	opts := router.Options{Rand: jitter.Uint64}
	if f.cfg.Line != nil {
		if gt.line, err = NewLine(*f.cfg.Line, f.clock); err != nil {
			return err
		}
		opts.Queue = gt.line
	}
	gt.strategy = s
	gt.view, gt.router = v, router.New(s, v, opts)
	if x := f.cfg.Split; x != nil {
		all := gt.router
		gt.prefill = all.Among(func(t router.Target) bool { return t.Ref.(int) < x.Prefill })
		gt.router = all.Among(func(t router.Target) bool { return t.Ref.(int) >= x.Prefill })
	}
	f.gates = append(f.gates, gt)
	return f.offer(gt)
}

// offer sets the replicas of a gateway.
func (f *fleet) offer(g *gate) error {
	for i := len(g.members); i < len(f.ids); i++ {
		g.members = append(g.members, loadview.Member{ID: f.ids[i], Ref: i})
		g.inFlight = append(g.inFlight, 0)
		if g.listener.index != nil {
			if err := f.listen(&g.listener, i); err != nil {
				return err
			}
		}
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
		f.tick.Store(int64(e.at))
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
		case evHand:
			f.submit(i, int(f.reqs[i].replica), false, true)
		case evStep:
			if en := f.engines[i]; en.busy && en.epoch == e.epoch {
				en.finish(f.now)
				f.watch(i)
				f.publish(i)
			}
		case evScrape:
			f.scrape(f.gates[i])
			f.post(event{at: f.now + at(f.cfg.Scrape), kind: evScrape, index: e.index})
		case evSample:
			f.timeline.sample(f.engines)
			f.post(event{at: f.now + f.timeline.step, kind: evSample})
		case evHear:
			f.hear(i%len(f.gates), i/len(f.gates), int(e.epoch))
		case evReplay:
			f.replay(i%len(f.gates), i/len(f.gates), int(e.epoch))
		case evFrame:
			f.deliver(i, e.epoch)
		case evGossip:
			f.gossip(i)
			f.post(event{at: f.now + at(f.cfg.Share.Every), kind: evGossip, index: e.index})
		case evPoll:
			if g := f.gates[i]; g.polled == f.now {
				f.touch(i)
			}
		case evLine:
			// settle, below, does it.
		case evFleet:
			f.happen(i)
		case evBack:
			f.back(i)
		}
		f.settle()
		f.poll()
		if f.cfg.verify != nil {
			for _, en := range f.engines {
				f.cfg.verify(en)
			}
		}
	}
	return f.err
}

// watch posts the end of engine i's current step.
func (f *fleet) watch(i int) {
	if e := f.engines[i]; e.busy {
		f.post(event{at: e.end, kind: evStep, index: int32(i), epoch: e.epoch})
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
	f.reborn(ev.Replica)
	if ev.Tell {
		for _, g := range f.gates {
			g.view.Forget(f.ids[ev.Replica])
		}
	}
}
