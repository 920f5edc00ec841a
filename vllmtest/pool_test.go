package vllmtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naivePool is the block pool as one would say it: a list of free blocks, and for
// every block the whole text up to its end.
type naivePool struct {
	free    []int
	refs    map[int]int
	content map[int]string
	age     map[int]int // when the content was published
	clock   int
}

func (n *naivePool) find(content string) int {
	best := -1
	for b, c := range n.content {
		if c == content && (best < 0 || n.age[b] < n.age[best]) {
			best = b
		}
	}
	return best
}

func (n *naivePool) match(contents []string) int {
	for i, c := range contents {
		if n.find(c) < 0 {
			return i
		}
	}
	return len(contents)
}

func (n *naivePool) take(hits []string, fresh int) ([]int, bool) {
	var out []int
	free := slices.Clone(n.free)
	for _, c := range hits {
		b := n.find(c)
		free = slices.DeleteFunc(free, func(x int) bool { return x == b })
		out = append(out, b)
	}
	if len(free) < fresh {
		return nil, false
	}
	for _, b := range free[:fresh] {
		delete(n.content, b)
		out = append(out, b)
	}
	n.free = free[fresh:]
	for _, b := range out {
		n.refs[b]++
	}
	return out, true
}

func (n *naivePool) release(blocks []int) {
	for _, b := range slices.Backward(blocks) {
		if n.refs[b]--; n.refs[b] == 0 {
			if n.content[b] == "" {
				n.free = append([]int{b}, n.free...)
			} else {
				n.free = append(n.free, b)
			}
		}
	}
}

// checkPool drives both pools through one history that ops decides.
func checkPool(t *testing.T, ops []byte) {
	const size, bs = 12, 2
	p := newPool(size)
	n := &naivePool{refs: map[int]int{}, content: map[int]string{}, age: map[int]int{}}
	for b := range size {
		n.free = append(n.free, b)
	}
	type holder struct{ blocks []int32 }
	var held []holder
	next := func() int {
		if len(ops) == 0 {
			return 0
		}
		b := ops[0]
		ops = ops[1:]
		return int(b)
	}
	for len(ops) > 0 {
		if op := next(); op%3 == 0 && len(held) > 0 {
			i := next() % len(held)
			p.release(held[i].blocks)
			var same []int
			for _, b := range held[i].blocks {
				same = append(same, int(b))
			}
			n.release(same)
			held = slices.Delete(held, i, i+1)
		} else {
			// Few different tokens, so that prompts share beginnings.
			tokens := make([]uint32, 1+next()%14)
			for i := range tokens {
				tokens[i] = uint32(next() % 2)
			}
			root := rootKey("", string(rune('a'+next()%2)))
			keys := appendKeys(nil, root, tokens, bs)
			contents := make([]string, len(keys))
			for i := range keys {
				contents[i] = fmt.Sprint(root, tokens[:(i+1)*bs])
			}
			hits := p.match(keys)
			if want := n.match(contents); hits != want {
				t.Fatalf("match %d, want %d", hits, want)
			}
			need := (len(tokens)+bs-1)/bs - hits
			got, ok := p.take(nil, keys[:hits], need)
			want, wantOK := n.take(contents[:hits], need)
			if ok != wantOK || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("take %v %v, want %v %v", got, ok, want, wantOK)
			}
			if ok {
				for i := hits; i < len(keys); i++ {
					p.publish(got[i], keys[i])
					n.clock++
					n.content[want[i]], n.age[want[i]] = contents[i], n.clock
				}
				held = append(held, holder{got})
			}
		}
		if p.free != len(n.free) {
			t.Fatalf("%d free, want %d", p.free, len(n.free))
		}
		distinct := map[string]bool{}
		for _, c := range n.content {
			distinct[c] = true
		}
		if len(p.cached) != len(distinct) {
			t.Fatalf("%d contents cached, want %d", len(p.cached), len(distinct))
		}
	}
}

func TestPoolAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		ops := make([]byte, 1500)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		checkPool(t, ops)
	}
}

func FuzzPool(f *testing.F) {
	f.Add([]byte{1, 9, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 2, 9, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 3, 0})
	f.Fuzz(checkPool)
}

