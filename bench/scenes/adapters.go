package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/internal/rendezvous"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
)

// The fleet: adapters by Zipf's law, on replicas with a few slots each.
const (
	manyAdapters = 64
	fewSlots     = 4
	adapterFleet = 8
)

// loadTimes are those of one adapter, seconds.
var loadTimes = []sim.Seconds{0.05, 0.2, 0.5}

// tuned is a workload with adapters: each has a beginning of its own, and each request a part that nobody shares.
func tuned(rate float64, requests int, seed uint64) *trace.Workload {
	r := rand.New(rand.NewPCG(seed, 79))
	weights := make([]float64, manyAdapters)
	sum := 0.0
	for i := range weights {
		sum += 1 / float64(i+1)
		weights[i] = sum
	}
	w := &trace.Workload{Name: "adapters"}
	at := 0.0
	for i := range requests {
		at += r.ExpFloat64() / rate
		k, _ := slices.BinarySearch(weights, r.Float64()*sum)
		n := 200 + r.IntN(1601)
		w.Requests = append(w.Requests, trace.Request{
			Arrival: seconds(at), After: trace.None, Input: 512 + n, Output: 100 + r.IntN(201),
			Adapter: fmt.Sprint("adapter-", k),
			Prompt: []trace.Piece{
				{ID: trace.ID(seed, uint64(k), 0x6c6f7261), Tokens: 512}, {ID: trace.ID(seed, uint64(i), 0x70617274), Tokens: n},
			},
		})
	}
	return w
}

// adapterPolicies are those of the table.
func adapterPolicies() []sim.Policy {
	slots := func(e sim.Env) (*adapters.Slots, error) {
		return adapters.New(adapters.Config{Slots: fewSlots, Now: e.Now, Share: e.Share})
	}
	return []sim.Policy{
		{Name: "least_work", New: func(e sim.Env) (router.Strategy, error) {
			s, err := slots(e)
			if err != nil {
				return nil, err
			}
			return leastwork.New(leastwork.Config{Rand: e.Rand, Now: e.Now, Adapters: s, Share: e.Share})
		}},
		{Name: "pipeline", New: func(e sim.Env) (router.Strategy, error) {
			s, err := slots(e)
			if err != nil {
				return nil, err
			}
			return pipeline.New(pipeline.Config{Rand: e.Rand, Now: e.Now, Adapters: s, Share: e.Share})
		}},
		{Name: "least_work, blind", New: func(e sim.Env) (router.Strategy, error) {
			s, err := leastwork.New(leastwork.Config{Rand: e.Rand, Now: e.Now, Share: e.Share})
			return blind{s}, err
		}},
		{Name: "llm-d's scorer", New: newLoRAAffinity},
		{Name: "rendezvous", New: func(sim.Env) (router.Strategy, error) { return placed{}, nil }},
	}
}

// blind hides the adapter of each prompt; the text of each adapter is its own.
type blind struct{ *leastwork.Strategy }

func (b blind) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	p.Adapter = ""
	return b.Strategy.Pick(ctx, p, ts)
}

func (b blind) PickPrepared(ctx context.Context, p router.Prompt, ts []router.Target, r any) (router.Decision, error) {
	p.Adapter = ""
	return b.Strategy.PickPrepared(ctx, p, ts, r)
}

func (b blind) Prepare(ctx context.Context, p router.Prompt) any {
	p.Adapter = ""
	return b.Strategy.Prepare(ctx, p)
}

// placed sends each adapter to its place.
type placed struct{}

func (placed) Pick(_ context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	best, place := -1, uint64(0)
	for i := range ts {
		x := rendezvous.Place(ts[i].ID, rendezvous.Hash(p.Adapter))
		if ts[i].State == router.Ready && (best < 0 || x > place) {
			best, place = i, x
		}
	}
	if best < 0 {
		return router.Decision{}, router.ErrNoTarget
	}
	return router.Decision{Prompt: p, Target: ts[best], Length: len(p.Text)}, nil
}

