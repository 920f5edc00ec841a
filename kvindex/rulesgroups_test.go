package kvindex

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSparseAndTokenless(t *testing.T) {
	g := newRig(t, Config{})
	g.apply("a", put("abcd", 4), drop("ab", "cd"))
	g.holds("abcd", 1)
	g.apply("a", put("abcd", 4).with(func(e *Event) { e.Hashes = e.Hashes[1:2] })) // known
	g.holds("abcd", 4)
	g.apply("a", drop("abc"), put("abcd", 2).with(func(e *Event) { e.Tokens, e.BlockSize = nil, 0 }))
	g.holds("abcd", 4)
	g.apply("a", put("xyz", 3).with(func(e *Event) { e.Tokens = nil }),
		put("uvw", 3).with(func(e *Event) { e.Hashes = e.Hashes[:2] }))
	g.holds("xyz", 0)
	g.holds("uvw", 0)
	g.apply("a", put("uvw", 3).with(func(e *Event) { e.Hashes = []uint64{} }))
	s, _ := g.x.Target("a")
	if s.Unplaced != 5 {
		t.Errorf("%d unplaced, want 5", s.Unplaced)
	}
}

func TestBlockSizes(t *testing.T) {
	var told [][2]int
	g := newRig(t, Config{Trace: Trace{BlockSize: func(_ string, was, is int) { told = append(told, [2]int{was, is}) }}})
	g.apply("a", put("abcd", 4))
	// A part of a block says nothing about whole ones.
	part := Event{Kind: Stored, Group: -1, BlockSize: 2, Tokens: []uint32{1, 2}, Hashes: []uint64{3}}
	g.apply("a", part)
	g.holds("abcd", 4)
	// Bigger blocks are another engine's.
	big := Event{Kind: Stored, Group: -1, BlockSize: 8, Tokens: tokens("abcd"), Hashes: []uint64{1, 2}}
	g.apply("a", big)
	g.holds("abcdef", 4)
	g.apply("a", drop("a"))
	g.holds("abcdef", 4)
	// And so are smaller ones, as soon as they are more than a part.
	g.apply("a", put("ab", 2))
	g.holds("abcd", 2) // what was known before is void
	// One part after another is none.
	for range 9 {
		g.holds("abcd", 2)
		g.apply("a", part)
	}
	g.holds("abcd", 0)
	s, _ := g.x.Target("a")
	if s.Reshaped != 3 || s.Partial != 9 || s.BlockSize != 2 {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([][2]int{{4, 8}, {8, 4}, {4, 2}}, told); diff != "" {
		t.Error(diff)
	}
}

func TestMedia(t *testing.T) {
	host := func(e Event) Event { e.Medium = Host; return e }
	for _, c := range []struct {
		credit                   float64
		demoted, gone, some, all int
	}{{0, 1, 1, 0, 0}, {1, 4, 3, 1, 4}, {.5, 2, 2, 0, 2}, {.75, 3, 2, 0, 3}} {
		g := newRig(t, Config{HostCredit: c.credit})
		g.apply("a", put("abcd", 4), host(put("abcd", 4).with(func(e *Event) { e.Tokens, e.BlockSize = nil, 0 })))
		g.holds("abcd", 4)
		g.apply("a", drop("ab", "abc", "abcd"))
		g.holds("abcd", c.demoted)
		g.apply("a", host(drop("abcd")))
		g.holds("abcd", c.gone)
		// A copy in the host's memory may be all there ever was.
		g.apply("a", host(put("x", 1)))
		g.holds("x", c.some)
		g.apply("a", host(put("xyzw", 3)))
		g.holds("xyzw", c.all)
		g.apply("a", put("x", 1).with(func(e *Event) { e.Medium = Storage }),
			drop("abcd").with(func(e *Event) { e.Medium = Storage }))
		g.apply("a", host(drop("x", "xy", "xyz", "xyzw")))
		g.holds("xyzw", 0)
	}
}

// A host copy counts by any of a position's hashes, and where the target has
// nothing at a position it has no host copy either.
func TestHostCopiesOfSharedRuns(t *testing.T) {
	host := func(e Event) Event { e.Medium = Host; return e }
	g := newRig(t, Config{HostCredit: 1})
	other := put("ab", 2).with(func(e *Event) { e.Hashes = []uint64{1, 2} })
	g.apply("a", put("ab", 2), other, host(put("ab", 2)), drop("ab"), Event{Kind: Removed, Group: -1, Hashes: []uint64{2}})
	g.holds("ab", 2)
	g.apply("a", host(drop("ab")))
	g.holds("ab", 1)

	g = newRig(t, Config{HostCredit: 1})
	g.apply("a", put("abcd", 4), host(put("abcd", 4)), put("abX", 1)) // a run is split
	// Both branches go: their hashes stand for other blocks now.
	g.apply("a", put("zzz", 3).with(func(e *Event) { e.Hashes = []uint64{hashed("abc"), hashed("abcd"), hashed("abX")} }))
	g.apply("b", put("abQR", 4)) // the run grows again
	g.holds("abQR", 2)
	g.holdsOf("b", "abQR", 4)
}

func TestGroups(t *testing.T) {
	group := func(e Event, n int32, s Spec, window int32) Event {
		e.Group, e.Spec, e.Window = n, s, window
		return e
	}
	g := newRig(t, Config{})
	// The sliding group's hashes come first, and with gaps.
	sparse := put("abcdef", 6)
	sparse.Hashes = []uint64{hashed("abc"), hashed("abcd"), hashed("abcdef")}
	g.apply("a", group(sparse, 0, SpecSliding, 8), group(put("abcdef", 6), 1, SpecFull, 0))
	g.holds("abcdef", 4) // the last two of four
	g.holds("abcd", 4)
	g.holds("abc", 0)
	g.apply("a", group(drop("abc"), 0, SpecNone, 0))
	g.holds("abcd", 0)
	g.apply("a", group(put("abcde", 1).with(func(e *Event) { e.Hashes = []uint64{hashed("abcde")} }), 0, SpecSliding, 8))
	g.holds("abcdef", 6)
	g.apply("a", group(drop("abcdef"), 1, SpecNone, 0))
	g.holds("abcdef", 5)
	// Other kinds are of no interest.
	g.apply("a", group(put("abcdef", 6), 2, SpecOther, 0), group(drop("ab"), 2, SpecNone, 0))
	g.holds("abcdef", 5)
	// A second full group must hold all of it.
	g.apply("a", group(put("abc", 3), 3, SpecFull, 0))
	g.holds("abcdef", 0)
	g.apply("a", group(put("ab", 2), 0, SpecSliding, 8))
	g.holds("abcdef", 2)

	// Without kinds, the first group with tokens and hashes that agree.
	g = newRig(t, Config{})
	g.apply("a", group(sparse, 0, SpecNone, 0), group(put("abc", 3), 2, SpecNone, 0))
	g.holds("abc", 3)
	g.apply("a", group(put("xy", 2), 1, SpecNone, 0), group(put("abcd", 4), 2, SpecNone, 0))
	g.holds("abc", 0)
	g.holds("xy", 2)
	g.apply("a", group(drop("xy"), 2, SpecNone, 0), group(put("pq", 2), 5, SpecFull, 0))
	g.holds("xy", 0)
	g.holds("pq", 2)
	g.apply("a", group(drop("pq"), 5, SpecNone, 0))
	g.holds("pq", 1)
}
