package debugui_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/roundrobin"
)

// setup is a router over a few members with a page.
type setup struct {
	page   *debugui.Page
	router *router.Router
	view   *loadview.View
}

func start(t testing.TB, cfg debugui.Config, next router.Trace, ids ...string) *setup {
	t.Helper()
	page, err := debugui.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cacheaware.New(cacheaware.Config{Rand: func() uint64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	view, err := loadview.New(loadview.Config{PanicThreshold: -1, Trace: page.ViewTrace(loadview.Trace{})})
	if err != nil {
		t.Fatal(err)
	}
	var ms []loadview.Member
	for _, id := range ids {
		ms = append(ms, loadview.Member{ID: id})
	}
	if err := view.Set(ms); err != nil {
		t.Fatal(err)
	}
	r := router.New(page.Strategy(s), view, router.Options{Trace: page.Trace("llama", next)})
	if err := page.Watch(debugui.Route{Name: "llama", Strategy: "cache_aware", Router: r, View: view}); err != nil {
		t.Fatal(err)
	}
	return &setup{page, r, view}
}

// state is what the tests read of the page's news.
type state struct {
	Title, Route string
	Prompts      bool
	Routes       []string
	Rate         float64
	Share        int
	Series       []int
	Matching     int
	States       map[string]int
	Totals       struct {
		Picks, Spills, Finished, Failed, Canceled, Retries, NoTarget uint64
		InFlight                                                     int64
	}
	Targets []struct {
		ID, State, Role          string
		InFlight, Share          int
		Picks                    uint64
		Series                   []int
		BySize                   [][2]int
		Blocks, QueuedMS, Warmed int
		Trusted                  bool
		Weight                   float64
		ReadyMS, Failures        int
	}
	Decisions []struct {
		Seq                             uint64
		Target, Reason, Stage, Model    string
		Spill                           bool
		Cached, Length, Of, Attempt     int
		PromptTokens, CachedTokens      int
		FirstMS, WholeMS, Status, Queud int
	}
	Events []struct{ Kind, Level, Target, Text string }
}

type detail struct {
	Candidates []struct {
		Target, Reason, State string
		Cached, Length        int
		InFlight              int
		Score                 *float64
		Chosen                bool
	}
	Of                        int
	Length                    int
	Prompt, Note, Unit, Model string
}

// get asks for a part of the page.
func get(t testing.TB, h http.Handler, path string, into any) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost"
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func (s *setup) state(t testing.TB, query string) (v state) {
	t.Helper()
	get(t, s.page, "/x/state?"+query, &v)
	return v
}

func prompt(text string) router.Prompt { return router.Prompt{Model: "llama", Text: text} }

func (s *setup) route(t testing.TB, text string) *router.Lease {
	t.Helper()
	l, err := s.router.Route(context.Background(), prompt(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var long = strings.Repeat("when does the first train leave, and from where? ", 100)

// TestSpill looks at a decision that left its warm target, while somebody looks and
// while nobody does.
func TestSpill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, debugui.Config{}, router.Trace{}, "http://user:word@a:1/x?key=1", "http://b:1", "http://c:1")
		s.route(t, long).Done(router.Outcome{Stage: router.Finished, PromptTokens: 1200, CachedTokens: 0})
		if v := s.state(t, ""); v.Decisions[0].Of != 0 || v.Decisions[0].Stage != "finished" ||
			v.Decisions[0].PromptTokens != 1200 {
			t.Errorf("with nobody looking: %+v", v.Decisions)
		}
		var leases []*router.Lease
		for range 5 { // three at the warm one, and then one more than it may have
			leases = append(leases, s.route(t, long))
		}
		time.Sleep(30 * time.Millisecond)
		leases[0].FirstToken()
		time.Sleep(70 * time.Millisecond)
		v := s.state(t, "")
		d := v.Decisions[1]
		if v.Totals.Spills == 0 || v.Totals.Picks != 6 || v.Totals.InFlight != 5 {
			t.Errorf("totals %+v", v.Totals)
		}
		for _, c := range v.Decisions {
			if c.Spill {
				d = c
			}
		}
		if d.Reason != "spill" || d.Cached != 0 || d.Length != len(long) || d.Of != 3 || d.Stage != "" || d.Model != "llama" {
			t.Fatalf("decision %+v", d)
		}
		var why detail
		get(t, s.page, "/x/decision?route=llama&seq="+strconv.FormatUint(d.Seq, 10), &why)
		// As it was: nothing of this prompt at the one that was taken.
		for _, c := range why.Candidates {
			switch {
			case c.Chosen && (c.Target != d.Target || c.Cached != 0 || c.InFlight != 0):
				t.Errorf("taken: %+v", c)
			case c.Reason == "overloaded" && (c.Cached != len(long) || c.InFlight != 3 || *c.Score >= 1):
				t.Errorf("left: %+v", c)
			}
		}
		if len(why.Candidates) != 3 || why.Prompt != "" {
			t.Errorf("candidates %+v", why)
		}
		leases[0].Done(router.Outcome{Stage: router.Finished, PromptTokens: 1200, CachedTokens: 1184})
		v = s.state(t, "show=notable")
		for _, c := range v.Decisions {
			if !c.Spill {
				t.Errorf("not notable: %+v", c)
			}
		}
		v = s.state(t, "find=A:1")
		if len(v.Targets) != 1 || v.Targets[0].ID != "http://a:1/x" || v.Targets[0].Picks == 0 || v.Targets[0].Share < 0 ||
			len(v.Targets[0].BySize) != 5 || v.Targets[0].BySize[1][0] != int(v.Targets[0].Picks) || v.Matching != 1 ||
			v.States["ready"] != 3 {
			t.Errorf("targets %+v", v.Targets)
		}
		found := false
		for _, c := range s.state(t, "").Decisions {
			found = found || c.FirstMS == 30 && c.WholeMS == 100 && c.CachedTokens == 1184
		}
		if !found {
			t.Error("no decision with its times")
		}
		// Nobody looks any more.
		time.Sleep(debugui.OpenFor + time.Second)
		l := s.route(t, "another one")
		if v := s.state(t, ""); v.Decisions[0].Of != 0 || v.Rate == 0 && v.Totals.Picks != 7 {
			t.Errorf("explained with nobody looking: %+v", v.Decisions[0])
		}
		l.Done(router.Outcome{Stage: router.Finished})
		for _, l := range leases[1:] {
			l.Done(router.Outcome{Stage: router.Canceled})
		}
		if v := s.state(t, ""); v.Totals.InFlight != 0 || v.Totals.Canceled != 4 || v.Totals.Finished != 3 {
			t.Errorf("totals %+v", v.Totals)
		}
		time.Sleep(5 * time.Minute)
		if v := s.state(t, ""); v.Share != -1 || v.Rate != 0 || v.Targets[0].BySize[1][0] != 0 {
			t.Errorf("after a while %d %v %v", v.Share, v.Rate, v.Targets[0].BySize)
		}
	})
}

// TestFailures has a target that fails until it cools down, and then none.
func TestFailures(t *testing.T) {
	var retried, done, none int
	next := router.Trace{
		Retry:    func(context.Context, router.RetryInfo) { retried++ },
		Done:     func(context.Context, router.Decision, router.Outcome) { done++ },
		NoTarget: func(context.Context, router.Prompt, error) { none++ },
	}
	synctest.Test(t, func(t *testing.T) {
		s := start(t, debugui.Config{}, next, "a", "b")
		s.state(t, "")
		send := func(context.Context, *router.Lease) (router.Outcome, error) {
			return router.Outcome{Status: 200}, errors.New("secret of the engine")
		}
		for range 3 {
			if s.router.Do(context.Background(), prompt("x"), send) == nil {
				t.Fatal("no error")
			}
		}
		if err := s.router.Do(context.Background(), prompt("x"), send); !errors.Is(err, router.ErrNoTarget) {
			t.Fatal(err)
		}
		v := s.state(t, "show=notable")
		if v.Totals.Failed != 6 || v.Totals.NoTarget != uint64(none) || v.Totals.Retries != uint64(retried) ||
			done != 6 || v.States["cooling"] != 2 {
			t.Errorf("%+v %+v, %d %d %d", v.Totals, v.States, retried, done, none)
		}
		if d := v.Decisions[0]; d.Reason != "no_target_not_ready" || d.Stage != "no_target" || d.Of != 2 || d.Target != "" {
			t.Errorf("%+v", d)
		}
		if d := v.Decisions[2]; d.Status != 200 || d.Stage != "failed" || d.Attempt != 2 {
			t.Errorf("%+v", d)
		}
		cooled := 0
		for _, e := range v.Events {
			if e.Kind == "state" && e.Level == "bad" && e.Text == "was ready, is cooling" {
				cooled++
			}
		}
		if cooled != 2 {
			t.Errorf("events %+v", v.Events)
		}
	})
}

// TestPrompts holds that no prompt, session or token id is on the page, and that
// prompts are in their places.
func TestPrompts(t *testing.T) {
	secret := "swordfish"
	p := router.Prompt{Model: "llama", Session: secret + "-session", Salt: secret, Text: "\xffs" + long + "\xffu" +
		secret, Tokens: []uint32{987654321}}
	for _, on := range []bool{false, true} {
		s := start(t, debugui.Config{ShowPrompts: on, Decisions: 10}, router.Trace{}, "a", "b")
		all := func() string {
			var b strings.Builder
			for _, path := range []string{"/x/state", "/x/state?show=notable", "/x/decision?route=llama&seq=1",
				"/x/decision?route=llama&seq=2"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Host = "localhost"
				s.page.ServeHTTP(w, r)
				b.WriteString(w.Body.String())
			}
			return b.String()
		}
		all()
		l, err := s.router.Route(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Stage: router.Failed, Err: errors.New(secret), Reply: secret})
		l, err = s.router.Route(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Stage: router.Finished, Reply: secret})
		got := all()
		if on {
			if !strings.Contains(got, `[user] `+secret) || !strings.Contains(got, "[system] when") ||
				!strings.Contains(got, `"prompts":true`) {
				t.Errorf("no prompt in %s", got)
			}
			got = strings.ReplaceAll(got, `[user] `+secret, "")
		}
		if strings.Contains(got, secret) || strings.Contains(got, "987654321") {
			t.Errorf("ShowPrompts %v: the secret is in %s", on, got)
		}
	}
}

