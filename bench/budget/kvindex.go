package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
)

// kvFleet is a million resident blocks of 16 tokens over 64 targets: 20 system
// prompts of 64 blocks, conversations of 72 to 220 blocks, one in ten of 512, one
// in five held twice.
type kvFleet struct {
	ids    []string
	talks  []kvTalk
	events []kvPlaced
	blocks int
}

type kvTalk struct {
	tokens []uint32 // one more than its blocks have
	hashes []uint64
}

// kvPlaced is one event of 16 blocks and its target.
type kvPlaced struct {
	target int
	event  kvindex.Event
}

func newKVFleet(blocks int) *kvFleet {
	r := rand.New(rand.NewPCG(1, 2))
	f := &kvFleet{}
	for i := range 64 {
		f.ids = append(f.ids, fmt.Sprintf("http://10.0.0.%d:8000", i))
	}
	talk := func(n int, system kvTalk) kvTalk {
		c := kvTalk{tokens: make([]uint32, n*16+1), hashes: make([]uint64, n)}
		for i := copy(c.tokens, system.tokens[:len(system.hashes)*16]); i < len(c.tokens); i++ {
			c.tokens[i] = r.Uint32N(128_000)
		}
		for i := copy(c.hashes, system.hashes); i < n; i++ {
			c.hashes[i] = r.Uint64()
		}
		return c
	}
	var system []kvTalk
	for range 20 {
		system = append(system, talk(64, kvTalk{}))
	}
	held := make([][20]bool, 64)
	for f.blocks < blocks {
		n := 72 + r.IntN(220-72+1)
		switch len(f.talks) % 10 {
		case 0:
			n = 512
		case 1:
			n = 220 // enough of the length that is measured
		}
		k := r.IntN(20)
		c := talk(n, system[k])
		f.talks = append(f.talks, c)
		first, copies := r.IntN(64), 1
		if len(f.talks)%5 == 0 {
			copies = 2
		}
		for i := range copies {
			target := (first + i*(1+r.IntN(63))) % 64
			from := 64
			if !held[target][k] {
				held[target][k], from = true, 0
			}
			f.blocks += n - from
			for ; from < n; from += 16 {
				to := min(from+16, n)
				e := kvindex.Event{
					Kind: kvindex.Stored, Group: -1, BlockSize: 16,
					Hashes: c.hashes[from:to], Tokens: c.tokens[from*16 : to*16],
				}
				if from > 0 {
					e.HasParent, e.Parent = true, c.hashes[from-1]
				}
				f.events = append(f.events, kvPlaced{target, e})
			}
		}
	}
	return f
}

// apply sends all events to x; one, if it is not negative, gets those of all.
func (f *kvFleet) apply(x *kvindex.Index, one int) error {
	seq := make([]uint64, len(f.ids))
	for i, id := range f.ids {
		if last, ok := x.Last(id); ok {
			seq[i] = last + 1
		}
	}
	b := kvindex.Batch{Events: make([]kvindex.Event, 1)}
	for i := range f.events {
		target := f.events[i].target
		if one >= 0 {
			target = one
		}
		b.Events[0] = f.events[i].event
		if err := x.Apply(f.ids[target], seq[target], b); err != nil {
			return err
		}
		seq[target]++
	}
	return nil
}

// fill returns an index with all of f.
func (f *kvFleet) fill(c kvindex.Config) (*kvindex.Index, error) {
	x, err := kvindex.New(c)
	if err != nil {
		return nil, err
	}
	return x, f.apply(x, -1)
}

