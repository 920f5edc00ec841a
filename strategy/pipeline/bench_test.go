package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/strategy/pipeline"
)

// stage is a strategy that knows 200 conversations of the given size, each on one
// of the targets and each a session.
func stage(tb testing.TB, cfg pipeline.Config, targets,
	size int) (*pipeline.Strategy, []router.Target, []router.Prompt) {
	s := mustNew(tb, cfg)
	var ts []router.Target
	for i := range targets {
		ts = append(ts, busy(fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256), i%3))
	}
	var ps []router.Prompt
	system := strings.Repeat("You are a helpful assistant. ", size)[:size/2]
	for i := range 200 {
		own := strings.Repeat(fmt.Sprintf("turn of conversation %d. ", i), size)[:size/2]
		p := router.Prompt{Model: "m", Session: fmt.Sprint("session ", i), Text: system + own}
		ps = append(ps, p)
		send(tb, s, p, ts[i%targets].ID)
	}
	return s, ts, ps
}

func sizes(b *testing.B, cfg pipeline.Config, run func(b *testing.B, s *pipeline.Strategy, ts []router.Target,
	ps []router.Prompt)) {
	for _, targets := range []int{8, 64, 512} {
		for _, kib := range []int{2, 16, 128} {
			b.Run(fmt.Sprintf("targets=%d/KiB=%d", targets, kib), func(b *testing.B) {
				s, ts, ps := stage(b, cfg, targets, kib<<10)
				b.ReportAllocs()
				run(b, s, ts, ps)
			})
		}
	}
}

// A conversation continues at its target, by its session.
func BenchmarkPick(b *testing.B) {
	sizes(b, pipeline.Config{}, func(b *testing.B, s *pipeline.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := 0; b.Loop(); i++ {
			if d, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil || d.Reason != pipeline.ReasonSession {
				b.Fatal(d.Reason, err)
			}
		}
	})
}

// A conversation continues at its target, by its text, past a filter that drops
// every second target, so that the rest has to be copied.
func BenchmarkPickFiltered(b *testing.B) {
	half := pipeline.FilterFunc(func(_ context.Context, _ *pipeline.Offer, keep []bool) {
		for i := range keep {
			keep[i] = i%2 == 0
		}
	})
	sizes(b, pipeline.Config{SessionTTL: -1, Filters: []pipeline.Filter{half}},
		func(b *testing.B, s *pipeline.Strategy, ts []router.Target, ps []router.Prompt) {
			for i := 0; b.Loop(); i++ {
				if _, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil {
					b.Fatal(err)
				}
			}
		})
}

// A whole request: a new turn of a session, from Pick to Finished.
func BenchmarkRequest(b *testing.B) {
	sizes(b, pipeline.Config{}, func(b *testing.B, s *pipeline.Strategy, ts []router.Target, ps []router.Prompt) {
		for i := 0; b.Loop(); i++ {
			d, err := s.Pick(context.Background(), ps[i%len(ps)], ts)
			if err != nil {
				b.Fatal(err)
			}
			record(s, d, router.Sent, router.FirstToken, router.Finished)
		}
	})
}

func TestPickAllocatesTheMemoAlone(t *testing.T) {
	if racetest.Enabled {
		t.Skip("under the race detector a sync.Pool forgets at random")
	}
	stages := pipeline.Config{
		Filters:  []pipeline.Filter{drop("out")},
		Scorers:  []pipeline.Weighted{{Scorer: says(map[string]float64{"x": 1})}},
		Selector: pipeline.SelectorFunc(func(context.Context, *pipeline.Offer, []float64, uint64) int { return 0 }),
	}
	for _, cfg := range []pipeline.Config{{}, stages} {
		for _, targets := range []int{2, 8, 512} {
			s, ts, ps := stage(t, cfg, targets, 16<<10)
			ts = append(ts, busy("out", 0))
			cold := router.Prompt{Model: "m", Text: "nobody holds it", Session: "of nobody"}
			for _, p := range []router.Prompt{ps[0], ps[1], cold, {}} {
				if n := testing.AllocsPerRun(200, func() {
					if _, err := s.Pick(context.Background(), p, ts); err != nil {
						t.Fatal(err)
					}
				}); n != 1 {
					t.Errorf("%d targets, %d bytes: %v allocations", targets, len(p.Text), n)
				}
			}
			// What a repeat of a session records is there already.
			d := pickFor(t, s, ps[1], ts[1])
			record(s, d, router.Sent)
			if n := testing.AllocsPerRun(200, func() { record(s, d, router.FirstToken) }); n != 0 {
				t.Errorf("%d targets: %v allocations to record", targets, n)
			}
		}
	}
}
