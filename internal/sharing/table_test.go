package sharing

import (
	"math/rand/v2"
	"testing"
	"time"
)

// naive is a table without a bound, by mark and target.
type naive map[Mark]map[uint16]*said

type said struct {
	stamp stamp
	who   uint16
}

// The table answers as a map of maps, with many targets on some marks and few on most.
func TestTableAgainstNaive(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		tb, n := newTable(1<<16), naive{}
		lost := map[uint16]stamp{}
		marks := make([]Mark, 400)
		for i := range marks {
			marks[i] = Mark(max(r.Uint64()>>16, 1))
		}
		alive := func(m Mark, k uint16) *said {
			if s := n[m][k]; s != nil && s.stamp >= lost[k] && s.who != 0 {
				return s
			}
			return nil
		}
		for now := stamp(firstStamp); now < firstStamp+20000; now++ {
			m, k := marks[min(r.IntN(len(marks)), r.IntN(len(marks)))], uint16(r.IntN(40))
			who := []uint16{own, others}[r.IntN(2)]
			switch r.IntN(30) {
			case 0:
				lost[k] = now
				tb.setHorizon(k, now)
			case 1, 2:
				tb.unhold(m, k, who, now)
				if s := alive(m, k); s != nil {
					s.who &^= who
				}
			default:
				was := alive(m, k)
				if isNew := tb.hold(m, k, now, who); isNew != (was == nil) {
					t.Fatalf("seed %d: new %v, want %v", seed, isNew, was == nil)
				}
				if n[m] == nil {
					n[m] = map[uint16]*said{}
				}
				if was == nil {
					n[m][k] = &said{now, who}
				} else {
					was.stamp, was.who = now, was.who|who
				}
			}
			m, k = marks[r.IntN(len(marks))], uint16(r.IntN(40))
			s, who, ok := tb.look(m, k)
			if want := alive(m, k); ok != (want != nil) || ok && (s != want.stamp || who != want.who) {
				t.Fatalf("seed %d: %d %x %v, want %+v", seed, s, who, ok, want)
			}
		}
		total := 0
		tb.each(func(m Mark, k uint16, s stamp) {
			total++
			if alive(m, k) == nil {
				t.Fatalf("seed %d: %x of %d is not there", seed, m, k)
			}
		})
		for m := range n {
			for k := range n[m] {
				if alive(m, k) != nil {
					total--
				}
			}
		}
		if total != 0 {
			t.Errorf("seed %d: %d facts too many", seed, total)
		}
	}
}

// A table at its bound drops the oldest, about, and takes at most 40 bytes a mark.
func TestTableIsBounded(t *testing.T) {
	const most = 1 << 14
	tb := newTable(most)
	r := rand.New(rand.NewPCG(1, 1))
	var all []Mark
	for i := range 4 * most {
		m := Mark(max(r.Uint64()>>16, 1))
		all = append(all, m)
		tb.hold(m, uint16(i%8), firstStamp+stamp(i), others)
	}
	if tb.used > most || tb.used < most*9/10 {
		t.Errorf("%d marks, the bound is %d", tb.used, most)
	}
	if b := tb.memory() / tb.used; b > 40 {
		t.Errorf("%d bytes a mark", b)
	}
	kept := func(ms []Mark) (n int) {
		for _, m := range ms {
			if tb.find(m) != nil {
				n++
			}
		}
		return n
	}
	if n := kept(all[len(all)-most/4:]); n < most/4*9/10 {
		t.Errorf("of the newest %d only %d are there", most/4, n)
	}
	if n := kept(all[:2*most]); n > most/10 {
		t.Errorf("of the oldest %d there are %d", 2*most, n)
	}
}

