package kvindex

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	router "github.com/warmroute/router"
)

// runOf is a Stored of n blocks of two tokens that follow parent, 0 for none.
func runOf(parent uint64, token uint32, hashes []uint64) Event {
	e := Event{Kind: Stored, Group: -1, BlockSize: 2, Hashes: hashes, HasParent: parent != 0, Parent: parent}
	for i := range hashes {
		e.Tokens = append(e.Tokens, token, uint32(i))
	}
	return e
}

// colliding are n hashes that fell into one cell while the table was not keyed.
func colliding(n int) []uint64 {
	const odd, inverse = 0x9e3779b97f4a7c15, 0xf1de83e19937733d // odd * inverse = 1
	if x := uint64(odd); x*inverse != 1 {
		panic("no inverse")
	}
	hashes := make([]uint64, n)
	for i := range hashes {
		y := 0x12345678<<32 | uint64(i+1) // what the upper half is taken of
		x := y * inverse
		hashes[i] = x ^ x>>32
	}
	return hashes
}

// branches are batches in which two prompts of so many blocks grow by turns, from
// one beginning, by one block an event.
func branches(blocks int) (grow, turns Batch) {
	last := [2]uint64{}
	next := uint64(1)
	put := func(b *Batch, branch, n int) {
		hashes := make([]uint64, n)
		for i := range hashes {
			next++
			hashes[i] = next * 0x9e3779b97f4a7c15
		}
		b.Events = append(b.Events, runOf(last[branch], uint32(branch), hashes))
		last[branch] = hashes[n-1]
	}
	for range blocks / 1000 {
		put(&grow, 0, 1000)
		put(&grow, 1, 1000)
	}
	for i := range 4000 {
		put(&turns, i%2, 1)
	}
	return grow, turns
}

func (x *Index) work(id string) uint64 {
	t := (*x.ids.Load())[id]
	return t.steps + t.handles.steps // heal's and the table's
}

// TestWorkOfCollidingHashes: hashes that an engine has chosen so that they fall into
// one cell cost as much as others.
func TestWorkOfCollidingHashes(t *testing.T) {
	for name, hashesOf := range map[string]func(n int) []uint64{
		"one cell of the table as it was": colliding,
		"multiples": func(n int) []uint64 {
			hashes := make([]uint64, n)
			for i := range hashes {
				hashes[i] = uint64(i+1) << 32
			}
			return hashes
		},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) (steps, ns float64) {
				x := newIndex(t, Config{})
				e := runOf(0, 1, hashesOf(n))
				began := time.Now()
				if err := x.Apply("a", 0, Batch{Events: []Event{e}}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if s := x.Stats(); s.Blocks != n {
					t.Fatalf("%d of %d blocks", s.Blocks, n)
				}
				return float64(x.work("a")) / float64(n), float64(took.Nanoseconds()) / float64(n)
			}
			once(t, 16_384, cost)
		})
	}
}

// TestWorkOfEqualEnds: block hashes of bytes that end alike are found by their end, so few of
// them have a handle of their own. The steps vary with the secrets of an index, so the mean of several counts.
func TestWorkOfEqualEnds(t *testing.T) {
	once(t, 8_192, func(n int) (steps, ns float64) {
		const indexes = 16
		for range indexes {
			x := newIndex(t, Config{})
			e := runOf(0, 1, make([]uint64, n))
			e.Sums = make([]uint64, n)
			for i := range n {
				e.Hashes[i], e.Sums[i] = 7, uint64(i+1)
			}
			began := time.Now()
			if err := x.Apply("a", 0, Batch{Events: []Event{e}}); err != nil {
				t.Fatal(err)
			}
			ns += float64(time.Since(began).Nanoseconds()) / float64(n) / indexes
			steps += float64(x.work("a")) / float64(n) / indexes
			if s := x.Stats(); s.Blocks != n || s.Moved != 0 {
				t.Fatalf("%+v", s)
			}
			check(t, x)
		}
		return steps, ns
	})
}

// TestWorkOfDeepBranches: an event costs the same however deep the prompt is that
// it extends, though another prompt was extended before, and though blocks go and
// come back in between.
func TestWorkOfDeepBranches(t *testing.T) {
	for _, holes := range []bool{false, true} {
		t.Run(fmt.Sprint("holes=", holes), func(t *testing.T) {
			once(t, 50_000, func(n int) (steps, ns float64) {
				x := newIndex(t, Config{})
				grow, turns := branches(n)
				if holes {
					var with []Event
					for i := range turns.Events {
						// The first block goes, so that all above has to be looked at.
						first := Event{Kind: Removed, Group: -1, Hashes: grow.Events[i%2].Hashes[:1]}
						with = append(with, first, turns.Events[i])
					}
					turns.Events = with
				}
				if err := x.Apply("a", 0, grow); err != nil {
					t.Fatal(err)
				}
				before := x.work("a")
				began := time.Now()
				if err := x.Apply("a", 1, turns); err != nil {
					t.Fatal(err)
				}
				took, work := time.Since(began), x.work("a")-before
				check(t, x)
				n = len(turns.Events)
				return float64(work) / float64(n), float64(took.Nanoseconds()) / float64(n)
			})
		})
	}
}

