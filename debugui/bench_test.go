package debugui_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
)

// decisionOf is one that a strategy could have made.
func decisionOf(i int, memo any) router.RouteInfo {
	return router.RouteInfo{Attempt: 1, Took: time.Microsecond, Decision: router.Decision{
		Prompt: prompt(long), Target: router.Target{ID: "http://replica-" + strconv.Itoa(i%8)}, Cached: 1000,
		Length: len(long),
		Reason: router.ReasonWarm, Memo: memo,
	}}
}

// TestAllocations holds that hooks allocate nothing once the lists are full, with
// nobody looking.
func TestAllocations(t *testing.T) {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		t.Fatal(err)
	}
	trace := page.Trace("llama", router.Trace{})
	ctx := context.Background()
	var infos []router.RouteInfo
	for i := range 64 {
		infos = append(infos, decisionOf(i, &strings.Builder{}))
	}
	i := 0
	one := func() {
		d := &infos[i%len(infos)]
		i++
		trace.Routed(ctx, *d)
		trace.FirstToken(ctx, d.Decision)
		trace.Done(ctx, d.Decision, router.Outcome{Stage: router.Finished})
	}
	for range 1000 {
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n > 0 {
		t.Errorf("%v allocations for a request", n)
	}
}

// BenchmarkTrace is what the hooks cost a request, with nobody looking.
func BenchmarkTrace(b *testing.B) {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		b.Fatal(err)
	}
	trace := page.Trace("llama", router.Trace{})
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		d := decisionOf(1, &strings.Builder{})
		for pb.Next() {
			trace.Routed(ctx, d)
			trace.FirstToken(ctx, d.Decision)
			trace.Done(ctx, d.Decision, router.Outcome{Stage: router.Finished})
		}
	})
}

// BenchmarkState is what it costs the gateway to be looked at, each second.
func BenchmarkState(b *testing.B) {
	for _, targets := range []int{8, 1000} {
		b.Run(strconv.Itoa(targets), func(b *testing.B) {
			var ids []string
			for i := range targets {
				ids = append(ids, "http://replica-"+strconv.Itoa(i))
			}
			s := start(b, debugui.Config{}, router.Trace{}, ids...)
			for i := range 1000 {
				s.route(b, strconv.Itoa(i)+long).Done(router.Outcome{Stage: router.Finished})
			}
			for b.Loop() {
				s.state(b, "")
			}
		})
	}
}

// BenchmarkRoute is a whole choice among 1,000 targets while the page is open, all
// of them explained, and while it is not.
func BenchmarkRoute(b *testing.B) {
	for _, open := range []bool{false, true} {
		b.Run("open="+strconv.FormatBool(open), func(b *testing.B) {
			var ids []string
			for i := range 1000 {
				ids = append(ids, "http://replica-"+strconv.Itoa(i))
			}
			s := start(b, debugui.Config{ExplainRate: 10_000}, router.Trace{}, ids...)
			if open {
				s.state(b, "")
			}
			for b.Loop() {
				s.route(b, long).Done(router.Outcome{Stage: router.Finished})
			}
		})
	}
}
