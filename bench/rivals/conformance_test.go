package rivals

import (
	"testing"

	"github.com/warmroute/router/routertest"
)

func TestConformance(t *testing.T) {
	for _, e := range All() {
		t.Run(e.Name, func(t *testing.T) {
			var o routertest.Options
			if e.Name == "chwbl" {
				o.Skip = map[routertest.Law]string{
					routertest.Ties: "a ring knows no ties: the empty prompt has one place, as every other",
				}
			}
			routertest.Run(t, e.New, o)
		})
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, e := range All() {
		b.Run(e.Name, func(b *testing.B) { routertest.Benchmark(b, e.New) })
	}
}
