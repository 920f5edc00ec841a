package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/contrib/prometheus/kvevents"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// gateway is two simulated replicas, all that routes to them, and the page.
type gateway struct {
	*site
	replicas []*vllmtest.Server
	router   *router.Router // cache_aware
	precise  *router.Router
	client   *http.Client
}

func newGateway(t *testing.T) *gateway {
	c := must(prometheus.New(prometheus.Config{}))
	g := &gateway{site: serve(t, c), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	view := must(loadview.New(loadview.Config{
		Scrape: loadview.Scrape{Interval: 20 * time.Millisecond},
		Trace:  c.Fleet("f", loadview.Trace{}),
	}))
	index := must(kvindex.New(kvindex.Config{}))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wg.Wait()
		g.is(-1, "warmroute_event_streams")
		for _, s := range g.replicas {
			s.Close()
		}
	})
	var members []loadview.Member
	for i := range 2 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-4, Events: &vllmtest.Events{}})
		g.replicas = append(g.replicas, s)
		id := fmt.Sprint("replica-", i)
		members = append(members, loadview.Member{ID: id, Ref: s.URL, Metrics: s.MetricsURL()})
		sub := must(kvevents.New(c, "f", zmqsub.Config{
			Endpoint: s.Events().Endpoint(), Index: index,
			Targets: []zmqsub.Target{{ID: id, Replay: s.Events().ReplayEndpoint()}},
		}))
		wg.Go(func() { _ = sub.Run(ctx) })
	}
	if err := view.Set(members); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = view.Run(ctx) })

	aware := must(cacheaware.New(cacheaware.Config{}))
	precise := must(precisecacheaware.New(precisecacheaware.Config{Index: index}))
	for _, err := range []error{c.WatchFleet("f", view), c.WatchIndex("kv", index), c.WatchTrie("chat", aware.Stats),
		c.WatchPrecise("precise", precise.Stats)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	opts := func(route, strategy string) router.Options {
		return router.Options{Backoff: -1, Trace: c.Router(prometheus.Route{Name: route, Strategy: strategy, Fleet: "f"},
			router.Trace{})}
	}
	g.router = router.New(aware, view, opts("chat", cacheaware.Name))
	g.precise = router.New(precise, view, opts("precise", precisecacheaware.Name))
	return g
}

