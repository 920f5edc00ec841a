package trie

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustNew(tb testing.TB, cfg Config) *Trie {
	tb.Helper()
	t, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		program := make([]byte, 200+r.IntN(600))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		play(t, program)
	}
}

func TestInsertAgain(t *testing.T) {
	tr := mustNew(t, Config{})
	tr.Insert("m", "hello", "a")
	before := tr.Stats()
	for range 1_000_000 {
		tr.Insert("m", "hello", "a")
	}
	if got := tr.Stats(); got != before {
		t.Errorf("Stats = %+v, before %+v", got, before)
	}
	for range 1_000_000 {
		tr.Remove("m", "hello", "a")
	}
	if got := tr.Match("m", "hello", []string{"a"}, nil); got[0] != 5 {
		t.Errorf("an Insert that was not taken back is gone: Match = %d, want 5", got[0])
	}
	tr.Remove("m", "hello", "a")
	tr.Remove("m", "hello", "a")
	if got := tr.Stats(); got != (Stats{}) {
		t.Errorf("Stats = %+v, want none left", got)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{MaxNodes: -1}, "trie: MaxNodes is -1; it must be at least 1, or 0 for the default"},
		{Config{MaxBytes: -1}, "trie: MaxBytes is -1; it must be at least 1, or 0 for the default"},
	} {
		if _, err := New(c.cfg); err == nil || err.Error() != c.want {
			t.Errorf("New(%+v): %v, want %q", c.cfg, err, c.want)
		}
	}
	if got := mustNew(t, Config{}).cfg; got != (Config{MaxNodes: 1_000_000, MaxBytes: 512 << 20}) {
		t.Errorf("defaults are %+v", got)
	}
}

// TestHostile inserts shapes that break radix trees and holds every match against
// the oracle's.
func TestHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	same := strings.Repeat("x", 1<<20)
	base := random(1000) // fewer than maxPath
	every := []string{base}
	for i := range len(base) {
		every = append(every, base[:i]+string(base[i]^1)+"tail")
	}
	wide := random(300_000)
	shapes := map[string][]string{
		"one byte repeated": {same, same[:1<<19], same[:window], same[:window+1], same[:window-1], same + "y", "x", "y" +
			same},
		"differ at every place": every,
		"nul and invalid utf-8": {"\x00", "\x00\x00", "\x00\xff", "\xff\xfe\x00", "\xc3", "\xc3\x28", "\x00\x00\x00a"},
		"across windows": {wide, wide[:200_000], wide[:200_000] + "other", wide[:window*2] + "z", wide[:window*3],
			wide[:70_000] + random(100_000)},
	}
	for name, texts := range shapes {
		t.Run(name, func(t *testing.T) {
			tr := mustNew(t, Config{})
			o := &oracle{maxNodes: 1 << 20, maxBytes: 1 << 30, maxMany: 1 << 20}
			ids := []string{"a", "b", "c"}
			for i, s := range texts {
				tr.Insert("m", s, ids[i%3])
				o.prompts = append(o.prompts, entry{"m", s, ids[i%3], 1})
			}
			tr.verify(t)
			for i, s := range texts {
				if i%max(1, len(texts)/40) != 0 {
					continue
				}
				for j, got := range tr.Match("m", s, ids, nil) {
					if want := o.match("m", s, ids[j]); got != want {
						t.Errorf("text %d: Match[%s] = %d, want %d", i, ids[j], got, want)
					}
				}
			}
			for i, s := range texts {
				tr.Remove("m", s, ids[i%3])
				if i%100 == 0 {
					tr.verify(t)
				}
			}
			if got := tr.Stats(); got != (Stats{}) {
				t.Errorf("Stats = %+v after taking all back", got)
			}
		})
	}
}

