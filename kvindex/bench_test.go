package kvindex

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	router "github.com/warmroute/router"
)

// fleet is the workload of the budgets: a million resident blocks over 64
// targets, 20 system prompts of 64 blocks, conversations of 72 to 220 blocks,
// one in ten of 512, one in five held twice.
type fleet struct {
	ids   []string
	talks []talk
	// events are in the order in which they happened, 16 blocks each.
	events []placed
	blocks int
}

type talk struct {
	tokens []uint32 // and one more than its blocks
	hashes []uint64
	blocks int
}

type placed struct {
	target int
	event  Event
}

func newFleet(blocks int) *fleet {
	r := rand.New(rand.NewPCG(1, 2))
	f := &fleet{}
	for i := range 64 {
		f.ids = append(f.ids, fmt.Sprintf("http://10.0.0.%d:8000", i))
	}
	fill := func(tokens []uint32, hashes []uint64) {
		for i := range tokens {
			tokens[i] = r.Uint32N(128_000)
		}
		for i := range hashes {
			hashes[i] = r.Uint64()
		}
	}
	system := make([]talk, 20)
	for i := range system {
		system[i] = talk{tokens: make([]uint32, 64*16), hashes: make([]uint64, 64)}
		fill(system[i].tokens, system[i].hashes)
	}
	held := make([][20]bool, 64)
	for f.blocks < blocks {
		n := 72 + r.IntN(220-72+1)
		if len(f.talks)%10 == 0 {
			n = 512
		} else if len(f.talks)%10 == 1 {
			n = 220
		}
		k := r.IntN(20)
		c := talk{tokens: make([]uint32, n*16+1), hashes: make([]uint64, n), blocks: n}
		fill(c.tokens[copy(c.tokens, system[k].tokens):], c.hashes[copy(c.hashes, system[k].hashes):])
		f.talks = append(f.talks, c)
		times := 1
		if len(f.talks)%5 == 0 {
			times = 2
		}
		first := r.IntN(64)
		for i := range times {
			target := (first + i*(1+r.IntN(63))) % 64
			from := 64
			if !held[target][k] {
				held[target][k] = true
				from = 0
			}
			f.blocks += n - from
			for ; from < n; from += 16 {
				to := min(from+16, n)
				e := Event{
					Kind: Stored, Group: -1, BlockSize: 16,
					Hashes: c.hashes[from:to], Tokens: c.tokens[from*16 : to*16],
				}
				if from > 0 {
					e.HasParent, e.Parent = true, c.hashes[from-1]
				}
				f.events = append(f.events, placed{target, e})
			}
		}
	}
	return f
}

func (f *fleet) apply(tb testing.TB, x *Index) {
	seq := make([]uint64, len(f.ids))
	one := Batch{Events: make([]Event, 1)}
	for i := range f.events {
		p := &f.events[i]
		one.Events[0] = p.event
		if err := x.Apply(f.ids[p.target], seq[p.target], one); err != nil {
			tb.Fatal(err)
		}
		seq[p.target]++
	}
}

func newIndex(tb testing.TB, c Config) *Index {
	tb.Helper()
	x, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// prompts returns n prompts of so many blocks, in an order of their own.
func (f *fleet) prompts(blocks, n int) []router.Prompt {
	var out []router.Prompt
	for _, c := range f.talks {
		if c.blocks == blocks {
			out = append(out, router.Prompt{Tokens: c.tokens})
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

func BenchmarkMatch(b *testing.B) {
	f := newFleet(1_000_000)
	x := newIndex(b, Config{})
	f.apply(b, x)
	for _, blocks := range []int{220, 512} {
		prompts := f.prompts(blocks, 1<<20)
		for _, writers := range []int{0, 1} {
			b.Run(fmt.Sprintf("blocks=%d/writers=%d", blocks, writers), func(b *testing.B) {
				var stop atomic.Bool
				done := make(chan int)
				if writers > 0 {
					go func() { done <- f.churn(b, x, &stop) }()
				}
				cached := make([]int, 64)
				var d []time.Duration
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					start := time.Now()
					cached = x.Match(prompts[i%len(prompts)], f.ids, cached)
					d = append(d, time.Since(start))
					i++
					if best := slices.Max(cached); best != blocks*16 && writers == 0 {
						b.Fatalf("%d tokens, want %d", best, blocks*16)
					}
				}
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2].Nanoseconds()), "p50-ns")
				b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds()), "p99-ns")
				if writers > 0 {
					stop.Store(true)
					b.ReportMetric(float64(<-done)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
				}
			})
		}
	}
}

