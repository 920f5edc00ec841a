package otel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/contrib/otel"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/trie"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// everything is a rig of which every metric has a series.
func everything(t testing.TB) *rig {
	t.Helper()
	r := newRig(t, otel.Config{})
	ctx := context.Background()
	f := r.Fleet("f", loadview.Trace{})
	view := must(loadview.New(loadview.Config{}))
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	f.StateChanged("a", router.Ready, router.Cooling)
	f.Forget("a")
	f.PanicChanged(view, true)
	s := r.Stream("f", []string{"a", "b"}, func(string) string { return "live" })
	s.Transition("live")
	s.Gap("a", 3, 7)
	s.Malformed("b")
	s.Overflow()
	s.Replay("a")
	s.Lag("a", -3*time.Millisecond)
	_, flight, err := view.Choose(ctx, func(ts []router.Target) (router.Decision, error) {
		return router.Decision{Target: ts[0]}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	flight.Done(router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: time.Hour}) // a has a limit
	for _, err := range []error{
		r.WatchFleet("f", view),
		r.WatchIndex("kv", must(kvindex.New(kvindex.Config{}))),
		r.WatchTrie("chat", func() trie.Stats { return trie.Stats{Bytes: 2, Prompts: 3, Evicted: 4} }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	line := r.Queue("q", admission.Trace{})
	line.Left(ctx, router.Prompt{}, admission.Class{Priority: 3}, time.Second, admission.Served)
	if err := r.WatchQueue("q", must(admission.New(admission.Config{}))); err != nil {
		t.Fatal(err)
	}
	memory := must(membudget.New(membudget.Config{Limit: 1000}))
	if err := memory.Account("bodies").Reserve(100); err != nil {
		t.Fatal(err)
	}
	if err := r.WatchMemory("m", memory); err != nil {
		t.Fatal(err)
	}
	if err := r.WatchShare("s", aShare{}); err != nil {
		t.Fatal(err)
	}
	if err := r.WatchDisagg("r", "f", aSplit{}); err != nil {
		t.Fatal(err)
	}
	h := r.Router(otel.Route{Name: "r", Strategy: precisecacheaware.Name, Fleet: "f", Model: "llama", Provider: "vllm"},
		router.Trace{})
	d := router.Decision{Target: router.Target{ID: "a"}, Cached: 50, Length: 100, Reason: router.ReasonSpill}
	h.Routed(ctx, router.RouteInfo{Decision: d, Took: time.Microsecond})
	d.Reason = precisecacheaware.ReasonNoTokensLeastLoad
	h.Routed(ctx, router.RouteInfo{Decision: d, Took: time.Microsecond})
	h.Done(ctx, d, router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 40, CachedTokens: 16,
		OutputTokens: 5})
	h.Retry(ctx, router.RetryInfo{Outcome: router.Outcome{Status: 503}})
	h.NoTarget(ctx, router.Prompt{}, &router.NoTargetError{})
	h.Timed(ctx, router.Timing{Decision: d, Outcome: router.Outcome{Stage: router.FirstToken}, Request: time.Second})
	h.Timed(ctx, router.Timing{Decision: d, Request: 3 * time.Second,
		Took: 2500 * time.Millisecond, Reply: 2 * time.Second,
		Outcome: router.Outcome{Stage: router.Finished, OutputTokens: 101, Streamed: true}})
	return r
}

func TestNumbers(t *testing.T) {
	r := everything(t)
	r.is(2, "warmroute.picks")
	r.is(1, "warmroute.picks", "warmroute.route", "r", "warmroute.strategy", "precise_cache_aware", "warmroute.reason",
		"spill")
	r.is(1, "warmroute.spills")
	r.is(1, "warmroute.fallbacks", "warmroute.cause", "no_tokens")
	r.is(2, "warmroute.predicted_cached_ratio")
	r.is(2, "warmroute.pick.duration")
	r.is(1, "warmroute.attempts", "warmroute.outcome", "finished", "warmroute.code", "2xx")
	r.is(1, "warmroute.attempts.active")
	r.is(1, "warmroute.retries", "warmroute.cause", "5xx")
	r.is(1, "warmroute.no_target", "warmroute.cause", "empty_fleet")
	r.is(20, "warmroute.tokens.predicted_cached") // half of the prompt
	r.is(16, "warmroute.tokens.reported_cached")
	r.is(4, "warmroute.tokens.overpredicted_cached")
	r.is(0, "warmroute.tokens.underpredicted_cached")
	r.is(1, "gen_ai.client.token.usage", "gen_ai.token.type", "input", "gen_ai.provider.name", "vllm",
		"gen_ai.operation.name", "chat", "gen_ai.request.model", "llama")
	r.is(1, "gen_ai.client.token.usage", "gen_ai.token.type", "output")
	r.is(1, "gen_ai.client.operation.duration", "gen_ai.provider.name", "vllm", "gen_ai.request.model", "llama")
	r.is(1, "gen_ai.client.operation.time_to_first_chunk")
	r.is(1, "warmroute.time_to_first_token", "warmroute.reason", "no_tokens_least_load", "warmroute.route", "r")
	r.is(1, "warmroute.output.speed")
	r.is(3, "warmroute.event.missing")
	r.is(2, "warmroute.event.streams", "warmroute.state", "live")
	r.is(1, "warmroute.targets", "warmroute.state", "ready")
	r.is(1, "warmroute.targets", "warmroute.state", "full")
	r.is(4, "warmroute.trie.prompts.evicted", "warmroute.trie", "chat")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.is(-1, "warmroute.targets")
	r.is(2, "warmroute.picks")
}

// TestCountersBegin: before the first request each counter of a route, a fleet and a line is there and 0, under the
// names that those without one get.
func TestCountersBegin(t *testing.T) {
	r := newRig(t, otel.Config{})
	r.Router(otel.Route{Strategy: "least_work"}, router.Trace{})
	r.Fleet("", loadview.Trace{})
	r.Queue("", admission.Trace{})
	defer r.Stream("", []string{"a"}, func(string) string { return "live" }).Close()
	for name, kv := range map[string][]string{
		"warmroute.picks":                    {"warmroute.reason", "warm", "warmroute.route", "default"},
		"warmroute.attempts":                 {"warmroute.outcome", "failed", "warmroute.code", "5xx"},
		"warmroute.retries":                  {"warmroute.cause", "timeout"},
		"warmroute.no_target":                {"warmroute.cause", "not_ready"},
		"warmroute.spills":                   {},
		"warmroute.target.state_changes":     {"warmroute.state", "cooling", "warmroute.fleet", "default"},
		"warmroute.cache.losses":             {"warmroute.fleet", "default"},
		"warmroute.event.gaps":               {"warmroute.fleet", "default"},
		"warmroute.event.stream.transitions": {"warmroute.state", "down"},
		"warmroute.queue.requests":           {"warmroute.queue", "default", "warmroute.cause", admission.TooMany},
	} {
		r.is(0, name, kv...)
	}
}

func TestConfig(t *testing.T) {
	_, err := otel.New(otel.Config{MaxTargets: -1, MaxRoutes: -2, MaxReasons: -3})
	for _, field := range []string{"MaxTargets", "MaxRoutes", "MaxReasons"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if _, err := otel.New(otel.Config{}); err != nil { // the global provider
		t.Error(err)
	}
}

// span runs f with a span and returns its events.
func span(t testing.TB, f func(context.Context)) []sdk.Event {
	t.Helper()
	rec := tracetest.NewSpanRecorder()
	ctx, s := sdk.NewTracerProvider(sdk.WithSpanProcessor(rec)).Tracer("test").Start(context.Background(), "chat")
	f(ctx)
	s.End()
	return rec.Ended()[0].Events()
}

func values(kv []attribute.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, a := range kv {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

// A request that was sent twice has all of it on its span.
func TestSpanEvents(t *testing.T) {
	r := newRig(t, otel.Config{})
	view := must(loadview.New(loadview.Config{}))
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	rt := router.New(must(cacheaware.New(cacheaware.Config{})), view, router.Options{
		Backoff: -1, Trace: r.Router(otel.Route{Name: "r", Strategy: cacheaware.Name, Fleet: "f", Model: "llama"},
			router.Trace{}),
	})
	events := span(t, func(ctx context.Context) {
		err := rt.Do(ctx, router.Prompt{Text: "0123456789"},
			func(_ context.Context, l *router.Lease) (router.Outcome, error) {
				if l.Attempt() == 1 {
					return router.Outcome{Status: 503}, nil
				}
				l.FirstToken()
				return router.Outcome{Status: 200, PromptTokens: 40, CachedTokens: 16, OutputTokens: 5}, nil
			})
		if err != nil {
			t.Error(err)
		}
		if _, err := rt.Assign(ctx, router.Prompt{}, "c"); err == nil {
			t.Error("there is no c")
		}
	})
	var got []string
	for _, e := range events {
		got = append(got, e.Name)
	}
	want := []string{otel.EventDecision, otel.EventOutcome, otel.EventRetry, otel.EventDecision, otel.EventFirstToken,
		otel.EventOutcome, otel.EventNoTarget}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	for i, want := range []map[string]any{
		0: {"warmroute.route": "r", "warmroute.strategy": "cache_aware", "warmroute.reason": "cold", "warmroute.fleet": "f",
			"warmroute.attempt": int64(1), "warmroute.cached": int64(0), "warmroute.length": int64(10),
			"warmroute.unit":                   "bytes",
			"warmroute.predicted_cached_ratio": 0.0, "gen_ai.request.model": "llama", "gen_ai.operation.name": "chat",
			"warmroute.target.in_flight": int64(0), "warmroute.target.queued": int64(0), "warmroute.target.prefill": int64(0)},
		1: {"warmroute.outcome": "failed", "error.type": "5xx", "http.response.status_code": int64(503)},
		2: {"warmroute.cause": "5xx", "warmroute.attempt": int64(1), "warmroute.wait": 0.0},
		3: {"warmroute.attempt": int64(2), "warmroute.reason": "only_target"},
		4: {},
		5: {"warmroute.outcome": "finished", "http.response.status_code": int64(200), "gen_ai.usage.input_tokens": int64(40),
			"gen_ai.usage.output_tokens": int64(5), "gen_ai.usage.cache_read.input_tokens": int64(16),
			"warmroute.tokens.predicted_cached": int64(0)},
		6: {"warmroute.cause": "excluded"},
	} {
		got := values(events[i].Attributes)
		for k, v := range want {
			if got[k] != v {
				t.Errorf("event %d, %s: %s is %v, want %v", i, events[i].Name, k, got[k], v)
			}
		}
	}
	first, second := values(events[0].Attributes)["warmroute.target"], values(events[3].Attributes)["warmroute.target"]
	if first == second || first != "a" && first != "b" {
		t.Errorf("targets %v and %v", first, second)
	}
	r.is(-1, "gen_ai.client.token.usage") // the route names no provider
}

// Without a span that records nothing is made for one.
func TestNoSpan(t *testing.T) {
	r := newRig(t, otel.Config{MaxTargets: 1})
	h := r.Router(otel.Route{}, router.Trace{})
	h.Routed(context.Background(), router.RouteInfo{})
	h.FirstToken(context.Background(), router.Decision{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.Done(ctx, router.Decision{}, router.Outcome{Stage: router.Canceled})
	r.is(1, "warmroute.attempts", "warmroute.outcome", "canceled")
	r.is(0, "warmroute.attempts.active")
}

// A caller that invents routes, strategies, reasons, targets and fleets makes no
// more series than the bounds say.
func TestCardinality(t *testing.T) {
	r := newRig(t, otel.Config{MaxTargets: 5, MaxRoutes: 3, MaxReasons: 4})
	view := must(loadview.New(loadview.Config{}))
	var members []loadview.Member
	for i := range 50 {
		members = append(members, loadview.Member{ID: fmt.Sprint("target-", i)})
	}
	if err := errors.Join(view.Set(members), r.WatchFleet("f", view)); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if err := view.SetQueued(m.ID, 2); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	for i := range 40 {
		h := r.Router(otel.Route{Name: fmt.Sprint("route", i), Strategy: fmt.Sprint("strategy", i)}, router.Trace{})
		for j := range 50 {
			d := router.Decision{Target: router.Target{ID: members[j].ID}, Reason: router.Reason(fmt.Sprint("reason_", j))}
			h.Routed(ctx, router.RouteInfo{Decision: d})
			h.Done(ctx, d, router.Outcome{Stage: router.Stage(j), Status: j * 17})
		}
		s := r.Stream(fmt.Sprint("fleet", i), []string{"x"}, func(string) string { return fmt.Sprint("state", i) })
		s.Transition(fmt.Sprint("state", i))
		s.Gap("x", 0, 1<<63)
		defer s.Close()
	}
	all := r.series()
	for name, most := range map[string]int{
		"warmroute.picks": 4 * 4 * 5, "warmroute.attempts": 4 * 4 * 4 * 7, "warmroute.target.queued": 6,
		"warmroute.target.in_flight":       6,
		"warmroute.predicted_cached_ratio": 4 * 4, "warmroute.event.gaps": 4, "warmroute.event.streams": 4 * 6,
		"warmroute.event.stream.transitions": 4 * 6,
	} {
		n := len(all[name].points)
		if n > most || n == 0 && name != "warmroute.predicted_cached_ratio" {
			t.Errorf("%s has %d series, at most %d are due", name, n, most)
		}
	}
	r.is(40*50, "warmroute.picks")
	r.is(100, "warmroute.target.queued")
	r.is(90, "warmroute.target.queued", "warmroute.target", "other")
}

// A name is free for another target when its own is gone.
func TestTargetsComeAndGo(t *testing.T) {
	r := newRig(t, otel.Config{MaxTargets: 2})
	view := must(loadview.New(loadview.Config{}))
	if err := r.WatchFleet("", view); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		if err := view.Set([]loadview.Member{{ID: a}, {ID: b}}); err != nil {
			t.Fatal(err)
		}
		r.is(0, "warmroute.target.in_flight", "warmroute.target", a)
		r.is(0, "warmroute.target.in_flight", "warmroute.target", b)
		if n := len(r.series()["warmroute.target.in_flight"].points); n != 2 {
			t.Errorf("%d series", n)
		}
	}
}

// The caller's own hooks are called too, with the same arguments.
func TestHooksAreChained(t *testing.T) {
	r := newRig(t, otel.Config{})
	var got []string
	tell := func(a ...any) { got = append(got, fmt.Sprint(a...)) }
	ctx := context.Background()
	h := r.Router(otel.Route{}, router.Trace{
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
	f := r.Fleet("", loadview.Trace{
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
	want := []string{"routed 1", "none router: no target", "token 2", "done 3", "retry 4", "timed 5",
		"a ready tripped", "joined b",
		"left c 5", "forget d", "scrape e <nil>"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