func TestOneBytePrompts(t *testing.T) {
	tr := mustNew(t, Config{})
	for i := range 100_000 {
		tr.Insert(fmt.Sprint(i%500), string([]byte{byte(i / 500)}), "a")
	}
	tr.verify(t)
	if got, want := tr.Stats(), (Stats{Nodes: 100_000, Bytes: 100_000, Prompts: 100_000}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// TestBoundsOfAll shows that many tiny prompts, each in a scope of its own, stay
// within the count that the byte budget implies.
func TestBoundsOfAll(t *testing.T) {
	tr := mustNew(t, Config{MaxBytes: 1 << 20})
	for i := range 200_000 {
		tr.Insert(fmt.Sprint("salt", i), "x", "a")
		if s := tr.Stats(); s.Prompts > 1<<16 || s.Nodes > 1<<16 {
			t.Fatalf("Stats = %+v", s)
		}
	}
	tr.verify(t)
	if len(tr.roots) > 1<<16 {
		t.Errorf("%d roots are left", len(tr.roots))
	}
	tr.Insert("m", strings.Repeat("x", 1<<20+1), "a")
	if got := tr.Match("m", "x", []string{"a"}, nil); got[0] != 0 {
		t.Error("a text over the whole budget was recorded")
	}
	long := strings.Repeat("s", 10_000)
	tr.Insert(long, "hello", "a")
	if got := tr.Match(long, "hello", []string{"a"}, nil); got[0] != 5 {
		t.Errorf("Match in a long scope = %d, want 5", got[0])
	}
	if got := tr.Match(long+"s", "hello", []string{"a"}, nil); got[0] != 0 {
		t.Errorf("Match in another long scope = %d, want 0", got[0])
	}
}

// TestComingAndGoing takes 2,000 targets in and out, so that sets of holders grow
// wide and narrow again and slots are used again.
func TestComingAndGoing(t *testing.T) {
	tr := mustNew(t, Config{})
	id := func(i int) string { return fmt.Sprintf("target-%d", i) }
	system := strings.Repeat("be kind. ", 100)
	for round := range 4 {
		for i := range 2000 {
			tr.Insert("m", system, id(i+round*1000))
			tr.Insert("m", system+fmt.Sprint(i), id(i+round*1000))
		}
		tr.verify(t)
		ids := make([]string, 2000)
		for i := range ids {
			ids[i] = id(i + round*1000)
		}
		for i, got := range tr.Match("m", system+"7", ids, nil) {
			want := len(system)
			if strings.HasPrefix(fmt.Sprint(i), "7") {
				want++
			}
			if got != want {
				t.Fatalf("round %d: Match[%s] = %d, want %d", round, ids[i], got, want)
			}
		}
		for i := range 2000 {
			if i%50 != round { // some stay for the next round
				tr.Forget(id(i + round*1000))
			}
			if i%500 == 0 {
				tr.verify(t)
			}
		}
		for i := range 2000 {
			tr.Forget(id(i + round*1000 - 1000))
		}
	}
	for i := range 10_000 {
		tr.Forget(id(i))
	}
	if got := tr.Stats(); got != (Stats{}) {
		t.Errorf("Stats = %+v after all are gone", got)
	}
	if len(tr.slots) > 5000 {
		t.Errorf("%d slots were made", len(tr.slots))
	}
	for c, free := range tr.sets.free {
		if len(free) != int(tr.sets.next[c]) {
			t.Errorf("class %d: %d sets of %d are free", c, len(free), tr.sets.next[c])
		}
	}
}

// TestForgetLarge shows that a large target is gone at once and its storage
// within the next writes.
func TestForgetLarge(t *testing.T) {
	tr := mustNew(t, Config{})
	for i := range 20_000 {
		tr.Insert("m", fmt.Sprint("prompt ", i), "a")
	}
	tr.Insert("m", "prompt 7", "b")
	tr.Forget("a")
	if diff := cmp.Diff([]int{0, 8}, tr.Match("m", "prompt 77", []string{"a", "b"}, nil)); diff != "" {
		t.Error(diff)
	}
	tr.Insert("m", "prompt 77", "a") // a new life next to the old one's remains
	if diff := cmp.Diff([]int{1, 1}, tr.Warmed([]string{"a", "b"}, nil)); diff != "" {
		t.Error(diff)
	}
	for range 20_000 / 16 {
		tr.Insert("m", "prompt 7", "b")
	}
	if got, want := tr.Stats(), (Stats{Nodes: 2, Bytes: 9, Prompts: 2}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
	tr.verify(t)
}

func TestTooManyTargets(t *testing.T) {
	tr := mustNew(t, Config{})
	id := make([]string, maxSlots+10)
	for i := range id {
		id[i] = fmt.Sprint(i)
		tr.Insert("m", "hello", id[i])
	}
	if got := tr.Match("m", "hello", id[maxSlots-1:maxSlots+1], nil); got[0] != 5 || got[1] != 0 {
		t.Errorf("Match = %v, want the last that fits and none beyond", got)
	}
	tr.Forget(id[5])
	tr.Insert("m", "hello", id[maxSlots])
	if got := tr.Match("m", "hello", []string{id[5], id[maxSlots]}, nil); got[0] != 0 || got[1] != 5 {
		t.Errorf("Match = %v, want the place taken over", got)
	}
	tr.verify(t)
}

func TestMatchAllocatesNothing(t *testing.T) {
	tr := mustNew(t, Config{})
	ids := make([]string, 64)
	for i := range ids {
		ids[i] = fmt.Sprint("target-", i)
		tr.Insert("m", "a system prompt and "+ids[i], ids[i])
	}
	var cached []int
	if n := testing.AllocsPerRun(100, func() {
		cached = tr.Match("m", "a system prompt and target-7", ids,
			cached)
	}); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { cached = tr.Warmed(ids, cached) }); n != 0 {
		t.Errorf("Warmed allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { tr.Insert("m", "a system prompt and target-7", ids[7]) }); n != 0 {
		t.Errorf("Insert of a resident prompt allocates %v times", n)
	}
}

// TestAtOnce reads, writes and forgets from many goroutines; the race detector
// and the invariants judge.
func TestAtOnce(t *testing.T) {
	tr := mustNew(t, Config{MaxNodes: 200, MaxBytes: 20_000})
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var buf []int
			for range 3000 {
				text := strings.Repeat("abc"[r.IntN(3):], 1+r.IntN(60)) + fmt.Sprint(r.IntN(50))
				id := ids[r.IntN(len(ids))]
				switch r.IntN(6) {
				case 0, 1:
					tr.Insert("m", text, id)
				case 2:
					tr.Remove("m", text, id)
				case 3:
					buf = tr.Match("m", text, ids[r.IntN(len(ids)):], buf)
					for _, n := range buf {
						if n < 0 || n > len(text) {
							t.Errorf("Match = %d of %d", n, len(text))
						}
					}
				case 4:
					buf = tr.Warmed(ids, buf)
				case 5:
					if r.IntN(20) == 0 {
						tr.Forget(id)
					}
					tr.Stats()
				}
			}
		})
	}
	wg.Wait()
	tr.verify(t)
}

func TestExtend(t *testing.T) {
	tr := mustNew(t, Config{MaxBytes: 10})
	tr.Insert("m", "hello", "a")
	tr.Extend("m", "hello", " you", "a")
	tr.Extend("m", "hello you", " there", "a") // too long: as it was
	if got := tr.Match("m", "hello you there", []string{"a"}, nil); got[0] != 9 {
		t.Errorf("Match = %d, want 9", got[0])
	}
	if got, want := tr.Stats(), (Stats{Nodes: 1, Bytes: 9, Prompts: 1}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

func ExampleTrie() {
	t, err := New(Config{})
	if err != nil {
		panic(err)
	}
	t.Insert("llama", "You are a helpful assistant. Hi!", "vllm-1")
	t.Insert("llama", "You are a poet.", "vllm-2")
	fmt.Println(t.Match("llama", "You are a helpful assistant. Bye!", []string{"vllm-1", "vllm-2", "vllm-3"}, nil))
	fmt.Println(t.Match("another model", "You are a poet.", []string{"vllm-1", "vllm-2", "vllm-3"}, nil))
	// Output:
	// [29 10 0]
	// [0 0 0]
}
