package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/sim"
)

// promptsOf returns 32 prompts of so many KiB. Half of each is shared by all.
func promptsOf(kib int) []router.Prompt {
	lead := strings.Repeat("What they all begin with. ", kib<<9/26)
	ps := make([]router.Prompt, 32)
	for i := range ps {
		rest := strings.Repeat(fmt.Sprintf("Only in prompt %02d. ", i), kib<<10/19)
		ps[i] = router.Prompt{Model: "llama", Session: fmt.Sprint("session ", i), Text: (lead + rest)[:kib<<10]}
	}
	return ps
}

func fleetOf(n int) []router.Target {
	ts := make([]router.Target, n)
	for i := range ts {
		ts[i].ID = fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256)
		ts[i].Load = router.Load{Known: true, InFlight: i % 7}
	}
	return ts
}

// warmed returns a strategy that has been sent each of ps once, and the decisions.
func warmed(b *testing.B, p sim.Policy, ps []router.Prompt, ts []router.Target) router.Strategy {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	s, err := p.New(sim.Env{Rand: rng.Uint64, Now: func() time.Time { return start }, Calibration: sim.Calibrations()[0],
		Replicas: len(ts)})
	if err != nil {
		b.Fatal(err)
	}
	for i := range ps {
		d, err := s.Pick(context.Background(), ps[i], ts)
		if err != nil {
			b.Fatal(err)
		}
		record(s, d)
	}
	return s
}

func record(s router.Strategy, d router.Decision) {
	s.Record(d, router.Outcome{Stage: router.Sent})
	s.Record(d, router.Outcome{Stage: router.FirstToken})
	s.Record(d, router.Outcome{Stage: router.Finished, Status: 200})
}

// each runs f for every policy, number of targets and length of prompts.
func each(b *testing.B, f func(b *testing.B, s router.Strategy, ps []router.Prompt, ts []router.Target)) {
	for _, p := range policies() {
		for _, n := range []int{8, 64, 512} {
			for _, kib := range []int{2, 16, 128} {
				b.Run(fmt.Sprintf("%s/targets=%d/KiB=%d", p.Name, n, kib), func(b *testing.B) {
					ps, ts := promptsOf(kib), fleetOf(n)
					s := warmed(b, p, ps, ts)
					b.ReportAllocs()
					f(b, s, ps, ts)
				})
			}
		}
	}
}

// BenchmarkPick asks for prompts that were sent before.
func BenchmarkPick(b *testing.B) {
	each(b, func(b *testing.B, s router.Strategy, ps []router.Prompt, ts []router.Target) {
		i := 0
		for b.Loop() {
			if _, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// BenchmarkRecord records a whole request: Sent, FirstToken and Finished. The
// clock stands while the next 32 Decisions are made.
func BenchmarkRecord(b *testing.B) {
	each(b, func(b *testing.B, s router.Strategy, ps []router.Prompt, ts []router.Target) {
		ds := make([]router.Decision, len(ps))
		i := len(ds)
		for b.Loop() {
			if i == len(ds) {
				b.StopTimer()
				for k := range ds {
					var err error
					if ds[k], err = s.Pick(context.Background(), ps[k], ts); err != nil {
						b.Fatal(err)
					}
				}
				i = 0
				b.StartTimer()
			}
			record(s, ds[i])
			i++
		}
	})
}
