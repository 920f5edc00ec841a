package main

import "testing"

// TestSplitting holds both directions of the tables: prompts that share nothing and tokens that must come soon are
// served better with prefill and decode apart, chats with replicas for both.
func TestSplitting(t *testing.T) {
	good := func(d duty, a apart, rate float64) float64 {
		t.Helper()
		p, err := a.mean(d, 0.025, rate, 1)
		if err != nil {
			t.Fatal(err)
		}
		return p.good
	}
	both, five := apart{name: "both"}, apart{name: "5 + 3", prefill: 5, bound: defaultBound}
	if b, s := good(duties[3], both, 18), good(duties[3], five, 18); b > 0.9 || s < mostly {
		t.Errorf("unshared: %v are good with replicas for both, %v apart", b, s)
	}
	if b, s := good(duties[0], both, 40), good(duties[0], five, 40); b < mostly || s > 0.9 {
		t.Errorf("chats: %v are good with replicas for both, %v apart", b, s)
	}
}
