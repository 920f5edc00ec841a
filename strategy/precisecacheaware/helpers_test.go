package precisecacheaware_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

const blockSize = 16

// engines feeds an Index with what engines would say of themselves.
type engines struct {
	tb  testing.TB
	x   *kvindex.Index
	seq map[string]uint64
}

func newEngines(tb testing.TB) *engines {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return &engines{tb: tb, x: x, seq: map[string]uint64{}}
}

func (e *engines) apply(id string, events ...kvindex.Event) {
	e.tb.Helper()
	e.seq[id]++
	if err := e.x.Apply(id, e.seq[id], kvindex.Batch{Events: events}); err != nil {
		e.tb.Fatal(err)
	}
}

// begin makes the targets trusted ones that hold nothing.
func (e *engines) begin(ids ...string) {
	e.tb.Helper()
	for _, id := range ids {
		e.apply(id)
	}
}

// store tells of the whole blocks of p at a target.
func (e *engines) store(id string, p router.Prompt) {
	e.tb.Helper()
	n := len(p.Tokens) / blockSize
	ev := kvindex.Event{
		Kind: kvindex.Stored, Group: -1, BlockSize: blockSize, Adapter: p.Adapter, Salt: p.Salt,
		Tokens: p.Tokens[:n*blockSize],
	}
	h := fnv.New64a()
	h.Write([]byte(p.Adapter + "\x00" + p.Salt))
	for i, t := range ev.Tokens {
		h.Write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
		if i%blockSize == blockSize-1 {
			ev.Hashes = append(ev.Hashes, h.Sum64())
		}
	}
	e.apply(id, ev)
}

// distrust makes a gap in the target's stream.
func (e *engines) distrust(id string) {
	e.tb.Helper()
	if err := e.x.Apply(id, e.seq[id]+100, kvindex.Batch{}); err == nil {
		e.tb.Fatal("no gap")
	}
	if e.x.Trusted(id) {
		e.tb.Fatal("trusted after a gap")
	}
}

func mustNew(tb testing.TB, c precisecacheaware.Config) *precisecacheaware.Strategy {
	tb.Helper()
	s, err := precisecacheaware.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// tokens returns n token ids that differ from those of other seeds at once.
func tokens(seed, n int) []uint32 {
	ts := make([]uint32, n)
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	for i := range ts {
		ts[i] = r.Uint32N(128_000)
	}
	ts[0] = uint32(seed)
	return ts
}

// busy is a target of known load.
func busy(id string, inFlight int) router.Target {
	return router.Target{ID: id, Load: router.Load{Known: true, InFlight: inFlight}}
}

func pick(tb testing.TB, s *precisecacheaware.Strategy, p router.Prompt, targets ...router.Target) router.Decision {
	tb.Helper()
	d, err := s.Pick(context.Background(), p, targets)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// send records a prompt on a target, as if somebody else had chosen it.
func send(s *precisecacheaware.Strategy, id string, p router.Prompt) {
	s.Record(router.Decision{Prompt: p, Target: router.Target{ID: id}}, router.Outcome{Stage: router.Sent})
}

func seeded(n uint64) func() uint64 { return rand.New(rand.NewPCG(n, 3)).Uint64 }
