package loadview

import (
	"fmt"
	"testing"

	"github.com/warmroute/router"
)

// BenchmarkChoose is a Choose and its Done. The pick takes the first target, so
// that what is measured is the View.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{8, 64, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v := newView(b, Config{}, n)
			pick := func(ts []router.Target) (router.Decision, error) {
				return router.Decision{Target: ts[0], Length: 14_000}, nil
			}
			b.ReportAllocs()
			for b.Loop() {
				_, f, err := v.Choose(b.Context(), pick)
				if err != nil {
					b.Fatal(err)
				}
				f.Done(router.Outcome{Stage: router.Finished})
			}
		})
	}
}

func BenchmarkChooseParallel(b *testing.B) {
	v := newView(b, Config{}, 64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, f, err := v.Choose(b.Context(), leastLoaded)
			if err != nil {
				b.Fatal(err)
			}
			f.Done(router.Outcome{Stage: router.Finished})
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	v := newView(b, Config{}, 1000)
	b.ReportAllocs()
	for b.Loop() {
		v.Snapshot()
	}
}
