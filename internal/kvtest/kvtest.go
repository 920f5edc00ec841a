// Package kvtest feeds an index with events as engines would send them, for the
// tests of the strategies that read it.
package kvtest

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
)

// BlockSize is the size of the engines' blocks in tokens.
const BlockSize = 16

// Engines is an index and the sequence numbers of its engines' streams.
type Engines struct {
	tb    testing.TB
	Index *kvindex.Index
	seq   map[string]uint64
}

// New returns engines of which none has sent anything.
func New(tb testing.TB) *Engines {
	tb.Helper()
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return &Engines{tb: tb, Index: x, seq: map[string]uint64{}}
}

func (e *Engines) apply(id string, events ...kvindex.Event) {
	e.tb.Helper()
	e.seq[id]++
	if err := e.Index.Apply(id, e.seq[id], kvindex.Batch{Events: events}); err != nil {
		e.tb.Fatal(err)
	}
}

// Say applies events of a target.
func (e *Engines) Say(id string, events ...kvindex.Event) {
	e.tb.Helper()
	e.apply(id, events...)
}

// Begin makes the targets trusted, with no blocks.
func (e *Engines) Begin(ids ...string) {
	e.tb.Helper()
	for _, id := range ids {
		e.apply(id)
	}
}

// Store applies an event for the whole blocks of p at a target.
func (e *Engines) Store(id string, p router.Prompt) {
	e.tb.Helper()
	n := len(p.Tokens) / BlockSize
	ev := kvindex.Event{
		Kind: kvindex.Stored, Group: -1, BlockSize: BlockSize, Adapter: p.Adapter, Salt: p.Salt,
		Tokens: p.Tokens[:n*BlockSize],
	}
	h := fnv.New64a()
	h.Write([]byte(p.Adapter + "\x00" + p.Salt))
	for i, t := range ev.Tokens {
		h.Write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
		if i%BlockSize == BlockSize-1 {
			ev.Hashes = append(ev.Hashes, h.Sum64())
		}
	}
	e.apply(id, ev)
}

// Distrust makes a gap in the target's stream.
func (e *Engines) Distrust(id string) {
	e.tb.Helper()
	if err := e.Index.Apply(id, e.seq[id]+100, kvindex.Batch{}); err == nil {
		e.tb.Fatal("no gap")
	}
	if e.Index.Trusted(id) {
		e.tb.Fatal("trusted after a gap")
	}
}

// Tokens returns n token ids that differ from those of other seeds at once.
func Tokens(seed, n int) []uint32 {
	ts := make([]uint32, n)
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	for i := range ts {
		ts[i] = r.Uint32N(128_000)
	}
	ts[0] = uint32(seed)
	return ts
}
