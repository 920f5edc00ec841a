package kvindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
)

// TestStorm: while everything around it changes, what a target holds throughout
// is seen in full by every Match, and nothing that nobody ever held.
func TestStorm(t *testing.T) {
	x := newIndex(t, Config{MaxBlocks: 3000})
	g := rand.New(rand.NewPCG(5, 5))
	text := func(n int) []uint32 {
		out := make([]uint32, n*16)
		for i := range out {
			out[i] = g.Uint32N(3)
		}
		return out
	}
	long := text(300)
	other := text(100)
	hashes := func(from, n int) []uint64 {
		out := make([]uint64, n)
		for i := range out {
			out[i] = uint64(from + i + 1)
		}
		return out
	}
	run := func(tokens []uint32, from int) Event {
		return Event{Kind: Stored, Group: -1, BlockSize: 16, Tokens: tokens, Hashes: hashes(from, len(tokens)/16)}
	}
	ids := []string{"steady", "sliding", "w0", "w1", "never", "w2"}
	// The steady ones share their runs with all the others, who split them.
	if err := x.Apply("steady", 0, Batch{Events: []Event{run(long[:200*16], 0)}}); err != nil {
		t.Fatal(err)
	}
	full := run(long[:150*16], 0)
	full.Group, full.Spec = 1, SpecFull
	window := run(long[:120*16], 0)
	window.Group, window.Spec, window.Window = 0, SpecSliding, 64
	if err := x.Apply("sliding", 0, Batch{Events: []Event{window, full}}); err != nil {
		t.Fatal(err)
	}

	var stop atomic.Bool
	var wg, readers sync.WaitGroup
	for w := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(w), 9))
			id := fmt.Sprint("w", w)
			for seq := uint64(0); !stop.Load(); seq++ {
				var b Batch
				for range 1 + r.IntN(3) {
					cut := r.IntN(299) + 1
					switch r.IntN(5) {
					case 0: // a branch off the long text
						tokens := slices.Concat(long[:cut*16], other[:(1+r.IntN(90))*16])
						e := run(tokens, 0)
						for i := cut; i < len(e.Hashes); i++ {
							e.Hashes[i] = uint64(1000*cut + i)
						}
						b.Events = append(b.Events, e)
					case 1:
						b.Events = append(b.Events, run(long[:cut*16], 0))
					case 2:
						b.Events = append(b.Events, Event{Kind: Removed, Group: -1, Hashes: hashes(r.IntN(200), r.IntN(100))})
					case 3:
						b.Events = append(b.Events, run(other[:(1+r.IntN(99))*16], 500))
					default:
						if r.IntN(10) == 0 {
							b.Events = append(b.Events, Event{Kind: Cleared, Group: -1})
						}
					}
				}
				if err := x.Apply(id, seq, b); err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				switch r.IntN(60) {
				case 0:
					x.Forget(id)
				case 1:
					x.Reset(id)
				case 2:
					x.Suspend(id, true)
					x.Suspend(id, false)
				case 3:
					seq = 0
				}
			}
		}()
	}
	loops := 6000
	if testing.Short() {
		loops = 500
	}
	for k := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			r := rand.New(rand.NewPCG(uint64(k), 11))
			var cached []int
			order := slices.Clone(ids)
			for range loops {
				if r.IntN(50) == 0 {
					order = slices.Clone(ids) // another slice to resolve
				}
				n := r.IntN(300*16) + 1
				p := router.Prompt{Tokens: long[:n]}
				cached = x.Match(p, order, cached)
				usable := (n - 1) / 16
				for i, id := range order {
					got := cached[i]
					switch id {
					case "steady":
						if want := min(usable, 200) * 16; got != want {
							t.Errorf("steady: %d, want %d", got, want)
						}
					case "sliding":
						m := min(usable, 150)
						if m > 120 {
							m = 120 // the last four before it are there
						}
						if got != m*16 {
							t.Errorf("sliding: %d, want %d", got, m*16)
						}
					case "never":
						if got != -1 {
							t.Errorf("never: %d", got)
						}
					default:
						if got < -1 || got > usable*16 || got%16 != 0 && got != -1 {
							t.Errorf("%s: %d of %d", id, got, usable*16)
						}
					}
				}
				if r.IntN(20) == 0 {
					x.Stats()
					x.Trusted("w1")
				}
			}
		}()
	}
	readers.Wait()
	stop.Store(true)
	wg.Wait()
	check(t, x)
}

// TestMatchIsQuietDuringReset: a target that is reset is not trusted from the
// first moment on.
func TestMatchDuringReset(t *testing.T) {
	f := newFleet(60_000)
	x := newIndex(t, Config{})
	f.apply(t, x)
	p := f.prompts(512, 1)[0]
	at := slices.Index(x.Match(p, f.ids, nil), 512*16)
	if at < 0 {
		t.Fatal("nobody holds it")
	}
	done := make(chan bool)
	go func() {
		x.Reset(f.ids[at])
		close(done)
	}()
	cached := make([]int, 64)
	for seen := false; !seen; {
		select {
		case <-done:
			seen = true
		default:
		}
		if cached = x.Match(p, f.ids, cached); cached[at] != 512*16 && cached[at] != -1 {
			t.Fatalf("%d tokens while it is reset", cached[at])
		}
	}
	if cached[at] != -1 {
		t.Error("trusted after Reset")
	}
	check(t, x)
}

func TestMatchAllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	f := newFleet(60_000)
	x := newIndex(t, Config{})
	f.apply(t, x)
	p := f.prompts(220, 1)[0]
	p.Adapter = "" // the scope costs nothing either
	salted := router.Prompt{Adapter: "lora", Salt: "salt", Tokens: p.Tokens}
	cached := x.Match(p, f.ids, nil)
	if n := testing.AllocsPerRun(100, func() {
		cached = x.Match(p, f.ids, cached)
		cached = x.Match(salted, f.ids, cached)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
