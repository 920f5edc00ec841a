package leastwork_test

import (
	"context"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy/leastwork"
)

// TestRecomputed: what engines report of prompts that the index knows teaches it how many blocks
// they compute again.
func TestRecomputed(t *testing.T) {
	e := kvtest.New(t)
	s, err := leastwork.New(leastwork.Config{Index: e.Index})
	if err != nil {
		t.Fatal(err)
	}
	p := router.Prompt{Tokens: kvtest.Tokens(1, 321)}
	e.Store("a", p)
	targets := []router.Target{{ID: "a", State: router.Ready, Weight: 1}}
	for i, want := range []int{320, 320, 320, 304, 304} {
		d, err := s.Pick(context.Background(), p, targets)
		if err != nil {
			t.Fatal(err)
		}
		if d.Cached != want {
			t.Errorf("request %d: %d cached, want %d", i, d.Cached, want)
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
		s.Record(d, router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: 321, CachedTokens: 304})
	}
}
