package prometheus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
)

// While members come and go, streams begin and end and pages are read, every
// page is whole, and what is counted is right in the end.
func TestStorm(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{MaxTargets: 8}))
	p := serve(t, c)
	view := must(loadview.New(loadview.Config{FullFor: -1, Trace: c.Fleet("f", loadview.Trace{})}))
	set := func(n int) error {
		var ms []loadview.Member
		for i := range 6 {
			ms = append(ms, loadview.Member{ID: fmt.Sprint("t", (n+i)%20)})
		}
		return view.Set(ms)
	}
	if err := set(0); err != nil {
		t.Fatal(err)
	}
	if err := c.WatchFleet("f", view); err != nil {
		t.Fatal(err)
	}
	r := router.New(must(leastload.New(leastload.Config{})), view, router.Options{
		Backoff: -1, Trace: c.Router(prometheus.Route{Name: "r", Strategy: leastload.Name, Fleet: "f"}, router.Trace{}),
	})
	const senders, each = 4, 300
	var sending, churning sync.WaitGroup
	for range senders {
		sending.Go(func() {
			for i := range each {
				_ = r.Do(context.Background(), router.Prompt{Text: "Hello"},
					func(_ context.Context, l *router.Lease) (router.Outcome, error) {
						if i%7 == 0 && l.Attempt() == 1 {
							return router.Outcome{Status: 503}, nil
						}
						return router.Outcome{Status: 200}, nil
					})
			}
		})
	}
	done := make(chan struct{})
	churn := func(f func(int) error) {
		churning.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	churn(set)
	churn(func(i int) error {
		id := fmt.Sprint("t", i%20)
		s := c.Stream("f", []string{id}, func(string) string { return "live" })
		s.Gap(id, 1, 3)
		s.Lag(id, time.Millisecond)
		s.Close()
		return nil
	})
	for range 20 {
		p.text()
	}
	sending.Wait()
	close(done)
	churning.Wait()

	p.is(0, "warmroute_attempts_in_flight")
	if n, m := p.sum("warmroute_picks_total"), p.sum("warmroute_attempts_total"); n != m || n < senders*each {
		t.Errorf("%v picks, %v attempts", n, m)
	}
	p.is(6, "warmroute_targets")
	p.is(-1, "warmroute_event_streams")
	if n := len(p.families()["warmroute_target_picks_total"].GetMetric()); n > 9 {
		t.Errorf("%d targets have picks", n)
	}
}

// BenchmarkHooks is what one attempt costs.
func BenchmarkHooks(b *testing.B) {
	c := must(prometheus.New(prometheus.Config{}))
	h := c.Router(prometheus.Route{Name: "r", Strategy: "cache_aware", Fleet: "f"}, router.Trace{})
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

// An attempt that is like ones before allocates nothing.
func TestHooksDoNotAllocate(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	h := c.Router(prometheus.Route{Name: "r", Strategy: "cache_aware", Fleet: "f"}, router.Trace{})
	ctx := context.Background()
	d := router.Decision{Target: router.Target{ID: "http://vllm-1:8000"}, Cached: 50, Length: 100,
		Reason: router.ReasonWarm}
	o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 100, CachedTokens: 48, OutputTokens: 9,
		Streamed: true}
	first := router.Timing{Decision: d, Outcome: router.Outcome{Stage: router.FirstToken}, Request: time.Second}
	last := router.Timing{Decision: d, Outcome: o, Request: time.Second, Reply: time.Second}
	if n := testing.AllocsPerRun(100, func() {
		h.Routed(ctx, router.RouteInfo{Decision: d, Attempt: 1, Took: time.Microsecond})
		h.Done(ctx, d, o)
		h.Timed(ctx, first)
		h.Timed(ctx, last)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
