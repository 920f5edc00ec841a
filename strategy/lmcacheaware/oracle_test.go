package lmcacheaware_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

// history is what a naive observer remembers: all texts that each target was sent.
type history map[string][]string

func (h history) cached(id, text string) int {
	most := 0
	for _, s := range h[id] {
		n := 0
		for n < len(s) && n < len(text) && s[n] == text[n] {
			n++
		}
		most = max(most, n)
	}
	return most
}

// naive returns the IDs that the rules allow for a prompt, each computed from the
// documentation's formula alone, and the reason.
func naive(cfg lmcacheaware.Config, f values, h history, text string,
	ts []router.Target) (allowed []string, reason router.Reason) {
	var ready []router.Target
	for _, t := range ts {
		if t.State == router.Ready {
			ready = append(ready, t)
		}
	}
	smallest := math.Inf(1)
	for _, t := range ready {
		smallest = min(smallest, t.Weight)
	}
	load := func(t router.Target) float64 {
		return float64(t.Load.InFlight+t.Load.Queued) / (t.Weight / smallest)
	}
	known, sum := 0, 0.0
	for _, t := range ready {
		if t.Load.Known {
			known++
			sum += load(t)
		}
	}
	reason = router.ReasonLeastLoad
	if known == 0 {
		reason = router.ReasonRandom
	}
	best, held, spoke := math.Inf(1), 0, false
	anyHeld := false
	for _, t := range ready {
		cost := sum / float64(max(known, 1))
		if t.Load.Known {
			cost = load(t)
		}
		free, ok := f[t.ID]
		switch {
		case !ok:
			cost += cfg.CapacityRequests + cfg.StateRequests
		case free < 0:
			cost += cfg.CapacityRequests + 2*cfg.StateRequests
			spoke = true
		default:
			cost += cfg.CapacityRequests * (1 - free)
			spoke = true
		}
		n := 0
		if cfg.AffinityRequests > 0 && text != "" {
			n = h.cached(t.ID, text)
			cost -= cfg.AffinityRequests * float64(n) / float64(len(text))
			anyHeld = anyHeld || n > 0
		}
		switch {
		case cost < best || cost == best && n > held:
			best, held, allowed = cost, n, []string{t.ID}
		case cost == best && n == held:
			allowed = append(allowed, t.ID)
		}
	}
	switch {
	case len(ready) == 1:
		reason = router.ReasonOnly
	case spoke:
		reason = lmcacheaware.ReasonCapacity
	case anyHeld:
		reason = router.ReasonWarm
	}
	return allowed, reason
}

// Histories in which every number is a multiple of a power of two, so that both
// sides compute exactly and ties are ties.
func TestAgainstTheOracle(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f := values{}
		cfg := lmcacheaware.Config{Source: f, CapacityRequests: 4, StateRequests: 16, Rand: seeded(seed)}
		if seed%2 == 1 {
			cfg.AffinityRequests = 8
		}
		if seed%3 == 1 {
			cfg.CapacityRequests, cfg.StateRequests = 2, 4
		}
		s := mustNew(t, cfg)
		h := history{}
		picked := map[router.Reason]int{}
		for range 300 {
			var ts []router.Target
			loads := rng.IntN(4) // 0: none is known; 1: all, 2 and 3: half
			spread := 1 + rng.IntN(60)
			for i := range 1 << rng.IntN(4) { // a power of two: the mean is exact
				tg := router.Target{ID: fmt.Sprint("t", i), Weight: float64(int(1) << rng.IntN(2))}
				if loads == 1 || loads > 1 && i%2 == 0 {
					tg.Load = router.Load{Known: true, InFlight: rng.IntN(spread), Queued: rng.IntN(3)}
				}
				ts = append(ts, tg)
			}
			switch rng.IntN(4) {
			case 0:
				clear(f)
			case 1:
				for _, tg := range ts {
					f[tg.ID] = []float64{0, 0.25, 0.5, 1, -1}[rng.IntN(5)]
				}
			default:
				id := ts[rng.IntN(len(ts))].ID
				if rng.IntN(2) == 0 {
					delete(f, id)
				} else {
					f[id] = float64(rng.IntN(9)) / 8
				}
			}
			if rng.IntN(4) == 0 {
				// Only where the mean is still exact: leave out none of a known load.
				if i := slices.IndexFunc(ts, func(t router.Target) bool { return !t.Load.Known }); i >= 0 {
					ts[i].State = router.State(1 + rng.IntN(4))
				}
			}
			// Texts of 16 bytes.
			text := ""
			for range rng.IntN(3) {
				text += strings.Repeat(string(rune('a'+rng.IntN(3))), 8)
			}
			p := router.Prompt{Model: "m", Text: text}
			want, reason := naive(cfg, f, h, text, ts)
			d, err := s.Pick(context.Background(), p, ts)
			if len(want) == 0 {
				if err == nil {
					t.Fatalf("seed %d: %+v where nothing is ready", seed, d)
				}
				continue
			}
			if err != nil || !slices.Contains(want, d.Target.ID) || d.Reason != reason {
				t.Fatalf("seed %d: %s for %q (%v), want one of %v for %q\n%+v\n%v", seed, d.Target.ID, d.Reason, err, want, reason,
					ts, f)
			}
			if cfg.AffinityRequests > 0 && d.Cached != h.cached(d.Target.ID, text) {
				t.Fatalf("seed %d: cached %d, want %d", seed, d.Cached, h.cached(d.Target.ID, text))
			}
			cs := s.Explain(context.Background(), p, ts, nil)
			if len(cs) != len(ts) || !slices.Contains(want, cs[0].Target.ID) {
				t.Fatalf("seed %d: Explain begins with %+v, want one of %v", seed, cs[0], want)
			}
			picked[d.Reason]++
			s.Record(d, router.Outcome{Stage: router.Sent})
			h[d.Target.ID] = append(h[d.Target.ID], text)
			if rng.IntN(40) == 0 {
				id := ts[0].ID
				s.Forget(id)
				delete(h, id)
			}
		}
		if picked[lmcacheaware.ReasonCapacity] < 50 || picked[router.ReasonLeastLoad]+picked[router.ReasonWarm] == 0 {
			t.Fatalf("seed %d: %v", seed, picked)
		}
	}
}