// churn removes and stores the fleet's blocks, event after event, until it is
// stopped, and returns how many it stored.
func (f *fleet) churn(tb testing.TB, x *Index, stop *atomic.Bool) int {
	b := Batch{Events: make([]Event, 2)}
	seq := make([]uint64, len(f.ids))
	for i, id := range f.ids {
		seq[i], _ = x.Last(id)
	}
	n := 0
	for i := 0; !stop.Load(); i = (i + 7) % len(f.events) {
		p := &f.events[i]
		seq[p.target]++
		b.Events[0] = Event{Kind: Removed, Group: -1, Hashes: p.event.Hashes}
		b.Events[1] = p.event
		if err := x.Apply(f.ids[p.target], seq[p.target], b); err != nil {
			tb.Error(err)
			break
		}
		n += len(p.event.Hashes)
	}
	return n
}

func BenchmarkApply(b *testing.B) {
	f := newFleet(1_000_000)
	n := 0
	for b.Loop() {
		x := newIndex(b, Config{})
		f.apply(b, x)
		n += f.blocks
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
}

func BenchmarkMemory(b *testing.B) {
	f := newFleet(1_000_000)
	for b.Loop() {
		before := inUse()
		x := newIndex(b, Config{})
		f.apply(b, x)
		after := inUse()
		b.ReportMetric(float64(after-before)/float64(f.blocks), "B/block")
		b.ReportMetric(float64(x.Stats().Nodes), "nodes")
		runtime.KeepAlive(x)
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return max(m.HeapAlloc, m.HeapInuse)
}

// BenchmarkIngest decodes and applies payloads as vLLM sends them.
func BenchmarkIngest(b *testing.B) {
	f := newFleet(1_000_000)
	for _, d := range []dialect{{}, {maps: true}} {
		b.Run(fmt.Sprintf("maps=%v", d.maps), func(b *testing.B) {
			payloads := make([][]byte, len(f.events))
			for i := range f.events {
				payloads[i] = d.encode(0, []Event{f.events[i].event})
			}
			n := 0
			for b.Loop() {
				x := newIndex(b, Config{})
				seq := make([]uint64, len(f.ids))
				var batch Batch
				for i, p := range payloads {
					if err := batch.Decode(p); err != nil {
						b.Fatal(err)
					}
					target := f.events[i].target
					if err := x.Apply(f.ids[target], seq[target], batch); err != nil {
						b.Fatal(err)
					}
					seq[target]++
				}
				n += f.blocks
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	f := newFleet(10_000)
	payload := dialect{maps: true}.encode(0, []Event{f.events[3].event})
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReset resets one target that holds a million blocks, among 64.
func BenchmarkReset(b *testing.B) {
	f := newFleet(1_000_000)
	for b.Loop() {
		b.StopTimer()
		x := newIndex(b, Config{MaxBlocks: 2_000_000})
		f.apply(b, x)
		seq, _ := x.Last(f.ids[0])
		one := Batch{Events: make([]Event, 1)}
		for _, p := range f.events {
			seq++
			one.Events[0] = p.event
			if err := x.Apply(f.ids[0], seq, one); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		x.Reset(f.ids[0])
	}
}
