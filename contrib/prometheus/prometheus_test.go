package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/trie"
)

// everything is a collector of which every metric has a series.
func everything(t testing.TB) *prometheus.Collector {
	t.Helper()
	c := must(prometheus.New(prometheus.Config{}))
	ctx := context.Background()

	trace := c.Fleet("f", loadview.Trace{})
	view := must(loadview.New(loadview.Config{Trace: trace}))
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}, {ID: "gone"}}); err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	trace.StateChanged("a", router.Ready, router.Cooling)
	trace.ScrapeChanged("a", errors.New("refused"))
	trace.PanicChanged(view, true)

	cache := c.LMCache("f", lmcache.Trace{})
	cache.Polled("a", time.Millisecond, nil)
	cache.Polled("b", time.Second, errors.New("refused"))

	s := c.Stream("f", []string{"a", "b"}, func(string) string { return "live" })
	s.Transition("live")
	s.Gap("a", 3, 7)
	s.Malformed("b")
	s.Malformed("")
	s.Overflow()
	s.Replay("a")
	s.Lag("a", 3*time.Millisecond)

	_, flight, err := view.Choose(ctx, func(ts []router.Target) (router.Decision, error) {
		return router.Decision{Target: ts[0]}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	flight.Done(router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: time.Hour}) // a has a limit
	for _, err := range []error{
		c.WatchFleet("f", view),
		c.WatchIndex("kv", must(kvindex.New(kvindex.Config{}))),
		c.WatchTrie("chat", func() trie.Stats { return trie.Stats{Nodes: 1, Bytes: 2, Prompts: 3, Evicted: 4} }),
		c.WatchPrecise("r", func() precisecacheaware.Stats { return precisecacheaware.Stats{Judged: 9, Mismatched: 2} }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WatchLMCache("f", freeCache(t)); err != nil {
		t.Fatal(err)
	}

	line := c.Queue("q", admission.Trace{})
	line.Left(ctx, router.Prompt{}, admission.Class{Priority: 3}, time.Second, admission.Served)
	line.Left(ctx, router.Prompt{}, admission.Class{}, time.Second, admission.TooMany)
	if err := c.WatchQueue("q", must(admission.New(admission.Config{}))); err != nil {
		t.Fatal(err)
	}
	if err := c.WatchMemory("m", must(membudget.New(membudget.Config{}))); err != nil {
		t.Fatal(err)
	}
	if err := c.WatchShare("s", aShare{}); err != nil {
		t.Fatal(err)
	}
	if err := c.WatchDisagg("r", "f", aSplit{}); err != nil {
		t.Fatal(err)
	}

	h := c.Router(prometheus.Route{Name: "r", Strategy: precisecacheaware.Name, Fleet: "f"}, router.Trace{})
	d := router.Decision{Target: router.Target{ID: "a"}, Cached: 50, Length: 100, Reason: router.ReasonSpill}
	h.Routed(ctx, router.RouteInfo{Decision: d, Took: time.Microsecond})
	d.Reason = precisecacheaware.ReasonNoTokensLeastLoad
	h.Routed(ctx, router.RouteInfo{Decision: d, Took: time.Microsecond})
	h.Done(ctx, d, router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 40, CachedTokens: 16})
	h.Retry(ctx, router.RetryInfo{Outcome: router.Outcome{Status: 503}})
	h.NoTarget(ctx, router.Prompt{}, &router.NoTargetError{})
	h.Timed(ctx, router.Timing{Decision: d, Outcome: router.Outcome{Stage: router.FirstToken}, Request: time.Second})
	h.Timed(ctx, router.Timing{Decision: d, Request: 3 * time.Second, Reply: 2 * time.Second,
		Outcome: router.Outcome{Stage: router.Finished, OutputTokens: 101, Streamed: true}})
	return c
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestConfig(t *testing.T) {
	_, err := prometheus.New(prometheus.Config{MaxTargets: -1, MaxRoutes: -2, MaxReasons: -3})
	for _, field := range []string{"MaxTargets", "MaxRoutes", "MaxReasons"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// What a gap hid, what an engine said and what was predicted are counted.
func TestNumbers(t *testing.T) {
	p := serve(t, everything(t))
	p.is(1, "warmroute_event_gaps_total", "target=a")
	p.is(0, "warmroute_event_gaps_total", "target=b")
	p.is(3, "warmroute_event_missing_messages_total", "target=a")
	p.is(1, "warmroute_event_malformed_total", "target=other")
	p.is(0.003, "warmroute_event_stream_lag_seconds", "target=a")
	p.is(1, "warmroute_fallbacks_total", "cause=no_tokens")
	p.is(1, "warmroute_spills_total")
	p.is(20, "warmroute_predicted_cached_tokens_total") // half of the prompt
	p.is(16, "warmroute_reported_cached_tokens_total")
	p.is(4, "warmroute_overpredicted_cached_tokens_total")
	p.is(0, "warmroute_underpredicted_cached_tokens_total")
	p.is(1, "warmroute_attempts_in_flight")
	p.is(1, "warmroute_no_target_total", "cause=empty_fleet")
	p.is(3, "warmroute_targets_joined_total")
	p.is(1, "warmroute_targets_left_total")
	p.is(1, "warmroute_cache_losses_total")
	p.is(2, "warmroute_event_streams", "state=live")
	p.is(0.7, "warmroute_lmcache_free_ratio", "target=a")
	p.is(1, "warmroute_lmcache_caches", "state=available")
	p.is(9, "warmroute_index_predictions_total", "route=r")
	p.is(2, "warmroute_index_mispredictions_total", "route=r")
	p.is(4, "warmroute_trie_evicted_prompts_total", "trie=chat")
	p.is(1, "warmroute_time_to_first_token_seconds", "reason=no_tokens_least_load")
	p.is(1, "warmroute_request_duration_seconds", "route=r")
	p.is(1, "warmroute_output_tokens_per_second", "route=r")
	p.is(40, "warmroute_prompt_tokens_total", "route=r")
	if page := p.text(); !strings.Contains(page, `warmroute_output_tokens_per_second_sum{route="r",`+
		`strategy="precise_cache_aware"} 50`+"\n") {
		t.Errorf("100 tokens in 2 s after the first one are not 50/s:\n%s", page)
	}
}

// TestBeginsAtZero: before the first request each series that is to be expected is there and 0, under the names that
// those without one get.
func TestBeginsAtZero(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	view := must(loadview.New(loadview.Config{Trace: c.Fleet("", loadview.Trace{})}))
	if err := errors.Join(view.Set([]loadview.Member{{ID: "a"}}), c.WatchFleet("", view)); err != nil {
		t.Fatal(err)
	}
	c.Router(prometheus.Route{Strategy: "least_work"}, router.Trace{})
	c.Queue("", admission.Trace{})
	defer c.Stream("", []string{"a"}, func(string) string { return "live" }).Close()
	p := serve(t, c)
	for range 2 { // reading the page removes none
		p.is(0, "warmroute_time_to_first_token_seconds", "reason=warm", "route=default")
		p.is(0, "warmroute_time_to_first_token_seconds", "reason=cold", "route=default")
		p.is(0, "warmroute_request_duration_seconds", "route=default")
		p.is(0, "warmroute_output_tokens_per_second", "route=default")
		p.is(0, "warmroute_output_tokens_total", "route=default")
		p.is(0, "warmroute_picks_total", "reason=spill")
		for _, e := range observe.Endings() {
			p.is(0, "warmroute_attempts_total", "outcome="+e.Outcome, "code="+e.Code)
		}
		for _, s := range observe.States() {
			p.is(0, "warmroute_target_state_changes_total", "fleet=default", "target=a", "state="+s)
		}
		for _, s := range observe.StreamStates() {
			p.is(0, "warmroute_event_stream_transitions_total", "fleet=default", "state="+s)
		}
		p.is(0, "warmroute_target_picks_total", "fleet=default", "target=a")
		p.is(0, "warmroute_queue_requests_total", "queue=default")
		p.is(0, "warmroute_queue_wait_seconds", "queue=default")
	}
	if err := view.Set(nil); err != nil {
		t.Fatal(err)
	}
	p.is(-1, "warmroute_target_state_changes_total", "target=a")
}

// A caller that invents routes, strategies, reasons, targets and fleets makes no
// more series than the bounds say.
func TestCardinality(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{MaxTargets: 5, MaxRoutes: 3, MaxReasons: 4}))
	p := serve(t, c)
	view := must(loadview.New(loadview.Config{}))
	var members []loadview.Member
	for i := range 50 {
		members = append(members, loadview.Member{ID: fmt.Sprint("target-", i, strings.Repeat("\xff", i))})
	}
	if err := errors.Join(view.Set(members), c.WatchFleet("f", view)); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if err := view.SetQueued(m.ID, 2); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		h := c.Router(prometheus.Route{Name: fmt.Sprint("route", i), Strategy: fmt.Sprint("strategy", i), Fleet: "f"},
			router.Trace{})
		for j := range 50 {
			d := router.Decision{Target: router.Target{ID: members[j].ID}, Reason: router.Reason(fmt.Sprint("reason_", j))}
			h.Routed(context.Background(), router.RouteInfo{Decision: d})
			h.Done(context.Background(), d, router.Outcome{Stage: router.Stage(j), Status: j * 17})
		}
	}
	for i := range 40 {
		s := c.Stream(fmt.Sprint("fleet", i), []string{"x"}, func(string) string { return fmt.Sprint("state", i) })
		s.Transition(fmt.Sprint("state", i))
		s.Gap("x", 0, 1<<63)
		defer s.Close()
	}
	fs := p.families()
	most := map[string]int{
		"warmroute_picks_total":                       4 * 4 * 5,
		"warmroute_target_picks_total":                6,
		"warmroute_target_in_flight":                  6,
		"warmroute_target_queued":                     6,
		"warmroute_attempts_total":                    4 * 4 * 4 * 7,
		"warmroute_predicted_cached_ratio":            4 * 4,
		"warmroute_event_gaps_total":                  4 * 6,
		"warmroute_event_stream_transitions_total":    4 * 6,
		"warmroute_event_streams":                     4 * 6,
		"warmroute_overpredicted_cached_tokens_total": 4 * 4,
	}
	for name, most := range most {
		if n := len(fs[name].GetMetric()); n == 0 || n > most {
			t.Errorf("%s has %d series, at most %d are due", name, n, most)
		}
	}
	p.is(40*50, "warmroute_picks_total")
	p.is(40*50, "warmroute_target_picks_total")
	p.is(40*45, "warmroute_target_picks_total", "target=other")
	p.is(100, "warmroute_target_queued", "fleet=f")
	p.is(90, "warmroute_target_queued", "fleet=f", "target=other")
	p.is(0, "warmroute_attempts_in_flight")
}

// A name is free for another target when its own is gone, and its series end: at
// once with the fleet's hooks, else with the next page.
func TestTargetsComeAndGo(t *testing.T) {
	for _, hooked := range []bool{true, false} {
		c := must(prometheus.New(prometheus.Config{MaxTargets: 2}))
		p := serve(t, c)
		var cfg loadview.Config
		if hooked {
			cfg.Trace = c.Fleet("", loadview.Trace{})
		}
		view := must(loadview.New(cfg))
		if !hooked {
			if err := c.WatchFleet("", view); err != nil {
				t.Fatal(err)
			}
		}
		h := c.Router(prometheus.Route{}, router.Trace{})
		for i := range 20 {
			a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
			if err := view.Set([]loadview.Member{{ID: a}, {ID: b}}); err != nil {
				t.Fatal(err)
			}
			if !hooked {
				p.is(1, "warmroute_target_ready", "target="+a)
			}
			for _, id := range []string{a, b} {
				h.Routed(context.Background(), router.RouteInfo{Decision: router.Decision{Target: router.Target{ID: id}}})
			}
			p.is(1, "warmroute_target_picks_total", "target="+a)
			p.is(2, "warmroute_target_picks_total")
		}
	}
}

// A stream that ends takes its series along, but not those of a member.
func TestStreamEnds(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	p := serve(t, c)
	view := must(loadview.New(loadview.Config{}))
	if err := errors.Join(view.Set([]loadview.Member{{ID: "member"}}), c.WatchFleet("f", view)); err != nil {
		t.Fatal(err)
	}
	s := c.Stream("f", []string{"member", "rank"}, func(string) string { return "cold" })
	s.Gap("member", 1, 3)
	s.Gap("rank", 1, 3)
	p.is(2, "warmroute_event_gaps_total")
	s.Close()
	p.is(1, "warmroute_event_gaps_total", "target=member")
	p.is(-1, "warmroute_event_gaps_total", "target=rank")
	p.is(-1, "warmroute_event_streams")
}

// The caller's own hooks are called too, with the same arguments.
func TestHooksAreChained(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	var got []string
	tell := func(a ...any) { got = append(got, fmt.Sprint(a...)) }
	ctx := context.Background()
	h := c.Router(prometheus.Route{}, router.Trace{
		Routed:     func(_ context.Context, i router.RouteInfo) { tell("routed ", i.Attempt) },
		NoTarget:   func(_ context.Context, _ router.Prompt, err error) { tell("none ", err) },
		FirstToken: func(_ context.Context, d router.Decision) { tell("token ", d.Length) },
		Done:       func(_ context.Context, _ router.Decision, o router.Outcome) { tell("done ", o.Status) },
		Retry:      func(_ context.Context, i router.RetryInfo) { tell("retry ", i.Attempt) },
		Timed:      func(_ context.Context, i router.Timing) { tell("timed ", i.Attempt) },
	})
	h.Routed(ctx, router.RouteInfo{Attempt: 1})
	h.NoTarget(ctx, router.Prompt{}, router.ErrNoTarget)
	h.FirstToken(ctx, router.Decision{Length: 2})
	h.Done(ctx, router.Decision{}, router.Outcome{Status: 3})
	h.Retry(ctx, router.RetryInfo{Attempt: 4})
	h.Timed(ctx, router.Timing{Attempt: 5})
	f := c.Fleet("", loadview.Trace{
		StateChanged:  func(id string, from, to router.State) { tell(id, " ", from, " ", to) },
		Joined:        func(m loadview.Member) { tell("joined ", m.ID) },
		Left:          func(id string, n int) { tell("left ", id, " ", n) },
		Forget:        func(id string) { tell("forget ", id) },
		ScrapeChanged: func(id string, err error) { tell("scrape ", id, " ", err) },
	})
	f.StateChanged("a", router.Ready, router.Tripped)
	f.Joined(loadview.Member{ID: "b"})
	f.Left("c", 5)
	f.Forget("d")
	f.ScrapeChanged("e", nil)
	l := c.LMCache("", lmcache.Trace{
		Polled:  func(id string, took time.Duration, err error) { tell("polled ", id, " ", took, " ", err) },
		Changed: func(from lmcache.State, now lmcache.Status) { tell("changed ", from, " ", now.ID) },
	})
	l.Polled("f", time.Second, nil)
	l.Changed(lmcache.Stale, lmcache.Status{ID: "g"})
	want := []string{"routed 1", "none router: no target", "token 2", "done 3", "retry 4", "timed 5",
		"a ready tripped", "joined b",
		"left c 5", "forget d",
		"scrape e <nil>", "polled f 1s <nil>", "changed stale g"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Without any occupancy lmcache_aware has fallen back.
func TestFallbackOfLMCache(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	p := serve(t, c)
	view := must(loadview.New(loadview.Config{}))
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	s := must(lmcacheaware.New(lmcacheaware.Config{}))
	r := router.New(s, view, router.Options{Trace: c.Router(prometheus.Route{Strategy: lmcacheaware.Name},
		router.Trace{})})
	for range 2 {
		must(r.Route(context.Background(), router.Prompt{Text: "Hello"})).Done(router.Outcome{})
	}
	p.is(2, "warmroute_fallbacks_total", "strategy=lmcache_aware", "cause=no_occupancy")
}
