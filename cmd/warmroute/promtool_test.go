//go:build promtool

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPromtool: Prometheus' own tool has nothing against the gateway's page, before the first request and after one.
// It needs promtool on PATH: make metrics.
func TestPromtool(t *testing.T) {
	g := newRig(t, rigConfig{strategy: "least_work"}, "http://127.0.0.1:1")
	for range 2 {
		check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		check.Stdin = strings.NewReader(g.page(t))
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
		g.post(t, "/v1/chat/completions", chatBody).Body.Close()
	}
}
