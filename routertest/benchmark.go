package routertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
)

// Benchmark measures one request, from Pick to Finished, over 8, 64 and 512
// targets of known, unequal load, with prompts of 14 KB that share a lead of
// 8 KB.
func Benchmark(b *testing.B, newStrategy Factory) {
	b.Helper()
	lead := strings.Repeat("All of them begin alike. ", 8<<10/25)
	prompts := make([]router.Prompt, 64)
	for i := range prompts {
		prompts[i] = router.Prompt{Model: "llama", Text: lead + strings.Repeat(fmt.Sprintf("Prompt %02d. ", i), 6<<10/11)}
	}
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("targets=%d", n), func(b *testing.B) {
			k := newKit(b, newStrategy, Options{})
			ts := make([]router.Target, n)
			for i := range ts {
				ts[i].ID = fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256)
				ts[i].Load = router.Load{Known: true, InFlight: i % 7}
			}
			s := newStrategy(k.rand(1))
			ctx := context.Background()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d, err := s.Pick(ctx, prompts[i%len(prompts)], ts)
				if err != nil {
					b.Fatal(err)
				}
				s.Record(d, router.Outcome{Stage: router.Sent})
				s.Record(d, router.Outcome{Stage: router.FirstToken})
				s.Record(d, router.Outcome{Stage: router.Finished, Status: 200})
				i++
			}
		})
	}
}