// Under random arrivals and aborts in a cache that is too small, every block is
// held by whom it should be, no step exceeds its bounds, and all requests end with
// all their tokens.
func TestSchedulerInvariants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var preempted, aborted uint64
	for range 30 {
		cfg, err := Config{
			Blocks: 10 + rng.IntN(30), BlockSize: 1 + rng.IntN(8), MaxStepTokens: 8 + rng.IntN(64), MaxSeqs: 1 + rng.IntN(8),
			MaxRequests: 40,
		}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		m := newCounters(time.Now())
		c := &scheduler{cfg: &cfg, pool: newPool(cfg.Blocks), m: &m}
		var all []*seq
		check := func(st step) {
			t.Helper()
			if st.tokens > cfg.MaxStepTokens || len(c.running) > cfg.MaxSeqs || len(c.running)+len(c.waiting) > cfg.MaxRequests {
				t.Fatalf("a step of %d tokens, %d running, %d waiting", st.tokens, len(c.running), len(c.waiting))
			}
			refs := make([]int32, cfg.Blocks)
			for _, s := range c.running {
				if len(s.blocks)*cfg.BlockSize < s.computed {
					t.Fatalf("%d tokens computed in %d blocks", s.computed, len(s.blocks))
				}
				for _, b := range s.blocks {
					refs[b]++
				}
			}
			used := 0
			for i, n := range refs {
				if n != c.pool.blocks[i].refs {
					t.Fatalf("block %d has %d references, %d sequences hold it", i, c.pool.blocks[i].refs, n)
				}
				if n > 1 && !c.pool.blocks[i].keyed {
					t.Fatalf("block %d is shared and holds no known content", i)
				}
				if n > 0 {
					used++
				}
			}
			if used != c.pool.inUse() {
				t.Fatalf("%d blocks in use, want %d", c.pool.inUse(), used)
			}
		}
		for i := 0; i < 400 || len(c.running)+len(c.waiting) > 0; i++ {
			if i < 400 && rng.IntN(3) == 0 {
				prompt := make([]uint32, 1+rng.IntN(cfg.MaxModelLen-1))
				for j := range prompt {
					prompt[j] = uint32(rng.IntN(2))
				}
				s := newSeq(rootKey("", ""), prompt, 1+rng.IntN(cfg.MaxModelLen-len(prompt)), cfg.BlockSize,
					func(i int) uint32 { return uint32(i % 2) })
				if c.submit(s, time.Now()) == nil {
					all = append(all, s)
				}
			}
			st := c.schedule(time.Now())
			check(st)
			if len(st.work) == 0 && len(c.waiting) > 0 {
				t.Fatal("nothing is scheduled though requests wait")
			}
			if len(all) > 0 && rng.IntN(10) == 0 {
				c.abort(all[rng.IntN(len(all))])
			}
			c.complete(st, time.Now())
			check(st)
			if i > 100_000 {
				t.Fatal("it does not end")
			}
		}
		for _, s := range all {
			if !(s.state == seqFinished && s.produced == s.want || s.state == seqAborted && s.produced < s.want) {
				t.Fatalf("a request ended in state %d with %d of %d tokens", s.state, s.produced, s.want)
			}
		}
		if c.pool.inUse() != 0 {
			t.Fatalf("%d blocks are still in use", c.pool.inUse())
		}
		preempted += m.preempted
		aborted += m.aborted
	}
	if preempted == 0 || aborted == 0 {
		t.Fatalf("%d preemptions, %d aborts: the history is too tame", preempted, aborted)
	}
}

// Equal prompts of one step share blocks at once: one of them computes, the
// others find all but the last block, as real engines were seen to do.
func TestOneStepShares(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := newCounters(time.Now())
	c := &scheduler{cfg: &cfg, pool: newPool(cfg.Blocks), m: &m}
	var all []*seq
	for range 8 {
		s := newSeq(rootKey("", ""), promptOf(160, 1), 1, cfg.BlockSize, func(int) uint32 { return 7 })
		if err := c.submit(s, time.Now()); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if st := c.schedule(time.Now()); len(st.work) != 8 || st.prefill != 160+7*16 {
		t.Fatalf("%d sequences, %d tokens in the step", len(st.work), st.prefill)
	}
	for i, s := range all {
		if want := min(i, 1) * 144; s.cached != want {
			t.Errorf("sequence %d: %d cached, want %d", i, s.cached, want)
		}
	}
}
