package otel_test

import (
	"context"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/otel"
)

// BenchmarkHooks measures one attempt if no span is recording.
func BenchmarkHooks(b *testing.B) {
	r := newRig(b, otel.Config{})
	h := r.Router(otel.Route{Name: "r", Strategy: "cache_aware", Fleet: "f"}, router.Trace{})
	ctx := context.Background()
	d := router.Decision{Target: router.Target{ID: "http://vllm-1:8000"}, Cached: 50, Length: 100,
		Reason: router.ReasonWarm}
	o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 100, CachedTokens: 48, OutputTokens: 9,
		Streamed: true}
	first := router.Timing{Decision: d, Outcome: router.Outcome{Stage: router.FirstToken}, Request: time.Second}
	last := router.Timing{Decision: d, Outcome: o, Request: time.Second, Reply: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		h.Routed(ctx, router.RouteInfo{Decision: d, Attempt: 1, Took: time.Microsecond})
		h.Done(ctx, d, o)
		h.Timed(ctx, first)
		h.Timed(ctx, last)
	}
}
