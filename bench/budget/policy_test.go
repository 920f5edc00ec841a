package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/workload"
)

// drive sends requests through a Router with cache_aware over eight engines that
// answer after 20 ms of virtual time, and judges their routing.
func drive(t *testing.T, w *workload.Workload, n, clients int) loadgen.Verdict {
	t.Helper()
	c, err := newCorpus(w, true)
	if err != nil {
		t.Fatal(err)
	}
	var v loadgen.Verdict
	synctest.Test(t, func(t *testing.T) {
		r, err := newRouter(engineCount)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := loadgen.Run(t.Context(), w.Requests[:n], clients,
			func(ctx context.Context, q workload.Request) (loadgen.Reply, error) {
				l, err := r.Route(ctx, router.Prompt{Model: scope, Text: c.text(q)})
				if err != nil {
					return loadgen.Reply{}, err
				}
				time.Sleep(20 * time.Millisecond)
				l.FirstToken()
				l.Done(router.Outcome{Status: 200})
				engine, err := strconv.Atoi(strings.TrimPrefix(l.Decision().Target.ID, "engine-"))
				return loadgen.Reply{Engine: engine}, err
			})
		if err != nil {
			t.Fatal(err)
		}
		v = loadgen.Judge(w, sent, engineCount)
	})
	return v
}

// TestCachesUnderLoad holds the policy to the budget of the gateway row, without
// the gateway. Draws and the order of goroutines differ from run to run, and one
// run in thirty or so is less even than the budget: the middle of five counts.
func TestCachesUnderLoad(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("its clients would be slower than its engines; make norace runs it")
	}
	var cached, maxOverMean, stayed []float64
	for range 5 {
		v := drive(t, workload.Chat(workload.ChatConfig{}), 6000, 64)
		cached = append(cached, v.Cached)
		maxOverMean = append(maxOverMean, v.MaxOverMean)
		stayed = append(stayed, v.Stayed)
	}
	for _, c := range []struct {
		name string
		v    []float64
		ok   func(float64) bool
	}{
		{"cached, at least 0.82", cached, func(v float64) bool { return v >= .82 }},
		{"max/mean, at most 1.05", maxOverMean, func(v float64) bool { return v <= 1.05 }},
		{"turns that stay, at least 0.82", stayed, func(v float64) bool { return v >= .82 }},
	} {
		slices.Sort(c.v)
		t.Logf("%s: %.3f", c.name, c.v)
		if !c.ok(c.v[2]) {
			t.Errorf("%s: the middle of %.3f", c.name, c.v)
		}
	}
}

// TestIdleFleetSpreads: different system prompts that meet an idle fleet one at a
// time do not all go to one engine, whether they differ from the start or begin
// alike, and conversations stay at their first engine.
func TestIdleFleetSpreads(t *testing.T) {
	for _, opening := range []int{0, 200, 600} {
		v := drive(t, workload.Chat(workload.ChatConfig{Conversations: 300, Opening: opening}), 600, 1)
		t.Logf("%d bytes in common: on %d engines, max/mean %.2f, cached %.3f of %.3f", opening, v.Openings, v.MaxOverMean,
			v.Cached, v.Ideal)
		if v.Openings < engineCount/2 {
			t.Errorf("%d bytes in common: 20 system prompts went to %d engines", opening, v.Openings)
		}
		if v.Stayed != 1 {
			t.Errorf("%d bytes in common: %.3f of the turns stayed", opening, v.Stayed)
		}
	}
}