// TestStrategy tests the wrapped strategy against the laws that routers rely on,
// while the page is open.
func TestStrategy(t *testing.T) {
	routertest.Run(t, func(rand func() uint64) router.Strategy {
		page, err := debugui.New(debugui.Config{ExplainRate: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		var v state
		get(t, page, "/state", &v)
		s, err := cacheaware.New(cacheaware.Config{Rand: rand})
		if err != nil {
			t.Fatal(err)
		}
		return page.Strategy(s)
	}, routertest.Options{Skip: map[routertest.Law]string{
		routertest.Scopes: "long, and about what the strategy matches, which the wrapper leaves to it",
	}})
}

func TestUnwrap(t *testing.T) {
	page, _ := debugui.New(debugui.Config{})
	s, _ := leastload.New(leastload.Config{})
	if w := page.Strategy(s); w == router.Strategy(s) || debugui.Unwrap(w) != router.Strategy(s) ||
		debugui.Unwrap(s) != router.Strategy(s) {
		t.Error("not the one that was given")
	}
	off, _ := debugui.New(debugui.Config{ExplainRate: -1})
	if off.Strategy(s) != router.Strategy(s) {
		t.Error("wrapped although nothing is to be explained")
	}
	rr, _ := roundrobin.New(roundrobin.Config{})
	bare := struct{ router.Strategy }{rr} // no Explainer
	if page.Strategy(bare) != router.Strategy(bare) {
		t.Error("wrapped although it cannot explain")
	}
}

func TestConfig(t *testing.T) {
	_, err := debugui.New(debugui.Config{
		Hosts: []string{"ok.example", "a:80", ""}, Decisions: -1, Events: 10_001, Targets: -1, ExplainRate: 1 << 20,
		MaxBody: -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Hosts[1]", "Hosts[2]", "Decisions", "Events", "Targets", "ExplainRate", "MaxBody"} {
		if !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
