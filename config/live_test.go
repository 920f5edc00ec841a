package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// subscribe is what a gateway with ZeroMQ passes in.
func subscribe(s config.Subscription) (config.Runner, error) {
	return zmqsub.New(zmqsub.Config{
		Endpoint: s.Endpoint, Targets: []zmqsub.Target{{ID: s.ID, Ranks: s.Ranks, Topic: s.Topic, Replay: s.Replay}},
		Index: s.Index, Egress: s.Egress, StaleAfter: s.StaleAfter, Logger: s.Logger,
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	})
}

// fleet is three replicas with a cache, events and an LMCache each.
type fleet struct {
	replicas []*vllmtest.Server
	caches   []*httptest.Server
	answer   []atomic.Pointer[string] // of each LMCache: JSON, "500", "hang", "redirect"
	stop     chan struct{}
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{answer: make([]atomic.Pointer[string], 3), stop: make(chan struct{})}
	for i := range f.answer {
		f.set(i, fmt.Sprintf(`{"occupancy": 0.%d}`, 2+3*i))
		s, err := vllmtest.New(vllmtest.Config{TimeScale: 0.01, ReplyTokens: 2, Events: &vllmtest.Events{Topic: "kv"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		f.replicas = append(f.replicas, s)
		c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch a := *f.answer[i].Load(); a {
			case "500":
				w.WriteHeader(500)
			case "redirect":
				http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
			case "hang":
				select {
				case <-r.Context().Done():
				case <-f.stop:
				}
			default:
				_, _ = io.WriteString(w, a)
			}
		}))
		f.caches = append(f.caches, c)
		t.Cleanup(c.Close)
	}
	t.Cleanup(func() { close(f.stop) }) // before the servers are closed
	return f
}

func (f *fleet) set(i int, answer string) { f.answer[i].Store(&answer) }

// file is four routes over the replicas in use.
func (f *fleet) file(events bool, use ...int) string {
	var b strings.Builder
	b.WriteString("[metrics_scrape]\nenabled = true\ninterval_secs = 0.2\n")
	targets := ""
	for _, i := range use {
		r := f.replicas[i]
		fmt.Fprintf(&b, "[[providers]]\nname = \"r%d\"\napi_base = \"%s/v1\"\n", i, r.URL)
		if events {
			fmt.Fprintf(&b, "[providers.kv_events]\nendpoint = %q\nreplay_endpoint = %q\ntopic = \"kv\"\n",
				r.Events().Endpoint(), r.Events().ReplayEndpoint())
		}
		fmt.Fprintf(&b, "[providers.lmcache]\nendpoint = \"%s/occupancy\"\nrefresh_secs = 0.1\ntimeout_secs = "+
			"0.3\nstale_secs = 1\n", f.caches[i].URL)
		targets += fmt.Sprintf("{ provider = \"r%d\", model = \"engine-name\" }, ", i)
	}
	for _, s := range []string{"cache_aware", "pipeline", "precise_cache_aware", "lmcache_aware"} {
		fmt.Fprintf(&b, "[[routes]]\nmodel = %q\nstrategy = %q\ntargets = [%s]\n[routes.failover]\nattempts = 3\n",
			s+"-model", s, targets)
	}
	return b.String()
}

