package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// small makes an engine that is short of everything.
func small(r *rand.Rand) Calibration {
	c := Calibration{
		Name: "small", Step: 1e-3, PrefillToken: 1e-5, Attention: 1e-7, Sequence: 1e-5, DecodeContext: 1e-6, LoadToken: 1e-6,
		Sequences: 1 + r.IntN(6), BlockSize: 1 + r.IntN(6),
	}
	c.StepTokens = c.Sequences + r.IntN(20)
	c.Blocks = 8 + r.IntN(40)
	if r.IntN(2) == 0 {
		c.CPUBlocks = 1 + r.IntN(40)
	}
	return c
}

// crowd makes requests with contents that are paths in a tree, so that they share,
// and the same ones come again.
func crowd(r *rand.Rand, c *Calibration, n int) []*naiveSeq {
	var all []*naiveSeq
	at := instant(0)
	for i := range n {
		if r.IntN(3) > 0 {
			at += instant(r.Int64N(int64(second / 50)))
		}
		room := c.Blocks * c.BlockSize
		s := &naiveSeq{id: i, arrive: at, prompt: 1 + r.IntN(room*2/3), output: 1 + r.IntN(room/4)}
		h, own := uint64(1), r.IntN(6)
		for k := range (s.prompt + s.output) / c.BlockSize {
			branch := uint64(0)
			if k >= own {
				branch = 1 + uint64(r.IntN(2))
				if r.IntN(4) == 0 {
					branch = uint64(100 + i)
				}
			}
			h = h*1_000_003 + branch*7919 + 17
			s.hashes = append(s.hashes, h)
		}
		all = append(all, s)
	}
	return all
}

// drive runs the engine with the same requests.
func drive(t *testing.T, c Calibration, all []*naiveSeq, single bool) (*engine, []*naiveSeq) {
	t.Helper()
	out := make([]*naiveSeq, len(all))
	e := newEngine(&c, 1)
	e.single = single
	var now instant
	e.first = func(s *seq) { out[s.req].first = now }
	e.finished = func(s *seq) {
		o := out[s.req]
		o.end, o.cached, o.loaded, o.made = now, s.cached, s.loaded, s.made
	}
	for i := 0; i < len(all) || e.busy; {
		if i < len(all) && (!e.busy || all[i].arrive <= e.end) {
			a := all[i]
			now = max(now, a.arrive)
			out[i] = &naiveSeq{id: i}
			e.submit(now, &seq{req: int32(i), hashes: a.hashes, prompt: a.prompt, output: a.output})
			i++
			// All of one instant are there before a step begins, as in a run's naive
			// counterpart; an idle engine begins with the first.
		} else {
			now = e.end
			e.finish(now)
		}
		checkEngine(t, e)
	}
	return e, out
}

func sameRun(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	c := small(r)
	all := crowd(r, &c, 40)
	// An idle engine takes the first of several that come at once alone. Let none
	// come at once.
	for i := 1; i < len(all); i++ {
		all[i].arrive = max(all[i].arrive, all[i-1].arrive+1)
	}
	e, got := drive(t, c, all, false)
	one, alone := drive(t, c, all, true)
	n := newNaive(c)
	n.run(slices.Clone(all))
	for i, want := range all {
		g, s := got[i], alone[i]
		if g.first != want.first || g.end != want.end || g.cached != want.cached || g.loaded != want.loaded ||
			g.made != want.output {
			t.Fatalf("seed %d, %+v, request %d: first %d end %d cached %d loaded %d; want %d %d %d %d", seed, c, i,
				g.first, g.end, g.cached, g.loaded, want.first, want.end, want.cached, want.loaded)
		}
		if s.first != g.first || s.end != g.end || s.cached != g.cached {
			t.Fatalf("seed %d, request %d: single steps give another result", seed, i)
		}
	}
	if e.preempted != n.preempt || one.preempted != n.preempt {
		t.Fatalf("seed %d: %d and %d preempted, want %d", seed, e.preempted, one.preempted, n.preempt)
	}
}

func TestEngineAgainstNaive(t *testing.T) {
	for seed := range uint64(400) {
		sameRun(t, seed)
	}
}

func FuzzEngine(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed * 1000)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { sameRun(t, seed) })
}

