package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/egress"
)

// fileOf makes a file of one route "m" over providers.
func fileOf(strategy, more string, providers ...string) string {
	var b strings.Builder
	for _, p := range providers {
		fmt.Fprintf(&b, "[[providers]]\nname = %q\napi_base = \"http://%s:8000\"\n", p, p)
	}
	fmt.Fprintf(&b, "[[routes]]\nmodel = \"m\"\nstrategy = %q\n", strategy)
	for _, p := range providers {
		fmt.Fprintf(&b, "[[routes.targets]]\nprovider = %q\n", p)
	}
	return b.String() + more
}

func reload(t testing.TB, g *Gateway, text string) {
	t.Helper()
	if err := g.Reload(mustParse(t, text, g.options)); err != nil {
		t.Fatal(err)
	}
}

func inFlight(g *Gateway) map[string]int {
	n := make(map[string]int)
	for _, s := range g.View().Snapshot() {
		n[s.Target.ID] = s.Target.Load.InFlight
	}
	return n
}

func TestReloadKeepsWhatIsLearned(t *testing.T) {
	text := strings.Repeat("a long conversation ", 100)
	for _, c := range []struct {
		strategy, before, after string
		same                    bool // the strategy itself
	}{
		{"cache_aware", "", "", true},
		{"cache_aware", "[routes.cache_aware]\nthreshold = 0.5\n", "", true}, // it is the default
		{"cache_aware", "", "[routes.cache_aware]\nthreshold = 0.9\n", false},
		{"least_work", "", "[routes.least_work]\nmiss_weight = 7\n", false},
		{"pipeline", "", "[routes.pipeline]\naffinity_weight = 3\n", false},
		{"precise_cache_aware", "[routes.precise_cache_aware]\nfallback = \"text\"\n",
			"[routes.precise_cache_aware]\nfallback = \"text\"\nheld_share = 0.2\n", false},
	} {
		g := mustBuild(t, fileOf(c.strategy, c.before, "a", "b", "c"), options())
		was := g.Strategy("m")
		l, _ := mustRoute(t, g, "m", promptOf(text))
		id := l.Decision().Target.ID
		reload(t, g, fileOf(c.strategy, c.after, "d", "c", "b", "a"))
		if same := g.Strategy("m") == was; same != c.same {
			t.Errorf("%+v: the same strategy: %v", c, same)
		}
		if n := inFlight(g); n[id] != 1 || len(n) != 4 {
			t.Errorf("%+v: in flight %v", c, n)
		}
		l.Done(router.Outcome{Stage: router.Finished, Status: 200})
		if n := inFlight(g); n[id] != 0 {
			t.Errorf("%+v: in flight %v", c, n)
		}
		for range 8 {
			l, _ := mustRoute(t, g, "m", promptOf(text+"and more"))
			d := l.Decision()
			l.Done(router.Outcome{Stage: router.Finished, Status: 200})
			if d.Target.ID != id || d.Cached < len(text) {
				t.Errorf("%+v: %s holds %d, went to %s", c, id, d.Cached, d.Target.ID)
			}
		}
	}
}

func TestReloadKeepsSessions(t *testing.T) {
	g := mustBuild(t, fileOf("pipeline", "", "a", "b", "c", "d"), options())
	p := router.Prompt{Session: "s"}
	l, _ := mustRoute(t, g, "m", p)
	l.FirstToken()
	l.Done(router.Outcome{Stage: router.Finished, Status: 200})
	reload(t, g, fileOf("pipeline", "[routes.pipeline]\nload_weight = 3\n", "a", "b", "c", "d", "e"))
	for range 8 {
		if id := serve(t, g, "m", p); id != l.Decision().Target.ID {
			t.Errorf("the session was at %s and went to %s", l.Decision().Target.ID, id)
		}
	}
}

func TestReloadKeepsHealth(t *testing.T) {
	g := mustBuild(t, fileOf("least_load", "", "a", "b"), options())
	l, _ := mustRoute(t, g, "m", promptOf("x"))
	bad := l.Decision().Target.ID
	l.Done(router.Outcome{Stage: router.Failed, Status: 503, RetryAfter: time.Minute})
	reload(t, g, fileOf("round_robin", "", "b", "a"))
	for range 4 {
		if id := serve(t, g, "m", promptOf("x")); id == bad {
			t.Errorf("%s asked to be left alone", id)
		}
	}
}

