package main

import (
	"strings"
	"testing"

	"github.com/warmroute/router/internal/evictions"
	"github.com/warmroute/router/internal/racetest"
)

// TestEvictionBudget holds least_work and cache_aware with reported cached tokens to the time to first token of the
// same strategies with a view of the caches: within a tenth, and a little for the rounding of other processors.
func TestEvictionBudget(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("one goroutine, long; make norace runs it")
	}
	for _, c := range evictions.Scenes() {
		if !strings.HasPrefix(c.Name, "capacity") {
			continue
		}
		for _, p := range textPolicies()[:2] {
			got, err := p.played(c.Scene, 3, evictions.Usage)
			if err != nil {
				t.Fatal(err)
			}
			best, err := p.played(c.Scene, 3, evictions.Caches)
			if err != nil {
				t.Fatal(err)
			}
			if got.TTFT > 1.15*best.TTFT {
				t.Errorf("%s, %s: %.0f ms to the first token, with a view of the caches %.0f", c.Name, p.name,
					got.TTFT, best.TTFT)
			}
		}
	}
}
