package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
)

// crowd is a workload for which a fleet is too small, or for a comparison large enough.
type crowd struct {
	workload string
	rate     float64
}

var crowds = []crowd{
	{"mooncake-conversation", 2.5}, {"mooncake-synthetic", 3}, {"hot", 160}, {"mooncake-conversation", 1.5}, {"hot", 80},
}

// place is a rule of the places where requests wait.
type place struct {
	name string
	line *admission.Config // nil: in the engines alone
}

// unbounded are bounds that nobody reaches: as the engines', which shed nothing.
func unbounded(c admission.Config) *admission.Config {
	c.MaxWaiting, c.MaxBytes, c.MaxWait = 1<<20, 1<<40, 1000*time.Hour
	return &c
}

var placesToWait = []place{
	{"engines", nil},
	{"line, 16 requests", unbounded(admission.Config{Requests: 16})},
	{"line, 64 requests", unbounded(admission.Config{Requests: 64})},
	{"line, 16k tokens", unbounded(admission.Config{Prefill: 16 << 10})},
	{"line, 256k tokens", unbounded(admission.Config{Prefill: 256 << 10})},
	{"line, 16k tokens, cached first of 16 for 60 s",
		unbounded(admission.Config{Prefill: 16 << 10, CachedFirst: time.Minute})},
	{"line, 16k tokens, cached first of 256 for 300 s",
		unbounded(admission.Config{Prefill: 16 << 10, CachedFirst: 5 * time.Minute, Lookahead: 256})},
	{"line, 16k tokens, default bounds", &admission.Config{Prefill: 16 << 10}},
	{"line, 16k tokens, at most 5 s", &admission.Config{Prefill: 16 << 10, MaxWait: 5 * time.Second}},
	{"line, 16k tokens, at most 5 s, cached first of 16",
		&admission.Config{Prefill: 16 << 10, MaxWait: 5 * time.Second, CachedFirst: 5 * time.Second}},
	{"line, 16k tokens, at most 5 s, cached first of 256",
		&admission.Config{Prefill: 16 << 10, MaxWait: 5 * time.Second, CachedFirst: 5 * time.Second, Lookahead: 256}},
}

var lineStrategies = []sim.Policy{
	{Name: leastwork.Name, New: func(e sim.Env) (router.Strategy, error) {
		return leastwork.New(leastwork.Config{Rand: e.Rand})
	}},
	{Name: cacheaware.Name, New: func(e sim.Env) (router.Strategy, error) {
		return cacheaware.New(cacheaware.Config{Rand: e.Rand})
	}},
}

// soon is the time to first token within which an answer counts as good.
const soon = 10 * time.Second

// lined are the means of runs.
type lined struct {
	mean, p50, p99, cached, good, shed float64
}

// lines prints the table of requests that wait in the engines, and in a line before them.
func lines(out io.Writer, data, only string, seeds int) error {
	fmt.Fprintln(out,
		"| workload | strategy | requests wait in | TTFT mean, s | p50 | p99 | cached | goodput, 1/s | shed |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	for _, c := range crowds {
		if only != "" && only != c.workload {
			continue
		}
		for _, p := range lineStrategies {
			rows, err := c.play(data, p, seeds)
			if err != nil {
				return err
			}
			for i, r := range rows {
				fmt.Fprintf(out, "| %s %g | %s | %s | %.2f | %.2f | %.1f | %.3f | %.2f | %.1f%% |\n", c.workload, c.rate, p.Name,
					placesToWait[i].name, r.mean, r.p50, r.p99, r.cached, r.good, 100*r.shed)
			}
		}
	}
	return nil
}

// play returns a row for each of placesToWait.
func (c crowd) play(data string, p sim.Policy, seeds int) ([]lined, error) {
	known := append(trace.Recorded(data), trace.Generated()...)
	at := slices.IndexFunc(known, func(k trace.Source) bool { return k.Name == c.workload })
	if at < 0 {
		return nil, fmt.Errorf("scenes: no workload %q", c.workload)
	}
	rows := make([]lined, len(placesToWait))
	for seed := range uint64(seeds) { // one run at a time: many long prompts wait
		w, err := known[at].Build(c.rate, seed+1)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			r, err := sim.Run(context.Background(), sim.Config{Workload: w, Rate: c.rate, Policy: p, Seed: seed + 1,
				Replicas: known[at].Replicas, Scrape: 5 * time.Second, Requests: true, Line: placesToWait[i].line})
			if err != nil {
				return nil, err
			}
			rows[i].add(r, float64(seeds))
			debug.FreeOSMemory()
		}
	}
	return rows, nil
}

// add adds a run of so many.
func (l *lined) add(r *sim.Result, of float64) {
	good := 0
	for _, t := range r.FirstTokens {
		if t >= 0 && t <= soon.Seconds() {
			good++
		}
	}
	l.mean += r.TTFT.Mean / of
	l.p50 += r.TTFT.P50 / of
	l.p99 += r.TTFT.P99 / of
	l.cached += r.HitShare / of
	l.good += float64(good) / r.Span / of
	l.shed += float64(r.Shed) / float64(r.Requests) / of
}

// dataFolder has the recorded traces, seen from the module's folder.
var dataFolder = filepath.Join("..", "..", "shared", "data")
