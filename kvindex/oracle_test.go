package kvindex

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	router "github.com/warmroute/router"
)

// history drives some engines and an index from one source of chance, and holds
// one against the other.
type history struct {
	t       testing.TB
	r       *rand.Rand
	x       *Index
	engines []*engine
	ids     []string
	prompts []router.Prompt
	partial []bool // what was missed is forgotten: the index knows less than there is
	cached  []int
}

func newHistory(t testing.TB, seed uint64) *history {
	r := rand.New(rand.NewPCG(seed, 7))
	h := &history{t: t, r: r, x: newIndex(t, Config{})}
	sizes := []int{1, 2, 4, 16, 16, 32}
	same := sizes[r.IntN(len(sizes))]
	for i := range 2 + r.IntN(4) {
		size := same
		if r.IntN(4) == 0 {
			size = sizes[r.IntN(len(sizes))]
		}
		d := dialect{maps: r.IntN(2) == 0, mapBatch: r.IntN(5) == 0, bytes: r.IntN(3) == 0, signed: r.IntN(2) == 0,
			wide: r.IntN(6) == 0}
		d.sglang = r.IntN(3) == 0
		if r.IntN(3) == 0 {
			d.shuffle = r
		}
		e := newEngine(r, size, 20+r.IntN(300), d)
		switch {
		case d.sglang:
			e.pairs = r.IntN(2) == 0
		case r.IntN(3) == 0:
			e.window = 1 + r.IntN(6)
			e.odd = size - 1 - r.IntN(2)*r.IntN(size)
		case r.IntN(2) == 0:
			e.group = 0
		}
		h.engines = append(h.engines, e)
		h.ids = append(h.ids, fmt.Sprint("t", i))
	}
	h.partial = make([]bool, len(h.engines))
	return h
}

// prompt returns a text: one that goes on from another, or a new one.
func (h *history) prompt() router.Prompt {
	r := h.r
	size := h.engines[0].size
	var p router.Prompt
	if len(h.prompts) > 0 && r.IntN(6) > 0 {
		p = h.prompts[r.IntN(len(h.prompts))]
		cut := len(p.Tokens)
		if r.IntN(2) == 0 {
			cut = r.IntN(len(p.Tokens) + 1)
		}
		p.Tokens = slices.Clone(p.Tokens[:cut])
	} else {
		p.Adapter = []string{"", "", "", "a", "b"}[r.IntN(5)]
		p.Salt = []string{"", "", "", "a", "s"}[r.IntN(5)]
	}
	for range r.IntN(12*size + 2) {
		p.Tokens = append(p.Tokens, uint32(r.IntN(3))<<r.IntN(31))
	}
	if len(p.Tokens) > 150*size {
		p.Tokens = p.Tokens[:150*size]
	}
	if r.IntN(3) == 0 { // the edge of a block
		p.Tokens = p.Tokens[:len(p.Tokens)/size*size]
	}
	if len(h.prompts) < 60 {
		h.prompts = append(h.prompts, p)
	} else {
		h.prompts[r.IntN(len(h.prompts))] = p
	}
	return p
}

func (h *history) compare(what string) {
	h.t.Helper()
	for _, p := range h.prompts {
		h.cached = h.x.Match(p, h.ids, h.cached)
		for i, e := range h.engines {
			got, want := h.cached[i], e.leading(p)*e.size
			if got < 0 && !h.x.Trusted(h.ids[i]) {
				continue
			}
			if got != want && !(h.partial[i] && got < want) {
				h.t.Fatalf("after %s, %s (blocks of %d, pairs %v, window %d, %+v), %d tokens %q %q: %d, want %d (%d blocks)",
					what, h.ids[i], e.size,
					e.pairs, e.window, e.talk, len(p.Tokens), p.Adapter, p.Salt, got, want, want/e.size)
			}
		}
	}
	check(h.t, h.x)
}

func (h *history) apply(i int, seq uint64, payload []byte) error {
	b, err := Decode(payload)
	if err != nil {
		h.t.Fatalf("Decode: %v", err)
	}
	return h.x.Apply(h.ids[i], seq, b)
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) step() string {
	i := h.r.IntN(len(h.engines))
	e, id := h.engines[i], h.ids[i]
	what := "a request"
	switch k := h.r.IntN(40); {
	case k < 30:
		for range 1 + h.r.IntN(3) {
			e.serve(h.prompt())
		}
	case k < 33:
		what = "a hole"
		for range 1 + h.r.IntN(6) {
			e.hole()
		}
	case k < 35:
		what = "a clear"
		e.serve(h.prompt())
		e.clear()
		h.partial[i] = false
	case k < 36 && e.seq > 0:
		what = "a restart"
		e.start()
		e.seq = uint64(h.r.IntN(int(min(3, e.seq))))
		e.serve(h.prompt())
		h.partial[i] = false
	case k < 37:
		what = "a reset"
		h.x.Reset(id)
		if h.x.Trusted(id) {
			h.t.Fatal("trusted after Reset")
		}
		h.partial[i] = true
	case k < 38 && e.seq > 0:
		what = "a gap"
		type msg struct {
			seq     uint64
			payload []byte
		}
		var lost []msg
		for range 1 + h.r.IntN(3) {
			e.serve(h.prompt())
			seq, payload := e.message()
			lost = append(lost, msg{seq, payload})
		}
		e.serve(h.prompt())
		seq, payload := e.message()
		lost = append(lost, msg{seq, payload})
		if _, ok := h.x.Last(id); ok {
			if err := h.apply(i, seq, payload); !errors.Is(err, ErrGap) || h.x.Trusted(id) {
				h.t.Fatalf("a gap: %v, trusted %v", err, h.x.Trusted(id))
			}
		}
		if h.r.IntN(2) == 0 {
			for _, m := range lost {
				h.must(h.apply(i, m.seq, m.payload))
			}
			what = "a gap that was filled"
		} else {
			h.x.Reset(id)
			h.partial[i] = true
			h.must(h.apply(i, seq, payload))
			what = "a gap that was not filled"
		}
		if !h.x.Trusted(id) {
			h.t.Fatal("not trusted after a gap")
		}
		return what
	case k < 39:
		what = "a late join"
		h.x.Forget(id)
		h.partial[i] = true
	}
	seq, payload := e.message()
	h.must(h.apply(i, seq, payload))
	return what
}

func runHistory(t testing.TB, seed uint64, steps int) {
	h := newHistory(t, seed)
	for i, e := range h.engines { // the first message of each
		e.serve(h.prompt())
		seq, payload := e.message()
		h.must(h.apply(i, seq, payload))
	}
	for range steps {
		what := h.step()
		h.compare(what)
	}
}

// TestHistories holds Match against naive caches after each step of random
// histories.
func TestHistories(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 10
	}
	for seed := range n {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			runHistory(t, uint64(seed), 60)
		})
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { runHistory(t, seed, int(steps)) })
}
