package cacheaware_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/strategy/cacheaware"
)

// stage is a strategy that knows 200 conversations of the given size, each on one
// of the targets.
func stage(tb testing.TB, targets, size int) (*cacheaware.Strategy, []router.Target, []router.Prompt) {
	s := mustNew(tb, cacheaware.Config{})
	var ts []router.Target
	for i := range targets {
		ts = append(ts, busy(fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256), 0, i%3))
	}
	var ps []router.Prompt
	system := strings.Repeat("You are a helpful assistant. ", size)[:size/2]
	for i := range 200 {
		own := strings.Repeat(fmt.Sprintf("turn of conversation %d. ", i), size)[:size/2]
		p := router.Prompt{Model: "m", Text: system + own}
		ps = append(ps, p)
		send(s, ts[i%targets].ID, p.Text)
	}
	return s, ts, ps
}

func sizes(b *testing.B, run func(b *testing.B, s *cacheaware.Strategy, ts []router.Target, ps []router.Prompt)) {
	for _, targets := range []int{8, 64, 512} {
		for _, kib := range []int{2, 16, 128} {
			b.Run(fmt.Sprintf("targets=%d/KiB=%d", targets, kib), func(b *testing.B) {
				s, ts, ps := stage(b, targets, kib<<10)
				b.ReportAllocs()
				run(b, s, ts, ps)
			})
		}
	}
}

// A conversation continues at its target.
func BenchmarkPick(b *testing.B) {
	sizes(b, func(b *testing.B, s *cacheaware.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := 0; b.Loop(); i++ {
			if d, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil || d.Reason != router.ReasonWarm {
				b.Fatal(d.Reason, err)
			}
		}
	})
}

// A prompt that nobody holds: all targets are ranked.
func BenchmarkPickCold(b *testing.B) {
	sizes(b, func(b *testing.B, s *cacheaware.Strategy, ts []router.Target, ps []router.Prompt) {
		p := ps[0]
		p.Text = "nobody holds it" + p.Text
		for b.Loop() {
			if d, err := s.Pick(context.Background(), p, ts); err != nil || d.Reason != router.ReasonCold {
				b.Fatal(d.Reason, err)
			}
		}
	})
}

// A new turn of a conversation is recorded and taken back.
func BenchmarkRecord(b *testing.B) {
	sizes(b, func(b *testing.B, s *cacheaware.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := range ps {
			ps[i].Text += "A question of some length, as they are asked."
		}
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
		s, ts, ps := stage(t, targets, 16<<10)
		cold := router.Prompt{Model: "m", Text: "nobody holds it"}
		for _, p := range []router.Prompt{ps[0], cold, {}} {
			if n := testing.AllocsPerRun(200, func() {
				if _, err := s.Pick(context.Background(), p, ts); err != nil {
					t.Fatal(err)
				}
			}); n != 1 {
				t.Errorf("%d targets, %d bytes: %v allocations", targets, len(p.Text), n)
			}
		}
	}
}