// A denial at an age takes away what is older, the age grows slowly, and a confirmation lets it grow at once.
func TestAges(t *testing.T) {
	tb := newTable(1024)
	second := stamp(time.Second / stampUnit)
	now := firstStamp + 1000*second
	tb.hold(1, 3, now-100*second, others)
	tb.hold(2, 3, now-50*second, others)
	tb.hold(1, 4, now-100*second, others)
	has := func(m Mark, k uint16) bool {
		_, _, ok := tb.look(m, k)
		return ok
	}
	tb.deny(3, 5*second, now)
	if !has(1, 3) || !has(2, 3) {
		t.Error("a prompt that may not have been computed counts")
	}
	tb.deny(3, 80*second, now)
	if has(1, 3) || !has(2, 3) || !has(1, 4) {
		t.Error("a denial of 80 s takes away other than what is older than 70 s")
	}
	tb.tick(now + 15*second)
	if !has(2, 3) {
		t.Error("after 15 s, what is 65 s old is gone")
	}
	tb.tick(now + 60*second)
	if has(2, 3) {
		t.Error("after 60 s, what is 110 s old is there")
	}
	tb.hold(5, 3, now, others)
	tb.confirm(3, 60*second, now+60*second)
	tb.tick(now + 85*second)
	if !has(5, 3) {
		t.Error("after a confirmation, what is 85 s old is gone")
	}
}

// Chains agree with those of the whole text, however it is extended, and differ by scope, secret and any byte before.
func TestChains(t *testing.T) {
	k := testKey(t)
	r := rand.New(rand.NewPCG(1, 5))
	b := make([]byte, 10*Chunk)
	for i := range b {
		b[i] = byte(r.IntN(4))
	}
	text := string(b)
	whole := k.Chain("m", text).Marks
	if len(whole) != 10 {
		t.Fatalf("%d marks", len(whole))
	}
	for range 200 {
		i := r.IntN(len(text))
		c := k.Chain("m", text[:i])
		if longer := k.Extend(c, text[:i], text[i:]); longer != nil {
			c = longer
		}
		if len(c.Marks) != 10 {
			t.Fatalf("cut at %d: %d marks", i, len(c.Marks))
		}
		for j := range whole {
			if c.Marks[j] != whole[j] {
				t.Fatalf("cut at %d: mark %d differs", i, j)
			}
		}
		x := []byte(text)
		x[i] ^= 1
		for j, m := range k.Chain("m", string(x)).Marks {
			if (m == whole[j]) != (j < i/Chunk) {
				t.Fatalf("byte %d changed: mark %d", i, j)
			}
		}
	}
	other, err := NewKey("another secret of a fleet", "fleet")
	if err != nil {
		t.Fatal(err)
	}
	if k.Chain("n", text).Marks[0] == whole[0] || other.Chain("m", text).Marks[0] == whole[0] {
		t.Error("scope or secret make no difference")
	}
}

func BenchmarkChain14K(b *testing.B) {
	k := testKey(b)
	text := string(make([]byte, 14<<10))
	b.ReportAllocs()
	for b.Loop() {
		k.Chain("model", text)
	}
}

func BenchmarkMatch14K(b *testing.B) {
	n := fuzzed(b)
	n.table = newTable(1 << 19)
	r := rand.New(rand.NewPCG(1, 1))
	for range 400_000 {
		n.table.hold(Mark(max(r.Uint64()>>16, 1)), uint16(r.IntN(8)), firstStamp, others)
	}
	text := string(make([]byte, 14<<10))
	c := n.Chain("m", text)
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for i, m := range c.Marks {
		for k, id := range ids {
			if i < 14-k {
				n.table.hold(m, n.targets.number(id, 0), firstStamp, others)
			}
		}
	}
	held := make([]int, len(ids))
	b.ReportAllocs()
	for b.Loop() {
		clear(held)
		n.Match(c, ids, held, 32)
	}
}

func BenchmarkSent(b *testing.B) {
	n := fuzzed(b)
	c := n.Chain("m", string(make([]byte, 14<<10)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.Sent("a", c)
		if i%1024 == 1023 {
			b.StopTimer()
			n.hooks.ops = n.hooks.ops[:0]
			b.StartTimer()
		}
	}
}

func BenchmarkGauge(b *testing.B) {
	n := fuzzed(b)
	l := n.Local("a")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Set(int64(i), 1, 2)
	}
}

// BenchmarkApply takes in a fact of 14 new marks.
func BenchmarkApply(b *testing.B) {
	n := fuzzed(b)
	n.table = newTable(1 << 19)
	r := rand.New(rand.NewPCG(1, 1))
	facts := make([]fact, 1<<14)
	for i := range facts {
		facts[i] = fact{kind: factSent, tag: uint64(1 + i%8)}
		for range 14 {
			facts[i].marks = appendUint48(facts[i].marks, r.Uint64()>>16)
		}
	}
	at := stamp(firstStamp)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.apply(&facts[i%len(facts)], at)
	}
}
