package sim

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/bench/trace"
)

// A prompt is computed by a replica for that alone, handed over, and decoded by another one. What is cached there is
// not handed over again, and short prompts are not at all.
func TestSplit(t *testing.T) {
	one := func(at time.Duration, n, out int, id uint64) trace.Request {
		return trace.Request{Arrival: at, After: trace.None, Input: n, Output: out,
			Prompt: []trace.Piece{{ID: id, Tokens: n}}}
	}
	w := &trace.Workload{Name: "w", Requests: []trace.Request{
		one(0, 4096, 10, 1), one(10*time.Second, 4096, 10, 1), one(20*time.Second, 600, 10, 2),
	}}
	c := Config{
		Workload: w, Policy: cacheAware, Replicas: 2, Split: &Split{Prefill: 1, MinUncached: 1024, Token: 1e-5},
		Good: func(ttft, perToken float64) bool { return ttft > 0 && perToken > 0 },
	}
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Split != 1 || r.HandedOver != 4096 || r.Finished != 3 || r.Good != 3 {
		t.Errorf("%d split, %d tokens handed over, %d finished, %d good", r.Split, r.HandedOver, r.Finished, r.Good)
	}
	// The decoding replica computed the last token of the first prompt, its last block of the second, and the third.
	if p, d := r.PerReplica[0], r.PerReplica[1]; p.Requests != 1 || p.Prefilled != 4096 || d.Requests != 3 ||
		d.Prefilled != 1+512+600 {
		t.Errorf("%+v, %+v", p, d)
	}
	cal := Calibrations()[0]
	prefill := cal.Step + 4096*cal.PrefillToken + Seconds(4096*4097/2)*cal.Attention
	last := cal.Step + cal.PrefillToken + 4096*cal.Attention
	want := float64(prefill + 4096*1e-5 + last)
	c.Requests = true
	if r, err = Run(context.Background(), c); err != nil || math.Abs(r.FirstTokens[0]-want) > 1e-6 {
		t.Errorf("the first token came after %v, not %v: %v", r.FirstTokens[0], want, err)
	}
}

func TestSplitConfig(t *testing.T) {
	w := &trace.Workload{Name: "w", Requests: []trace.Request{
		{After: trace.None, Input: 1, Output: 1, Prompt: []trace.Piece{{ID: 1, Tokens: 1}}},
	}}
	for _, c := range []Config{
		{Split: &Split{}}, {Split: &Split{Prefill: 8}}, {Split: &Split{Prefill: 1, MinUncached: -1}},
		{Split: &Split{Prefill: 1, Token: -1}}, {Split: &Split{Prefill: 1}, Events: []Event{{Kind: Die}}},
	} {
		c.Workload, c.Policy = w, cacheAware
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "Split") {
			t.Errorf("%+v: %v", c.Split, err)
		}
	}
}
