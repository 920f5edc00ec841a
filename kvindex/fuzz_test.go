package kvindex

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
)

// script reads events from bytes: any parent, any hash, texts that branch.
type script struct{ b []byte }

func (s *script) next(n int) int {
	if len(s.b) == 0 {
		return 0
	}
	v := int(s.b[0])
	s.b = s.b[1:]
	return v % n
}

func (s *script) event() Event {
	e := Event{Group: -1}
	k := s.next(64)
	switch {
	case k == 0:
		return Event{Kind: Cleared, Group: -1}
	case k == 1:
		e = Event{Kind: Cleared, Group: int32(s.next(4)) - 1, Partly: true, Medium: Medium(s.next(tiers))}
		e.Salt = []string{"", "", "s"}[s.next(3)]
		return e
	case k < 5:
		e.Kind = Moved
		e.From, e.Medium = Medium(s.next(tiers)), Medium(s.next(tiers))
	case k < 24:
		e.Kind = Removed
	default:
		e.Kind = Stored
	}
	shape := s.next(64)
	if shape&7 == 1 {
		e.Group = int32(s.next(3))
		e.Spec = Spec(s.next(4))
		e.Window = int32(s.next(12))
	}
	if shape>>3 == 1 {
		e.Medium = Medium(s.next(tiers))
	}
	n := 1 + s.next(12)
	if k > 60 {
		n = 40 + s.next(100)
	}
	h := uint64(s.next(40))
	for i := range n {
		e.Hashes = append(e.Hashes, h+uint64(i))
	}
	if shape == 5 {
		e.Sums = make([]uint64, n)
		for i := range e.Sums {
			e.Sums[i] = uint64(s.next(3))
		}
	}
	if e.Kind != Stored {
		if shape == 6 && e.Kind == Removed {
			e.Left = make([]uint64, n)
			for i := range e.Left {
				e.Left[i] = uint64(s.next(3))
			}
		}
		return e
	}
	e.BlockSize = 2
	if shape == 7 {
		e.BlockSize = int32(s.next(5))
	}
	e.Pairs = shape == 8
	e.Reused = shape == 9
	if s.next(3) > 0 {
		e.HasParent, e.Parent = true, h-1
		if s.next(4) == 0 {
			e.Parent = uint64(s.next(60))
		}
	}
	// The text follows from the hash, or hardly.
	from := h
	if s.next(6) == 0 {
		from = uint64(s.next(8))
	}
	for i := range n*int(e.BlockSize) + shapeOf(2, e.Pairs, 0).extra() {
		e.Tokens = append(e.Tokens, uint32(from)+uint32(i/2))
	}
	if shape>>2 == 3 {
		e.Ahead = uint8(1 + shape&3)
		for i := range n * int(e.Ahead) {
			e.After = append(e.After, uint32(from)+uint32(i/2))
		}
	}
	if shape == 10 {
		e.Tokens = e.Tokens[:s.next(len(e.Tokens)+1)]
	}
	if shape == 11 {
		e.Extra = make([]uint64, n)
		e.Extra[s.next(n)] = 1
	}
	if s.next(8) == 0 {
		e.Salt = "s"
	}
	return e
}

// FuzzApply: whatever events come, the index stays in order and within its
// bounds, and what a target holds does not depend on the other targets.
func FuzzApply(f *testing.F) {
	for seed := range uint8(6) {
		var b []byte
		for i := range 3000 {
			b = append(b, byte(i*i*7+i*int(seed*31+5)>>3))
		}
		f.Add(b, seed)
	}
	f.Fuzz(fuzzApply)
}

func fuzzApply(t *testing.T, b []byte, kind uint8) {
	c := Config{MaxBlocks: []int{1 << 20, 10 + int(kind)}[kind>>3&1], MaxOrphans: 1 + int(kind%16), Set: kind&1 > 0,
		HostCredit: float64(kind%3) / 2}
	s := &script{b: b}
	ids := []string{"a", "b", "c"}
	all := newIndex(t, c)
	var each []*Index
	for range ids {
		each = append(each, newIndex(t, c))
	}
	seq := make([]uint64, len(ids))
	var prompts []router.Prompt
	for steps := 0; len(s.b) > 0 && steps < 400; steps++ {
		i := s.next(len(ids))
		switch s.next(40) {
		case 0:
			all.Reset(ids[i])
			each[i].Reset(ids[i])
		case 1:
			all.Forget(ids[i])
			each[i].Forget(ids[i])
		case 2:
			seq[i] = uint64(s.next(20))
		}
		batch := Batch{Events: []Event{s.event()}}
		for range s.next(3) {
			batch.Events = append(batch.Events, s.event())
		}
		for _, e := range batch.Events {
			if len(prompts) < 24 && e.Kind == Stored {
				prompts = append(prompts, router.Prompt{Salt: e.Salt, Tokens: append(e.Tokens, 1)})
			}
		}
		a, b := all.Apply(ids[i], seq[i], batch), each[i].Apply(ids[i], seq[i], batch)
		if (a == nil) != (b == nil) {
			t.Fatalf("%v and %v", a, b)
		}
		seq[i]++
		check(t, all)
	}
	for _, p := range prompts {
		got := all.Match(p, ids, nil)
		var want []int
		for i, id := range ids {
			want = append(want, each[i].Match(p, []string{id}, nil)[0])
			// A bound takes from whole runs, which others cut shorter.
			if s, ok := all.Target(id); ok && s.Evicted > 0 {
				want[i] = got[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d tokens %q: %s", len(p.Tokens), p.Salt, diff)
		}
		for _, n := range got {
			if n < -1 || n > max(0, len(p.Tokens)-1) {
				t.Errorf("%d of %d tokens", n, len(p.Tokens))
			}
		}
	}
	for i, id := range ids {
		check(t, each[i])
		a, _ := all.Target(id)
		b, _ := each[i].Target(id)
		if diff := cmp.Diff(b, a); diff != "" && a.Evicted == 0 {
			t.Error(id, diff)
		}
		all.Forget(id)
		check(t, all)
	}
	if s := all.Stats(); s.Nodes != 0 || !all.roots.leaf() {
		t.Errorf("%+v", s)
	}
}
