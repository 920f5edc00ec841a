package precisecacheaware_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// stage is a strategy that knows 64 conversations of the given number of blocks,
// each resident on one of the targets, half of them sent a moment ago too.
func stage(tb testing.TB, targets, blocks int) (*precisecacheaware.Strategy, []router.Target, []router.Prompt) {
	e := kvtest.New(tb)
	s := mustNew(tb, precisecacheaware.Config{Index: e.Index})
	var ts []router.Target
	for i := range targets {
		ts = append(ts, busy(fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256), i%3))
		e.Begin(ts[i].ID)
	}
	system := tokens(1, blocks/3*blockSize)
	var ps []router.Prompt
	for i := range 64 {
		p := router.Prompt{Model: "m", Text: fmt.Sprint(i, " and its text")}
		p.Tokens = append(append(p.Tokens, system...), tokens(100+i, blocks*blockSize-len(system)+1)...)
		ps = append(ps, p)
		e.Store(ts[i%targets].ID, p)
		if i%2 == 0 {
			send(s, ts[i%targets].ID, p)
		}
	}
	return s, ts, ps
}

func sizes(b *testing.B, run func(b *testing.B, s *precisecacheaware.Strategy, ts []router.Target,
	ps []router.Prompt)) {
	for _, targets := range []int{8, 64, 512} {
		for _, blocks := range []int{220, 512} {
			b.Run(fmt.Sprintf("targets=%d/blocks=%d", targets, blocks), func(b *testing.B) {
				s, ts, ps := stage(b, targets, blocks)
				b.ReportAllocs()
				run(b, s, ts, ps)
			})
		}
	}
}

// A conversation continues at its target.
func BenchmarkPick(b *testing.B) {
	sizes(b, func(b *testing.B, s *precisecacheaware.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := 0; b.Loop(); i++ {
			if d, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil || d.Reason != router.ReasonWarm {
				b.Fatal(d.Reason, err)
			}
		}
	})
}

// A prompt is recorded, presumed and taken back.
func BenchmarkRecord(b *testing.B) {
	sizes(b, func(b *testing.B, s *precisecacheaware.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := 0; b.Loop(); i++ {
			d, err := s.Pick(context.Background(), ps[i%len(ps)], ts)
			if err != nil {
				b.Fatal(err)
			}
			s.Record(d, router.Outcome{Stage: router.Sent})
			s.Record(d, router.Outcome{Stage: router.Failed})
		}
	})
}

func TestPickAllocatesTheMemoAlone(t *testing.T) {
	if racetest.Enabled {
		t.Skip("under the race detector a sync.Pool forgets at random")
	}
	for _, targets := range []int{1, 8, 512} {
		s, ts, ps := stage(t, targets, 220)
		cold := router.Prompt{Model: "m", Text: "nobody holds it", Tokens: tokens(9, 2000)}
		for _, p := range []router.Prompt{ps[0], ps[1], cold, {}, {Model: "m", Text: "no ids"}} {
			if n := testing.AllocsPerRun(200, func() {
				if _, err := s.Pick(context.Background(), p, ts); err != nil {
					t.Fatal(err)
				}
			}); n != 1 {
				t.Errorf("%d targets, %d tokens: %v allocations", targets, len(p.Tokens), n)
			}
		}
	}
}