func (placed) Record(router.Decision, router.Outcome) {}

// newLoRAAffinity returns llm-d's lora-affinity-scorer with its prefix and queue scorers, of equal weight with the
// former: 1 if the adapter has requests in the batch, 0.8 if fewer adapters than slots have requests, 0.6 if it has
// requests that wait, else 0. It sees the page of this very instant, which the original reads every 50 ms. Source:
// llm-d/llm-d-router pkg/epp/framework/plugins/scheduling/scorer/loraaffinity.
func newLoRAAffinity(e sim.Env) (router.Strategy, error) {
	affinity := func(_ context.Context, o *pipeline.Offer, scores []float64) {
		for i := range scores {
			running, waiting := e.Adapters(o.Targets[i].ID)
			switch {
			case slices.Contains(running, o.Prompt.Adapter):
				scores[i] = 1
			case len(running)+len(waiting) < fewSlots:
				scores[i] = 0.8
			case slices.Contains(waiting, o.Prompt.Adapter):
				scores[i] = 0.6
			}
		}
	}
	queue := func(_ context.Context, o *pipeline.Offer, scores []float64) {
		least, most := math.Inf(1), 0.0
		for i := range o.Targets {
			least, most = min(least, o.Load(i)), max(most, o.Load(i))
		}
		for i := range scores {
			scores[i] = 1
			if most > least {
				scores[i] = (most - o.Load(i)) / (most - least)
			}
		}
	}
	return pipeline.New(pipeline.Config{
		Rand: e.Rand, Now: e.Now, StaticWeight: -1, LoadWeight: -1, AffinityWeight: 3, SessionTTL: -1,
		Scorers: []pipeline.Weighted{
			{Name: "queue", Scorer: pipeline.ScorerFunc(queue), Weight: 2},
			{Name: "lora", Scorer: pipeline.ScorerFunc(affinity), Weight: 3},
		},
	})
}

// adapted are the means of runs.
type adapted struct{ loads, least, mean, p50, p99 float64 }

func adapt(p sim.Policy, load sim.Seconds, rate float64, requests, seeds, gateways int) (adapted, error) {
	var sum adapted
	cal, err := sim.CalibrationByName("8b-h100")
	if err != nil {
		return sum, err
	}
	for seed := range uint64(seeds) {
		w := tuned(rate, requests, seed+1)
		var names []string
		for i := range w.Requests {
			names = append(names, w.Requests[i].Adapter)
		}
		r, err := sim.Run(context.Background(), sim.Config{
			Workload: w, Policy: p, Seed: seed + 1, Replicas: adapterFleet, Calibration: cal, Slots: fewSlots, Load: load,
			Gateways: gateways,
		})
		if err != nil {
			return sum, err
		}
		n := float64(seeds)
		sum.loads += float64(r.AdapterLoads) / n
		sum.least += float64(sim.LeastLoads(names, adapterFleet*fewSlots)) / n
		sum.mean += r.TTFT.Mean / n
		sum.p50 += r.TTFT.P50 / n
		sum.p99 += r.TTFT.P99 / n
	}
	return sum, nil
}

// adapterRates are requests a second.
var adapterRates = []float64{8, 20, 40}

// adapting prints the table of adapters.
func adapting(out io.Writer, seeds int) error {
	fmt.Fprintln(out, "| a load, s | rate, 1/s | policy | loads | over the least | TTFT mean, s | p50 | p99 |\n"+
		"|---|---|---|---|---|---|---|---|")
	for _, load := range loadTimes {
		for _, rate := range adapterRates {
			for _, p := range adapterPolicies() {
				a, err := adapt(p, load, rate, 6000, seeds, 1)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "| %g | %g | %s | %.0f | %.2f | %.3f | %.3f | %.2f |\n", float64(load), rate, p.Name, a.loads,
					a.loads/a.least, a.mean, a.p50, a.p99)
			}
		}
	}
	return nil
}