// checkEngine compares the counts of an engine with its requests.
func checkEngine(t testing.TB, e *engine) {
	t.Helper()
	p := e.pool
	refs := make(map[int32]int32)
	for _, s := range e.running {
		if len(s.blocks)*e.cal.BlockSize < s.have || s.have > s.prompt+s.made || s.made >= s.output && e.busy {
			t.Fatalf("a request with %d of %d tokens has %d blocks, %d of %d made", s.have, s.prompt, len(s.blocks),
				s.made, s.output)
		}
		for _, b := range s.blocks {
			refs[b]++
		}
	}
	for i := e.waiting.from; i < len(e.waiting.items); i++ {
		if s := e.waiting.items[i]; len(s.blocks) > 0 {
			t.Fatal("a request that waits has blocks")
		}
	}
	free, before := 0, none
	for i := p.head; i != none; i = p.blocks[i].next {
		if p.blocks[i].prev != before || p.blocks[i].ref != 0 || free > len(p.blocks) {
			t.Fatal("the list of free blocks is broken")
		}
		before = i
		free++
	}
	if before != p.tail || free != p.free {
		t.Fatalf("%d blocks are in the list, %d are counted", free, p.free)
	}
	found := 0
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.ref != refs[int32(i)] {
			t.Fatalf("block %d has %d references, %d requests hold it", i, b.ref, refs[int32(i)])
		}
		if b.ref == 0 {
			free--
		}
		if b.found {
			found++
			if p.byHash[b.hash] != int32(i) {
				t.Fatalf("block %d is not found by its hash", i)
			}
		}
	}
	if free != 0 || found != len(p.byHash) {
		t.Fatalf("%d free blocks are not in the list; %d of %d can be found", -free, found, len(p.byHash))
	}
	if c := p.cpu; c != nil {
		n := 0
		for i := c.head; i != none; i = c.nodes[i].next {
			n++
		}
		if n != len(c.byHash) || n > c.max {
			t.Fatalf("%d of %d blocks in CPU memory, which holds %d", n, len(c.byHash), c.max)
		}
	}
	if len(e.running) > e.cal.Sequences {
		t.Fatalf("%d run, %d may", len(e.running), e.cal.Sequences)
	}
}

func TestOneRequestAlone(t *testing.T) {
	c := Calibrations()[0]
	const prompt, output = 20_000, 300
	_, got := drive(t, c, []*naiveSeq{{arrive: second, prompt: prompt, output: output}}, false)
	n := float64(prompt)
	ttft := 3*14e-3 + 46e-6*n + 0.8e-9*n*(n+1)/2 // three chunks of 8,192 at most
	if d := (got[0].first - second).seconds() - ttft; math.Abs(d) > 1e-9 {
		t.Errorf("first token after %v, want %v", (got[0].first - second).seconds(), ttft)
	}
	rest := 0.0
	for k := 1; k < output; k++ {
		rest += 14e-3 + 56e-9*(n+float64(k))
	}
	if d := (got[0].end - got[0].first).seconds() - rest; math.Abs(d) > 1e-9 {
		t.Errorf("the rest after %v, want %v", (got[0].end - got[0].first).seconds(), rest)
	}
}

// TestQueueingTheory: prompts that fill a step each, with a reply of one token,
// make the engine a queue with Poisson arrivals and a constant time of service.
func TestQueueingTheory(t *testing.T) {
	c := Calibrations()[0]
	c.StepTokens = 512
	d := 14e-3 + 46e-6*512 + 0.8e-9*512*513/2
	for _, load := range []float64{0.3, 0.6, 0.8} {
		r := rand.New(rand.NewPCG(1, uint64(load*100)))
		var all []*naiveSeq
		at := 0.0
		for i := range 60_000 {
			at += r.ExpFloat64() * d / load
			all = append(all, &naiveSeq{id: i, arrive: instant(at * 1e12), prompt: 512, output: 1})
		}
		out := make([]float64, 0, len(all))
		e := newEngine(&c, 1)
		var now instant
		e.first = func(s *seq) { out = append(out, (now - all[s.req].arrive).seconds()) }
		e.finished = func(*seq) {}
		for i := 0; i < len(all) || e.busy; {
			if i < len(all) && (!e.busy || all[i].arrive <= e.end) {
				now = all[i].arrive
				e.submit(now, &seq{req: int32(i), prompt: 512, output: 1})
				i++
			} else {
				now = e.end
				e.finish(now)
			}
		}
		want := d + load*d/(2*(1-load)) // Pollaczek and Khinchine
		if got := distOf(out).Mean; math.Abs(got/want-1) > 0.03 {
			t.Errorf("load %v: mean time %v, theory says %v", load, got, want)
		}
	}
}

func TestDecodeTimeOfARow(t *testing.T) {
	c := Calibrations()[0].costs(1)
	sum := instant(0)
	for m := range 500 {
		if got := c.decode(m, 7, 12345); got != sum {
			t.Fatalf("%d steps at once take %d, one after the other %d", m, got, sum)
		}
		sum += c.decode(1, 7, 12345+7*m)
	}
}

func TestCalibrations(t *testing.T) {
	for _, c := range Calibrations() {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if got, err := CalibrationByName(c.Name); err != nil || got != c {
			t.Errorf("%s is not found by its name: %v", c.Name, err)
		}
	}
	if _, err := CalibrationByName("nothing"); err == nil {
		t.Error("an unknown name is no error")
	}
	bad := Calibrations()[0]
	bad.Attention = Seconds(math.NaN())
	if bad.Check() == nil {
		t.Error("NaN is no error")
	}
}
