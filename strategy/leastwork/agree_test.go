package leastwork_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/leastwork"
)

func agreeing(t *testing.T, agree float64, seed uint64) *leastwork.Strategy {
	t.Helper()
	s, err := leastwork.New(leastwork.Config{Rand: rand.New(rand.NewPCG(seed, 1)).Uint64, Agree: agree})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// where picks a target for the prompt and records it as sent.
func where(t *testing.T, s *leastwork.Strategy, p router.Prompt, targets []router.Target) string {
	t.Helper()
	d, err := s.Pick(context.Background(), p, targets)
	if err != nil {
		t.Fatal(err)
	}
	s.Record(d, router.Outcome{Stage: router.Sent})
	return d.Target.ID
}

func fleetOf(n int) []router.Target {
	ts := make([]router.Target, n)
	for i := range ts {
		ts[i] = router.Target{ID: fmt.Sprint("t", i), Load: router.Load{Known: true}}
	}
	return ts
}

// words are n bytes that hardly any other i has in common.
func words(i, n int) string {
	r := rand.New(rand.NewPCG(uint64(i), 99))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%x ", r.Uint64())
	}
	return b.String()[:n]
}

// TestAgree: gateways with other seeds, that know other prompts and see other
// loads, choose alike for cold prompts, and not without Agree.
func TestAgree(t *testing.T) {
	for _, form := range []string{"text", "tokens"} {
		same := map[float64]int{}
		for _, agree := range []float64{0, 0.25} {
			a, b := agreeing(t, agree, 1), agreeing(t, agree, 2)
			loads := rand.New(rand.NewPCG(1, 4))
			for i := range 100 {
				p := router.Prompt{Model: "m", Text: words(i, 8000)}
				if form == "tokens" {
					r := rand.New(rand.NewPCG(uint64(i), 7))
					for range 2000 {
						p.Tokens = append(p.Tokens, uint32(r.IntN(100_000)))
					}
					p.Text = ""
				}
				at, bt := fleetOf(8), fleetOf(8)
				for k := range at {
					at[k].Load.Prefill, bt[k].Load.Prefill = loads.IntN(2000), loads.IntN(2000)
				}
				if where(t, a, p, at) == where(t, b, p, bt) {
					same[agree]++
				}
			}
		}
		if same[0] > 40 || same[0.25] < 90 {
			t.Errorf("%s: alike in %v of 100", form, same)
		}
	}
}

// TestAgreeSpreadsCommonOpenings: prompts that all begin with the same long text,
// a small part of each, are not sent to one target.
func TestAgreeSpreadsCommonOpenings(t *testing.T) {
	s := agreeing(t, 1, 1)
	counts := map[string]int{}
	for i := range 200 {
		p := router.Prompt{Model: "m", Text: strings.Repeat("All begin alike. ", 240) + words(i, 60_000)}
		counts[where(t, s, p, fleetOf(8))]++
	}
	for id, n := range counts {
		if n > 60 {
			t.Errorf("%s got %d of 200: %v", id, n, counts)
		}
	}
}

// TestAgreeIsBounded: a target that costs more than Agree allows is never chosen,
// and warm prompts and empty ones are as without it.
func TestAgreeIsBounded(t *testing.T) {
	s := agreeing(t, 0.25, 3)
	targets := fleetOf(4)
	// A prompt of 2,000 tokens costs 10,000 at an idle target.
	targets[0].Load.Prefill, targets[1].Load.Prefill = 2501, 2499
	counts := map[string]int{}
	for i := range 400 {
		d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: words(i, 8000)}, targets)
		if err != nil {
			t.Fatal(err)
		}
		counts[d.Target.ID]++
	}
	if counts["t0"] != 0 || counts["t1"] < 60 || counts["t2"] < 60 || counts["t3"] < 60 {
		t.Errorf("chosen: %v", counts)
	}
	hot := router.Prompt{Model: "m", Text: words(1, 8000)}
	first := where(t, s, hot, fleetOf(4))
	busy := fleetOf(4)
	for i := range busy {
		if busy[i].ID == first {
			busy[i].Load.Prefill = 10_001
		}
	}
	if got := where(t, s, hot, busy); got == first {
		t.Errorf("a hot prompt stays at %s, which costs more than computing it anew", got)
	}
	empty := map[string]int{}
	for range 400 {
		empty[where(t, s, router.Prompt{Model: "m"}, fleetOf(4))]++
	}
	if len(empty) != 4 {
		t.Errorf("empty prompts go to %v", empty)
	}
}

func TestAgreeIsChecked(t *testing.T) {
	for _, v := range []float64{-0.1, 1.1} {
		if _, err := leastwork.New(leastwork.Config{Agree: v}); err == nil || !strings.Contains(err.Error(), "Agree") {
			t.Errorf("%v: %v", v, err)
		}
	}
}