// send sends a chat through r, as a gateway would.
func (g *gateway) send(ctx context.Context, r *router.Router, text string) error {
	body := must(json.Marshal(map[string]any{"max_tokens": 2,
		"messages": []map[string]string{{"role": "user", "content": text}}}))
	p := must(prompt.FromChat(body))
	return r.Do(ctx, p, func(ctx context.Context, l *router.Lease) (o router.Outcome, err error) {
		req := must(http.NewRequestWithContext(ctx, http.MethodPost,
			l.Decision().Target.Ref.(string)+"/v1/chat/completions", bytes.NewReader(body)))
		res, err := g.client.Do(req)
		if err != nil {
			return o, err
		}
		defer func() { _ = res.Body.Close() }()
		var reply struct {
			Usage struct {
				PromptTokens        int `json:"prompt_tokens"`
				CompletionTokens    int `json:"completion_tokens"`
				PromptTokensDetails struct {
					CachedTokens int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		o.Status = res.StatusCode
		err = json.NewDecoder(res.Body).Decode(&reply)
		o.PromptTokens, o.OutputTokens = reply.Usage.PromptTokens, reply.Usage.CompletionTokens
		o.CachedTokens = reply.Usage.PromptTokensDetails.CachedTokens
		return o, err
	})
}

func (g *gateway) mustSend(r *router.Router, text string) {
	g.t.Helper()
	if err := g.send(context.Background(), r, text); err != nil {
		g.t.Fatal(err)
	}
}

// ask sends to a replica, whatever the choice would be.
func (g *gateway) ask(replica int, text string) {
	g.t.Helper()
	body := fmt.Sprintf(`{"max_tokens":1,"messages":[{"role":"user","content":%q}]}`, strings.Repeat(text, 30))
	res, err := g.client.Post(g.replicas[replica].URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	_ = res.Body.Close()
}

func TestFleetOnThePage(t *testing.T) {
	g := newGateway(t)
	for i := range g.replicas {
		g.ask(i, "What is asked to begin with. ")
	}
	g.falls(2, "warmroute_event_streams", "fleet=f", "state=live")
	g.is(0, "warmroute_event_gaps_total")
	g.is(2, "warmroute_targets", "fleet=f", "state=ready")

	// What is cached is predicted, and reported.
	question := strings.Repeat("When does the first train leave? ", 40)
	g.mustSend(g.router, question)
	g.mustSend(g.router, question+"And the last one?")
	g.is(1, "warmroute_picks_total", "route=chat", "strategy=cache_aware", "reason=cold")
	g.is(1, "warmroute_picks_total", "route=chat", "strategy=cache_aware", "reason=warm")
	g.is(2, "warmroute_attempts_total", "route=chat", "outcome=finished", "code=2xx")
	g.is(2, "warmroute_predicted_cached_ratio", "route=chat")
	g.is(2, "warmroute_pick_duration_seconds", "route=chat")
	judged, predicted, reported := g.sum("warmroute_judged_prompt_tokens_total"),
		g.sum("warmroute_predicted_cached_tokens_total"), g.sum("warmroute_reported_cached_tokens_total")
	if judged < 100 || predicted < judged*0.9 || reported < judged*0.9 {
		t.Errorf("of %v tokens %v predicted, %v reported", judged, predicted, reported)
	}
	if over, under := g.sum("warmroute_overpredicted_cached_tokens_total"),
		g.sum("warmroute_underpredicted_cached_tokens_total"); over-under != predicted-reported {
		t.Errorf("%v too many and %v too few, of %v and %v", over, under, predicted, reported)
	}
	g.reaches(10, "warmroute_index_blocks", "index=kv")
	g.is(2, "warmroute_trie_prompts", "trie=chat")
	g.becomes("more", func(n float64) bool { // what comes while a replay runs has no lag
		g.ask(0, fmt.Sprint("Question ", n, time.Now()))
		return n >= 2
	}, "warmroute_event_lag_seconds", "fleet=f")

	// Without token ids there is a fallback.
	g.mustSend(g.precise, "Hello")
	g.is(1, "warmroute_fallbacks_total", "route=precise", "strategy=precise_cache_aware", "cause=no_tokens")

	t.Run("spill", g.spill(question))
	t.Run("gap", g.gap)
	t.Run("dead replica", g.dead)
}

func (g *gateway) spill(question string) func(*testing.T) {
	return func(t *testing.T) {
		for _, s := range g.replicas {
			if err := s.SetFaults(vllmtest.Faults{Hang: true}); err != nil {
				t.Fatal(err)
			}
		}
		g.is(0, "warmroute_spills_total", "route=chat")
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { _ = g.send(ctx, g.router, question) })
		}
		g.falls(6, "warmroute_attempts_in_flight", "route=chat")
		g.is(6, "warmroute_target_in_flight", "fleet=f")
		if n := g.sum("warmroute_spills_total", "route=chat"); n < 1 || n > 3 ||
			n != g.sum("warmroute_picks_total", "route=chat", "reason=spill") {
			t.Errorf("%v spills", n)
		}
		cancel()
		wg.Wait()
		g.is(0, "warmroute_attempts_in_flight", "route=chat")
		g.is(0, "warmroute_target_in_flight", "fleet=f")
		g.is(6, "warmroute_attempts_total", "route=chat", "outcome=canceled")
		for _, s := range g.replicas {
			if err := s.SetFaults(vllmtest.Faults{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (g *gateway) gap(t *testing.T) {
	events := g.replicas[0].Events()
	before := g.sum("warmroute_event_replays_total", "target=replica-0")
	events.Drop(func(uint64) bool { return true })
	first := events.Next()
	g.ask(0, "A question whose events are lost. ")
	for end := time.Now().Add(10 * time.Second); events.Next() == first; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the replica published nothing")
		}
	}
	events.Drop(nil)
	g.ask(0, "Another one, whose events come. ")
	g.reaches(1, "warmroute_event_gaps_total", "fleet=f", "target=replica-0")
	g.reaches(1, "warmroute_event_missing_messages_total", "fleet=f", "target=replica-0")
	g.reaches(before+1, "warmroute_event_replays_total", "target=replica-0")
	g.reaches(1, "warmroute_event_stream_transitions_total", "state=resyncing")
	g.falls(2, "warmroute_event_streams", "state=live")
	g.is(0, "warmroute_event_gaps_total", "target=replica-1")
}

func (g *gateway) dead(t *testing.T) {
	if err := g.replicas[0].SetFaults(vllmtest.Faults{Refuse: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		g.mustSend(g.router, fmt.Sprint(i, " is a number that nobody has asked about. ", i))
		if g.sum("warmroute_target_state_changes_total", "fleet=f", "target=replica-0", "state=cooling") > 0 {
			break
		}
	}
	g.is(1, "warmroute_target_state_changes_total", "target=replica-0", "state=cooling")
	g.is(1, "warmroute_targets", "fleet=f", "state=cooling")
	g.is(0, "warmroute_target_ready", "target=replica-0")
	g.is(1, "warmroute_target_ready", "target=replica-1")
	g.is(3, "warmroute_retries_total", "route=chat", "cause=connection")
	g.is(3, "warmroute_attempts_total", "route=chat", "outcome=failed", "code=none")
	g.falls(1, "warmroute_targets_scrape_failing", "fleet=f")
	g.is(1, "warmroute_scrape_failures_total", "fleet=f")
}
