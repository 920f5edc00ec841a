package vllmtest_test

import (
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// TestRecompute: with EAGLE the last block of each hit is computed again.
func TestRecompute(t *testing.T) {
	for again := range 3 {
		s := fast(t, vllmtest.Config{Recompute: again})
		prompt := make([]int, 100)
		for i := range prompt {
			prompt[i] = 1000 + i
		}
		body := map[string]any{"prompt": prompt, "max_tokens": 1}
		for _, want := range []int{0, 96 - 16*again} {
			var r openAIReply
			call(t, s, "/v1/completions", body, &r)
			if r.Usage == nil || r.Usage.Details.Cached != want {
				t.Errorf("%d computed again: %+v, want %d cached", again, r.Usage, want)
			}
		}
	}
	if _, err := vllmtest.New(vllmtest.Config{Recompute: -1}); err == nil {
		t.Error("started")
	}
}