// What a target held is forgotten where another server has taken its name, and
// where the route has it no more.
func TestReloadForgets(t *testing.T) {
	text := strings.Repeat("a long conversation ", 100)
	cached := func(g *Gateway, id string) int {
		m, _ := g.Route("m")
		cs, err := m.Router.Explain(t.Context(), m.Prompt(promptOf(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			if c.Target.ID == id {
				return c.Cached
			}
		}
		return -1
	}
	before := fileOf("cache_aware", "", "a", "b")
	for name, c := range map[string]struct {
		between string
		want    int
	}{
		"nothing":       {before, len(text)},
		"other address": {strings.NewReplacer("//a:", "//a2:", "//b:", "//b2:").Replace(before), 0},
		"no target":     {fileOf("cache_aware", "", "c"), 0},
	} {
		g := mustBuild(t, before, options())
		id := serve(t, g, "m", promptOf(text))
		if got := cached(g, id); got != len(text) {
			t.Fatalf("%s holds %d", id, got)
		}
		reload(t, g, c.between)
		reload(t, g, before)
		if got := cached(g, id); got != c.want {
			t.Errorf("%s: %s holds %d, want %d", name, id, got, c.want)
		}
	}
}

// Everything of a file can be changed by a reload, also the fleet's own settings.
func TestReloadOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		var policies []egress.Policy
		o.Subscribe = func(s Subscription) (Runner, error) {
			policies = append(policies, s.Egress)
			return idle{}, nil
		}
		file := func(head, end string) string {
			return head + "[[providers]]\nname='a'\napi_base='http://a'\n[providers.kv_events]\nendpoint='tcp://a:5557'\n" +
				"[[routes]]\nmodel='m'\nstrategy='precise_cache_aware'\ntargets=[{provider='a'}]\n" + end
		}
		g := mustBuild(t, file("", ""), o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		fail := func(n int) router.State {
			for range n {
				l, _ := mustRoute(t, g, "m", promptOf("x"))
				l.Done(router.Outcome{Stage: router.Failed, Err: errors.New("reset")})
			}
			return g.View().Snapshot()[0].Target.State
		}
		if s := fail(1); s != router.Ready {
			t.Fatalf("after one failure: %v", s)
		}
		reload(t, g, file("[health]\ncool_after = 1\ncool_base = '1h'\ncool_max = '1h'\n", ""))
		if s := fail(1); s != router.Cooling {
			t.Errorf("with cool_after = 1, after a failure: %v", s)
		}
		if len(policies) != 1 {
			t.Errorf("%d subscriptions, though only [health] has changed", len(policies))
		}
		reload(t, g, file("[egress]\nblock_private = true\n[metrics_scrape]\ninterval_secs = 1\n[health_probe]\nfailures = "+
			"1\n", ""))
		synctest.Wait()
		if len(policies) != 2 || policies[0].BlockPrivate || !policies[1].BlockPrivate {
			t.Errorf("subscriptions with %+v", policies)
		}
		// A file that is denied changes nothing.
		before := g.File()
		if _, err := Parse([]byte(strings.Replace(file("[egress]\nblock_private = true\n", ""), "http://a",
			"http://10.0.0.1", 1)), o); err == nil {
			t.Error("a denied address is taken")
		}
		if g.File() != before {
			t.Error("the file has changed")
		}
		cancel()
		<-done
	})
}

func TestReloadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "router.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var told []error
	o := options()
	o.Reloaded = func(f *file.File, err error) {
		if told = append(told, err); (f == nil) != (err != nil) {
			t.Errorf("%v with %v", f, err)
		}
	}
	write(fileOf("round_robin", "", "a"))
	f, err := Load(path, o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Build(f, o)
	if err != nil {
		t.Fatal(err)
	}
	write(fileOf("round_robbin", "", "a", "b"))
	if err := g.ReloadFile(path); err == nil || !strings.Contains(err.Error(), `did you mean "round_robin"?`) ||
		!strings.Contains(err.Error(), path+":9:12") {
		t.Errorf("%v", err)
	}
	if len(inFlight(g)) != 1 || serve(t, g, "m", promptOf("x")) != "a" || g.File() != f {
		t.Error("a bad file has changed something")
	}
	write(fileOf("round_robin", "", "a", "b"))
	if err := g.ReloadFile(path); err != nil || len(inFlight(g)) != 2 {
		t.Errorf("%v, %v", err, inFlight(g))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := g.ReloadFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if len(told) != 3 || told[0] == nil || told[1] != nil || told[2] == nil {
		t.Errorf("%v", told)
	}
}

// A target that left finishes what it has, takes nothing new, and is gone then.
func TestRemovedTargetsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []string
		o := options()
		o.View.Left = func(id string, inFlight int) { left = append(left, fmt.Sprint(id, inFlight)) }
		g := mustBuild(t, fileOf("round_robin", "", "a", "b"), o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		var held *router.Lease
		for held == nil {
			if l, _ := mustRoute(t, g, "m", promptOf("x")); l.Decision().Target.ID == "b" {
				held = l
			} else {
				l.Done(router.Outcome{Stage: router.Finished})
			}
		}
		reload(t, g, fileOf("round_robin", "", "a", "c"))
		for range 6 {
			if id := serve(t, g, "m", promptOf("x")); id == "b" {
				t.Error("b was picked after it had left")
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := inFlight(g); n["b"] != 1 {
			t.Errorf("in flight %v", n)
		}
		for _, s := range g.View().Snapshot() {
			if s.Target.ID == "b" && s.Target.State != router.Draining {
				t.Errorf("b is %v", s.Target.State)
			}
		}
		held.Done(router.Outcome{Stage: router.Finished, Status: 200})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := inFlight(g); len(n) != 2 || cmp.Diff([]string{"b0"}, left) != "" {
			t.Errorf("in flight %v, left %v", n, left)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A request that found its route before a reload, or is sent again after it, is
// served, also where the route or all of its targets are gone from the file.
func TestRequestsAcrossAReload(t *testing.T) {
	g := mustBuild(t, fileOf("round_robin", "", "a", "b"), options())
	m, _ := g.Route("m")
	l, _ := mustRoute(t, g, "m", promptOf("x"))
	reload(t, g, fileOf("least_load", "", "c", "d"))
	again, err := l.Retry(t.Context(), router.Outcome{Stage: router.Failed, Status: 503})
	if err != nil {
		t.Fatal(err)
	}
	if id := again.Decision().Target.ID; id != "c" && id != "d" {
		t.Errorf("it was sent to %s again", id)
	}
	again.Done(router.Outcome{Stage: router.Finished})
	reload(t, g, strings.Replace(fileOf("least_load", "", "e"), `"m"`, `"n"`, 1))
	late, err := m.Router.Route(t.Context(), promptOf("x"))
	if err != nil {
		t.Fatal(err)
	}
	late.Done(router.Outcome{Stage: router.Finished})
	if _, ok := g.Route("m"); ok {
		t.Error("m is there still")
	}
}

// A request waits for a target that a reload brings.
func TestWaitForAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := "[routes.failover]\nwait = '1m'\n"
		g := mustBuild(t, fileOf("round_robin", wait, "a"), options())
		if err := g.View().SetDraining("a", true); err != nil {
			t.Fatal(err)
		}
		m, _ := g.Route("m")
		got := make(chan string, 1)
		go func() {
			l, err := m.Router.Route(t.Context(), promptOf("x"))
			if err != nil {
				got <- err.Error()
				return
			}
			l.Done(router.Outcome{Stage: router.Finished})
			got <- l.Decision().Target.ID
		}()
		synctest.Wait()
		start := time.Now()
		time.Sleep(time.Second)
		reload(t, g, fileOf("round_robin", wait, "b"))
		if id := <-got; id != "b" || time.Since(start) > 2*time.Second {
			t.Errorf("%s after %v", id, time.Since(start))
		}
	})
}