// ask sends one prompt of tokens to a route and returns what decided.
func ask(g *config.Gateway, strategy string, seed, n int) (router.Decision, int, error) {
	m, ok := g.Route(strategy + "-model")
	if !ok {
		return router.Decision{}, 0, fmt.Errorf("no route for %s", strategy)
	}
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(1000*seed + i)
	}
	var d router.Decision
	var usage struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	err := m.Router.Do(context.Background(), m.Prompt(router.Prompt{Tokens: tokens}),
		func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
			d = l.Decision()
			body, err := json.Marshal(map[string]any{"model": m.Rewrite(d.Target), "prompt": tokens, "max_tokens": 2})
			if err != nil {
				return router.Outcome{}, err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost,
				d.Target.Ref.(*config.Target).Base.String()+"/v1/completions", bytes.NewReader(body))
			if err != nil {
				return router.Outcome{}, err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return router.Outcome{}, err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode >= 400 {
				return router.Outcome{Status: resp.StatusCode}, &router.StatusError{Status: resp.StatusCode}
			}
			err = json.NewDecoder(resp.Body).Decode(&usage)
			return router.Outcome{Status: resp.StatusCode, CachedTokens: usage.Usage.Details.Cached}, err
		})
	return d, usage.Usage.Details.Cached, err
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// One file with a route for each strategy that reads a cache, over real sockets:
// each route goes on when its source, a replica or the file goes, as documented.
func TestFourRoutes(t *testing.T) {
	f := newFleet(t)
	o := config.Options{Subscribe: subscribe}
	reload := func(g *config.Gateway, text string) {
		t.Helper()
		file, err := config.Parse([]byte(text), o)
		if err == nil {
			err = g.Reload(file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := config.Parse([]byte(f.file(true, 0, 1, 2)), o)
	if err != nil || len(file.Warnings) > 0 {
		t.Fatal(err, file.Warnings)
	}
	g, err := config.Build(file, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- g.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	seed := 0
	all := func(when string) {
		t.Helper()
		for _, s := range []string{"cache_aware", "pipeline", "precise_cache_aware", "lmcache_aware"} {
			for range 4 {
				seed++
				if _, _, err := ask(g, s, seed, 100); err != nil {
					t.Errorf("%s: %s: %v", when, s, err)
				}
			}
		}
	}
	all("at first")

	// Each by its source. What was sent:
	for _, s := range []string{"cache_aware", "pipeline"} {
		seed++
		first, _, err1 := ask(g, s, seed, 320)
		again, cached, err2 := ask(g, s, seed, 320)
		if err1 != nil || err2 != nil || again.Target.ID != first.Target.ID || cached < 300 {
			t.Errorf("%s: %s, then %s with %d cached; %v, %v", s, first.Target.ID, again.Target.ID, cached, err1, err2)
		}
	}
	// The engines' events, also about prompts of another route:
	seed++
	sent, _, err := ask(g, "cache_aware", seed, 320)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the events tell of the prompt", func() bool {
		d, cached, err := ask(g, "precise_cache_aware", seed, 320)
		return err == nil && d.Target.ID == sent.Target.ID && d.Reason == router.ReasonWarm && d.Cached == 304 &&
			cached == 304
	})
	// The LMCaches:
	room := func(id string) func() bool {
		return func() bool {
			seed++
			d, _, err := ask(g, "lmcache_aware", seed, 50)
			return err == nil && d.Target.ID == id && d.Reason == lmcacheaware.ReasonCapacity
		}
	}
	eventually(t, "r0 has the most room", room("r0"))
	f.set(0, `{"occupancy": 0.9}`)
	eventually(t, "r1 has the most room", room("r1"))

	// An LMCache that fails in any way is neutral, and the route goes on.
	for _, a := range []string{"500", "redirect", "hang", `{"occupancy": NaN}`, strings.Repeat(" ", 1<<20)} {
		f.set(1, `{"occupancy": 0.1}`)
		eventually(t, "r1 is well", func() bool { return g.LMCache().Status("r1").State == lmcache.Available })
		f.set(1, a)
		eventually(t, "r1 is neutral", func() bool { return g.LMCache().Status("r1").State.Neutral() })
		all("with an LMCache that fails")
	}
	f.set(0, "500")
	f.set(2, "500")
	eventually(t, "without any LMCache, the least load", func() bool {
		seed++
		d, _, err := ask(g, "lmcache_aware", seed, 50)
		return err == nil && d.Reason == router.ReasonLeastLoad
	})

	// A replica dies and comes back empty.
	if err := f.replicas[0].SetFaults(vllmtest.Faults{Refuse: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.replicas[0].Restart(); err != nil {
		t.Fatal(err)
	}
	all("with a dead replica")
	if err := f.replicas[0].SetFaults(vllmtest.Faults{}); err != nil {
		t.Fatal(err)
	}
	all("with a replica that came back")

	// A reload takes a replica away and puts it back.
	reload(g, f.file(true, 1, 2))
	all("with two replicas")
	reload(g, f.file(true, 2, 1, 0))
	all("with three again")

	// The events stop: what the file does not name any more is not trusted any more.
	if _, err := config.Parse([]byte(f.file(true, 0)+"oops"), o); err == nil {
		t.Error("a bad file was read")
	}
	reload(g, f.file(false, 0, 1, 2))
	seed++
	if d, _, err := ask(g, "precise_cache_aware", seed, 100); err != nil ||
		d.Reason != precisecacheaware.ReasonUntrustedLeastLoad {
		t.Errorf("without events: %q, %v", d.Reason, err)
	}
	reload(g, f.file(true, 0, 1, 2))
	eventually(t, "the events are back", func() bool {
		seed++
		sent, _, err := ask(g, "cache_aware", seed, 320)
		if err != nil {
			return false
		}
		d, _, err := ask(g, "precise_cache_aware", seed, 320)
		return err == nil && d.Reason == router.ReasonWarm && d.Target.ID == sent.Target.ID
	})
	for _, s := range g.View().Snapshot() {
		if s.Target.Load.InFlight != 0 {
			t.Errorf("%s has %d in flight", s.Target.ID, s.Target.Load.InFlight)
		}
	}
}