// once measures cost, which returns steps and nanoseconds a block or an event, at n
// and at four times n: the steps may not grow with it. The time is for reading.
func once(t *testing.T, n int, cost func(n int) (steps, ns float64)) {
	t.Helper()
	steps1, ns1 := cost(n)
	steps4, ns4 := cost(4 * n)
	t.Logf("at %d: %.2f steps, %.0f ns; at %d: %.2f steps, %.0f ns", n, steps1, ns1, 4*n, steps4, ns4)
	if steps1 > 2*healSteps || steps4 > 1.25*steps1+2 {
		t.Errorf("%.2f steps at %d, %.2f at %d", steps1, n, steps4, 4*n)
	}
}

// TestDeepHeal: a path that is longer than an event looks at is healed by those
// that follow on it.
func TestDeepHeal(t *testing.T) {
	x := newIndex(t, Config{})
	const blocks = 3 * healSteps * span
	hashes := make([]uint64, blocks)
	for i := range hashes {
		hashes[i] = uint64(i + 1)
	}
	e := runOf(0, 1, hashes)
	held := func() int { return x.Match(router.Prompt{Tokens: append(e.Tokens, 0)}, []string{"a"}, nil)[0] / 2 }
	apply := func(seq uint64, e Event) {
		t.Helper()
		if err := x.Apply("a", seq, Batch{Events: []Event{e}}); err != nil {
			t.Fatal(err)
		}
		check(t, x)
	}
	apply(0, e)
	if n := held(); n != blocks {
		t.Fatalf("%d of %d blocks", n, blocks)
	}
	apply(1, Event{Kind: Removed, Group: -1, Hashes: hashes[:1]})
	if n := held(); n != 0 {
		t.Fatalf("%d blocks without the first", n)
	}
	seq, last := uint64(2), hashes[blocks-1]
	for ; held() == 0; seq++ {
		if seq > 6 {
			t.Fatal("it is never healed")
		}
		next := uint64(1_000_000 + seq)
		apply(seq, runOf(last, 2, []uint64{next}))
		last = next
	}
	if n := held(); n != blocks || seq < 4 {
		t.Errorf("%d of %d blocks after %d messages", n, blocks, seq)
	}
}

// TestLockIsGivenUp: other calls come in between the events of a long message, and
// those that requests make do not wait at all.
func TestLockIsGivenUp(t *testing.T) {
	x := newIndex(t, Config{})
	var b Batch
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 400 {
		hashes := make([]uint64, 512)
		for j := range hashes {
			hashes[j] = r.Uint64()
		}
		b.Events = append(b.Events, runOf(0, uint32(i+1), hashes))
	}
	if err := x.Apply("b", 0, Batch{}); err != nil {
		t.Fatal(err)
	}
	calls := 0
	x.between = func() {
		calls++
		s, ok := x.Target("a") // waits for the lock
		if want := calls * 512; !ok || s.Blocks != want {
			t.Errorf("%d blocks, %v, want %d", s.Blocks, ok, want)
		}
		if _, applied := x.Last("a"); applied {
			t.Error("Last returns a message that is applied in part")
		}
	}
	if err := x.Apply("a", 1, b); err != nil {
		t.Fatal(err)
	}
	if calls != 399 {
		t.Errorf("the lock was free %d times in a message of %d blocks", calls, 400*512)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.BlockSize("a") != 2 || !x.Trusted("a") || x.BlockSize("b") != 0 || x.BlockSize("nobody") != 0 {
		t.Errorf("block sizes %d, %d", x.BlockSize("a"), x.BlockSize("b"))
	}
	if seq, ok := x.Last("a"); seq != 1 || !ok {
		t.Errorf("Last: %d, %v", seq, ok)
	}
	x.Match(router.Prompt{Tokens: []uint32{1, 0, 1}}, []string{"a"}, nil)
}

// TestResetInsideAMessage: what is left of a message when its target is reset or
// forgotten is dropped.
func TestResetInsideAMessage(t *testing.T) {
	for name, end := range map[string]func(*Index){
		"Reset": func(x *Index) { x.Reset("a") }, "Forget": func(x *Index) { x.Forget("a") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, after := range []int{1, 2, 100, 199} {
				x := newIndex(t, Config{})
				var b Batch
				for i := range 200 {
					hashes := make([]uint64, 600)
					for j := range hashes {
						hashes[j] = binary.LittleEndian.Uint64([]byte{byte(i), byte(j), byte(j >> 8), 1, 1, 0, 0, 0})
					}
					b.Events = append(b.Events, runOf(0, uint32(i+1), hashes))
				}
				calls := 0
				x.between = func() {
					if calls++; calls == after {
						end(x)
					}
				}
				if err := x.Apply("a", 1, b); err != nil {
					t.Fatal(err)
				}
				check(t, x)
				s := x.Stats()
				if s.Blocks != 0 || s.Stored != after*600 || x.Trusted("a") {
					t.Fatalf("after %d events: %+v", after, s)
				}
				if calls != after {
					t.Errorf("%d events were applied after the end", calls-after)
				}
			}
		})
	}
}
