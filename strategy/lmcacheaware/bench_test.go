package lmcacheaware_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

// stage is a fleet, all caches of which are known.
func stage(n int) (values, []router.Target) {
	f := values{}
	var ts []router.Target
	for i := range n {
		id := fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256)
		f[id] = float64(i%7) / 6
		ts = append(ts, busy(id, i%5))
	}
	return f, ts
}

func BenchmarkPick(b *testing.B) {
	p := router.Prompt{Model: "m", Text: strings.Repeat("text ", 3000)}
	for _, affinity := range []float64{0, 4} {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("affinity=%v/targets=%d", affinity, n), func(b *testing.B) {
				f, ts := stage(n)
				s := mustNew(b, lmcacheaware.Config{Source: f, AffinityRequests: affinity})
				send(b, s, p, ts[0].ID)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Pick(context.Background(), p, ts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("under the race detector a sync.Pool forgets at random")
	}
	for _, n := range []int{1, 8, 512} {
		f, ts := stage(n)
		for affinity, want := range map[float64]float64{0: 0, 4: 1} { // the Memo
			s := mustNew(t, lmcacheaware.Config{Source: f, AffinityRequests: affinity})
			for _, p := range []router.Prompt{p0, {Model: "m"}, {Model: "m", Text: strings.Repeat("text ", 3000)}} {
				send(t, s, p, ts[0].ID)
				if got := testing.AllocsPerRun(200, func() {
					if _, err := s.Pick(context.Background(), p, ts); err != nil {
						t.Fatal(err)
					}
				}); got != want {
					t.Errorf("%d targets, affinity %v: %v allocations, want %v", n, affinity, got, want)
				}
			}
		}
	}
}
