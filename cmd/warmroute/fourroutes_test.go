package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// traffic asks all four routes until it is stopped.
type traffic struct {
	failed  atomic.Int64
	served  [4]atomic.Int64
	mu      sync.Mutex
	reasons map[string]map[string]bool // by strategy
	stop    func()
}

func (p *program) traffic(t *testing.T) *traffic {
	tr := &traffic{reasons: make(map[string]map[string]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, s := range cacheReaders {
		tr.reasons[s] = make(map[string]bool)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				got, err := p.send(s, strings.Repeat(fmt.Sprintf("traffic %d, ", n%7), 30))
				if err != nil {
					tr.failed.Add(1)
					t.Errorf("%s: %v", s, err)
				}
				tr.served[i].Add(1)
				tr.mu.Lock()
				tr.reasons[s][got.reason] = true
				tr.mu.Unlock()
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	tr.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(tr.stop)
	return tr
}

// goOn waits until each route has served some more.
func (tr *traffic) goOn(t *testing.T, when string) {
	t.Helper()
	var before [4]int64
	for i := range before {
		before[i] = tr.served[i].Load()
	}
	eventually(t, "each route serves "+when, func() bool {
		for i := range before {
			if tr.served[i].Load() < before[i]+4 {
				return false
			}
		}
		return true
	})
}

// TestFourRoutes: one file with a route for each strategy that reads a cache, over
// real sockets, while what each of them reads fails, replicas die and the file
// changes. No request fails that another replica could serve, and the reason in each
// reply says what the route fell back to.
func TestFourRoutes(t *testing.T) {
	signalled(t)
	leakCheck(t)
	engines := []*backend{newBackend(t, "r0"), newBackend(t, "r1"), newBackend(t, "r2")}
	healthy := func() {
		for i, e := range engines {
			e.says(fmt.Sprintf(`{"occupancy": 0.%d}`, 1+4*i))
		}
	}
	healthy()
	path := filepath.Join(t.TempDir(), "router.toml")
	place(t, path, fourRoutes(engines...))
	p := start(t, "-config", path, "-watch", "30ms")
	tr := p.traffic(t)

	n := 0
	fresh := func() string { n++; return strings.Repeat(fmt.Sprintf("prompt %d of the test, ", n), 40) }
	ask := func(strategy, text string) answer {
		t.Helper()
		got, err := p.send(strategy, text)
		if err != nil {
			t.Fatalf("%s: %v", strategy, err)
		}
		return got
	}
	because := func(strategy string, reason router.Reason) func() bool {
		return func() bool { return ask(strategy, fresh()).reason == string(reason) }
	}
	precise := func() bool {
		text := fresh()
		sent := ask("cache_aware", text)
		got := ask("precise_cache_aware", text)
		return got.reason == string(router.ReasonWarm) && got.target == sent.target && got.cached > 200
	}
	room := func() bool {
		got := ask("lmcache_aware", fresh())
		return got.reason == string(lmcacheaware.ReasonCapacity) && got.target == "r0"
	}

	// Each route by its source.
	for _, s := range []string{"cache_aware", "pipeline"} {
		eventually(t, s+" finds what it has sent", func() bool {
			text := fresh()
			first, again := ask(s, text), ask(s, text)
			return again.target == first.target && again.cached > 200 && again.reason != string(router.ReasonCold)
		})
	}
	eventually(t, "the events tell of what another route has sent", precise)
	eventually(t, "the LMCache with most room is preferred", room)
	tr.goOn(t, "at first")

	// LMCaches that fail, all of them, in every way.
	for _, answer := range []string{"hang", "10 GB", "redirect", `{"occupancy": NaN}`, "500"} {
		eventually(t, "the LMCaches are well", room)
		eventually(t, "all three are known", func() bool {
			for _, c := range p.debug(t).LMCache {
				if c.State != "available" {
					return false
				}
			}
			return true
		})
		before := p.log.count(`msg="LMCache occupancy"`)
		for _, e := range engines {
			e.says(answer)
		}
		eventually(t, answer+": the least load", because("lmcache_aware", router.ReasonLeastLoad))
		var polls [3]int64
		for i, e := range engines {
			polls[i] = e.polls.Load()
		}
		eventually(t, answer+": they are polled on", func() bool {
			for i, e := range engines {
				if e.polls.Load() < polls[i]+3 {
					return false
				}
			}
			return true
		})
		for id, c := range p.debug(t).LMCache {
			if c.Free != nil || c.Error == "" {
				t.Errorf("%s: %s is %+v", answer, id, c)
			}
		}
		if told := p.log.count(`msg="LMCache occupancy"`) - before; told != len(engines) {
			t.Errorf("%s: told %d times of %d changes", answer, told, len(engines))
		}
		tr.goOn(t, "with LMCaches that fail")
		healthy()
	}
	eventually(t, "the LMCaches are back", room)
	engines[1].says("flap")
	tr.goOn(t, "with an LMCache that flaps")
	healthy()

	// Events that stop, and an engine that gives no ids.
	for _, e := range engines {
		e.events.set(true)
	}
	eventually(t, "without events, by text", because("precise_cache_aware", precisecacheaware.ReasonUntrustedText))
	tr.goOn(t, "without events")
	for _, e := range engines {
		e.events.set(false)
	}
	eventually(t, "the events are back", precise)
	for _, e := range engines {
		e.noTokens.Store(true)
	}
	eventually(t, "without ids, by text", because("precise_cache_aware", precisecacheaware.ReasonNoTokensText))
	tr.goOn(t, "without ids")
	for _, e := range engines {
		e.noTokens.Store(false)
	}
	eventually(t, "the ids are back", precise)

	// Metrics that are not answered.
	faults := func(e *backend, f vllmtest.Faults) {
		t.Helper()
		if err := e.SetFaults(f); err != nil {
			t.Fatal(err)
		}
	}
	faults(engines[1], vllmtest.Faults{HangMetrics: true})
	tr.goOn(t, "with a metrics page that hangs")
	faults(engines[1], vllmtest.Faults{GarbageMetrics: true})
	tr.goOn(t, "with a metrics page of garbage")
	faults(engines[1], vllmtest.Faults{})

	// A replica that dies, and comes back empty: what it was sent is forgotten, by the
	// routes that do not read events too.
	for _, e := range engines {
		sent := ""
		eventually(t, e.name+" gets a prompt", func() bool {
			sent = fresh()
			return ask("cache_aware", sent).target == e.name
		})
		before := p.debug(t).Precise.Restarts
		faults(e, vllmtest.Faults{Refuse: true})
		if err := e.Restart(); err != nil {
			t.Fatal(err)
		}
		tr.goOn(t, "without "+e.name)
		faults(e, vllmtest.Faults{})
		eventually(t, e.name+" serves again", func() bool { return ask("cache_aware", fresh()).target == e.name })
		eventually(t, "the restart is seen", func() bool { precise(); return p.debug(t).Precise.Restarts > before })
		if got := ask("cache_aware", sent); got.reason != string(router.ReasonCold) || got.cached > 0 {
			t.Errorf("what %s had before its restart: %+v", e.name, got)
		}
	}
	eventually(t, "the events are followed again", precise)

	// The file: a replica less, a mistake, all of them again.
	place(t, path, fourRoutes(engines[:2]...))
	eventually(t, "r2 leaves", func() bool {
		for range 8 {
			for _, s := range cacheReaders {
				if ask(s, fresh()).target == "r2" {
					return false
				}
			}
		}
		return p.log.count("the configuration is in place") == 1
	})
	place(t, path, "[[routes]]\nmodel = 7\n")
	eventually(t, "the mistake is told", func() bool { return p.log.count("routes[0].model: ") > 0 })
	tr.goOn(t, "with a file that is wrong")
	place(t, path, fourRoutes(engines[2], engines[1], engines[0]))
	hangUp(t)
	eventually(t, "r2 is back", func() bool { return ask("cache_aware", fresh()).target == "r2" })
	eventually(t, "its events are followed", func() bool {
		v := p.debug(t).Precise.Targets["r2"]
		return v.Trusted && v.Blocks > 0
	})
	eventually(t, "events as before", precise)
	eventually(t, "LMCaches as before", room)
	tr.goOn(t, "at last")

	tr.stop()
	if n := tr.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
	allowed := map[string][]router.Reason{
		"cache_aware": {router.ReasonWarm, router.ReasonCold, router.ReasonSpill},
		"pipeline":    nil,
		"precise_cache_aware": {router.ReasonWarm, router.ReasonCold, router.ReasonSpill,
			precisecacheaware.ReasonNoTokensText, precisecacheaware.ReasonUntrustedText},
		"lmcache_aware": {lmcacheaware.ReasonCapacity, router.ReasonLeastLoad},
	}
	for s, may := range allowed {
		t.Logf("%s: %v", s, slices.Sorted(maps.Keys(tr.reasons[s])))
		for r := range tr.reasons[s] {
			if may != nil && !slices.Contains(may, router.Reason(r)) {
				t.Errorf("%s: %q", s, r)
			}
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}