// prompts returns those of so many blocks, in an order of their own.
func (f *kvFleet) prompts(blocks int) []router.Prompt {
	var out []router.Prompt
	for _, c := range f.talks {
		if len(c.hashes) == blocks {
			out = append(out, router.Prompt{Tokens: c.tokens})
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// churn removes and stores again, event after event, until it is stopped, and
// counts the blocks.
func (f *kvFleet) churn(x *kvindex.Index, stop *atomic.Bool, applied *atomic.Int64) error {
	seq := make([]uint64, len(f.ids))
	for i, id := range f.ids {
		seq[i], _ = x.Last(id)
	}
	b := kvindex.Batch{Events: make([]kvindex.Event, 2)}
	for i := 0; !stop.Load(); i = (i + 7) % len(f.events) {
		p := &f.events[i]
		seq[p.target]++
		b.Events[0] = kvindex.Event{Kind: kvindex.Removed, Group: -1, Hashes: p.event.Hashes}
		b.Events[1] = p.event
		if err := x.Apply(f.ids[p.target], seq[p.target], b); err != nil {
			return err
		}
		applied.Add(int64(len(p.event.Hashes)))
	}
	return nil
}

func kvindexRows(t *table, o *options) error {
	t.say("kvindex: making the workload")
	f := newKVFleet(1_000_000)
	runtime.GC()
	x, err := f.fill(kvindex.Config{})
	if err != nil {
		return err
	}
	if err := kvMatch(t, f, x, o.reps, 220, 1800*time.Nanosecond); err != nil {
		return err
	}
	if err := kvMatch(t, f, x, o.reps, 512, 4*time.Microsecond); err != nil {
		return err
	}
	if err := kvIngest(t, f, o.reps); err != nil {
		return err
	}
	return kvMemoryAndReset(t, f, x)
}

// kvMatch times Match on prompts of so many blocks, alone and while another
// goroutine applies events without a pause.
func kvMatch(t *table, f *kvFleet, x *kvindex.Index, reps, blocks int, budget time.Duration) error {
	t.say("kvindex: Match of %d blocks", blocks)
	prompts := f.prompts(blocks)
	cached := make([]int, len(f.ids))
	wrong := 0
	for _, p := range prompts {
		if cached = x.Match(p, f.ids, cached); slices.Max(cached) != blocks*16 {
			wrong++
		}
	}
	match := func(i int) { cached = x.Match(prompts[i%len(prompts)], f.ids, cached) }
	// A gateway has just parsed the ids when it matches them.
	hot := make([]uint32, 0, blocks*16+1)
	const n = 2000 // many short passes, because other programs' load comes in bursts
	run := func(fresh bool) *samples {
		s := newSamples(n)
		for i := range n {
			p := prompts[i%len(prompts)]
			if fresh {
				hot = append(hot[:0], p.Tokens...)
				p.Tokens = hot
			}
			start := time.Now()
			cached = x.Match(p, f.ids, cached)
			s.add(time.Since(start))
		}
		return s
	}
	type reading struct {
		p50, p99 time.Duration
		rate     float64 // million blocks a second that were applied meanwhile
	}
	var applied atomic.Int64
	// least is the least disturbed of several passes; of those concurrent with a
	// writer, only those count in which the writer got its share of the machine.
	least := func(fresh bool) reading {
		var all []reading
		top := 0.0
		for range 5 * reps {
			before, start := applied.Load(), time.Now()
			s := run(fresh)
			r := reading{s.p(.5), s.p(.99), float64(applied.Load()-before) / time.Since(start).Seconds() / 1e6}
			all, top = append(all, r), max(top, r.rate)
		}
		best := reading{math.MaxInt64, math.MaxInt64, math.MaxFloat64}
		for _, r := range all {
			if r.rate >= top/2 {
				best = reading{min(best.p50, r.p50), min(best.p99, r.p99), min(best.rate, r.rate)}
			}
		}
		return best
	}
	alone, fresh := least(false), least(true)
	var stop atomic.Bool
	done := make(chan error)
	go func() { done <- f.churn(x, &stop, &applied) }()
	busy := least(false)
	stop.Store(true)
	if err := <-done; err != nil {
		return err
	}

	name := fmt.Sprintf("kvindex Match, %d blocks, 64 targets, p50", blocks)
	t.check(name, fmt.Sprintf("<= %.1f us", us(budget)), alone.p50 <= budget, "%.2f us (p99 %.2f us)", us(alone.p50),
		us(alone.p99))
	t.reading("  of ids just parsed", "%.2f us (p99 %.2f us)", us(fresh.p50), us(fresh.p99))
	t.check("  p99 under full ingest", "<= 3x p50", busy.p99 <= 3*busy.p50,
		"%.1fx (%.2f us, p50 %.2f us, with at least %.1fM blocks/s removed and stored)",
		ratio(busy.p99, busy.p50), us(busy.p99), us(busy.p50), busy.rate)
	allocs := mallocs(n, match)
	t.check("  allocations", "0", allocs < 0.01, "%.3f", allocs)
	t.check("  prompts found in full", "all", wrong == 0, "%d of %d", len(prompts)-wrong, len(prompts))
	return nil
}

// kvIngest measures how many blocks a second one core takes.
func kvIngest(t *table, f *kvFleet, reps int) error {
	t.say("kvindex: Decode and Apply")
	payloads := make([][]byte, len(f.events))
	for i := range f.events {
		payloads[i] = kvPayload(&f.events[i].event)
	}
	var failed error
	got := best(reps,
		func() time.Duration {
			runtime.GC()
			start := time.Now()
			_, err := f.fill(kvindex.Config{})
			failed = errors.Join(failed, err)
			return time.Since(start)
		},
		func() time.Duration {
			runtime.GC()
			start := time.Now()
			x, err := kvindex.New(kvindex.Config{})
			failed = errors.Join(failed, err)
			seq := make([]uint64, len(f.ids))
			for i, p := range payloads {
				b, err := kvindex.Decode(p)
				target := f.events[i].target
				failed = errors.Join(failed, err, x.Apply(f.ids[target], seq[target], b))
				seq[target]++
			}
			return time.Since(start)
		},
	)
	if failed != nil {
		return failed
	}
	rate := func(d time.Duration) float64 { return float64(f.blocks) / d.Seconds() / 1e6 }
	t.check("kvindex Apply of decoded events", ">= 5M blocks/s", rate(got[0]) >= 5, "%.1fM blocks/s", rate(got[0]))
	t.check("  Decode and Apply, 16 blocks an event", ">= 2.5M blocks/s", rate(got[1]) >= 2.5, "%.1fM blocks/s",
		rate(got[1]))
	return nil
}

// kvPayload writes an event as vLLM since 0.24 does.
func kvPayload(e *kvindex.Event) []byte {
	b := []byte{0x93, 0xcb, 0x41, 0xda, 0x30, 0x54, 0x98, 0x10, 0, 0, 0x91, 0x88}
	str := func(s string) { b = append(append(b, 0xa0|byte(len(s))), s...) }
	number := func(v uint64) {
		switch {
		case v < 0x80:
			b = append(b, byte(v))
		case v < 1<<8:
			b = append(b, 0xcc, byte(v))
		case v < 1<<16:
			b = binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
		case v < 1<<32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		default:
			b = binary.BigEndian.AppendUint64(append(b, 0xcf), v)
		}
	}
	array := func(n int) { b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n)) }
	str("type")
	str("BlockStored")
	str("block_hashes")
	array(len(e.Hashes))
	for _, h := range e.Hashes {
		number(h)
	}
	str("parent_block_hash")
	if e.HasParent {
		number(e.Parent)
	} else {
		b = append(b, 0xc0)
	}
	str("token_ids")
	array(len(e.Tokens))
	for _, id := range e.Tokens {
		number(uint64(id))
	}
	str("block_size")
	number(uint64(e.BlockSize))
	str("lora_id")
	b = append(b, 0xc0)
	str("medium")
	str("GPU")
	str("lora_name")
	return append(b, 0xc0, 0)
}

// kvMemoryAndReset measures the memory of an index, and how long it takes to
// reset one target that holds all of f, while others are matched.
func kvMemoryAndReset(t *table, f *kvFleet, x *kvindex.Index) error {
	t.say("kvindex: memory and Reset")
	a0, u0 := heap()
	y, err := f.fill(kvindex.Config{})
	if err != nil {
		return err
	}
	a1, u1 := heap()
	each := func(a, b uint64) float64 { return (float64(b) - float64(a)) / float64(f.blocks) }
	alloc, inuse := each(a0, a1), each(u0, u1)
	t.check("kvindex memory, a block and holder", "<= 60 bytes", max(alloc, inuse) <= 60,
		"%.1f bytes of objects, %.1f of spans; %d nodes",
		alloc, inuse, y.Stats().Nodes)
	runtime.KeepAlive(y)

	if err := f.apply(x, 0); err != nil {
		return err
	}
	held, _ := x.Target(f.ids[0])
	prompts := f.prompts(220)
	cached := make([]int, len(f.ids))
	done := make(chan time.Duration)
	go func() {
		start := time.Now()
		x.Reset(f.ids[0])
		done <- time.Since(start)
	}()
	var took, worst time.Duration
	n := 0
	for took == 0 {
		select {
		case took = <-done:
		default:
			start := time.Now()
			cached = x.Match(prompts[n%len(prompts)], f.ids, cached)
			worst = max(worst, time.Since(start))
			n++
		}
	}
	t.check(fmt.Sprintf("kvindex Reset of a target with %d blocks", held.Blocks), "<= 50 ms", took <= 50*time.Millisecond,
		"%.1f ms; %d Matches meanwhile, the slowest %.0f us", float64(took.Microseconds())/1e3, n, us(worst))
	return nil
}
