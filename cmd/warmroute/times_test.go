package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// page returns the lines of the gateway's page.
func (g *rig) page(t *testing.T) string {
	t.Helper()
	resp, err := g.http.Get(g.url + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return readAll(t, resp.Body)
}

// TestTimes: the times of requests are on the page and 0 before the first request, warm and cold, and count
// streamed and whole replies; only the streamed ones have a speed.
func TestTimes(t *testing.T) {
	var urls []string
	for range 2 {
		s := vllmtest.NewServer(vllmtest.Config{Model: "m", TimeScale: 0.01, ReplyTokens: 20})
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	g := newRig(t, rigConfig{strategy: "cache_aware"}, urls...)
	has := func(lines ...string) {
		t.Helper()
		page := g.page(t)
		for _, line := range lines {
			if !strings.Contains(page, line+"\n") {
				t.Errorf("no %s in\n%s", line, page)
			}
		}
	}
	const of = `route="*",strategy="cache_aware"`
	first := func(reason string, n int) string {
		return fmt.Sprintf(`warmroute_time_to_first_token_seconds_count{reason=%q,%s} %d`, reason, of, n)
	}
	lines := []string{first("warm", 0), first("cold", 0), first("spill", 0),
		`warmroute_request_duration_seconds_count{` + of + `} 0`, `warmroute_output_tokens_per_second_count{` + of + `} 0`,
		`warmroute_output_tokens_total{` + of + `} 0`,
		`warmroute_attempts_total{code="5xx",outcome="failed",` + of + `} 0`}
	for _, state := range []string{"ready", "unhealthy", "cooling", "tripped", "draining", "full", "asleep"} {
		for _, u := range urls {
			lines = append(lines, fmt.Sprintf(`warmroute_target_state_changes_total{fleet="default",state=%q,target=%q} 0`, state, u))
		}
	}
	has(lines...)
	text := strings.Repeat("the same words again ", 100)
	for i, stream := range []bool{true, true, false} {
		body := fmt.Sprintf(`{"model":"m","stream":%v,"stream_options":{"include_usage":true},`+
			`"messages":[{"role":"user","content":"%s %d"}]}`, stream, text, i)
		if !stream {
			body = strings.Replace(body, `"stream_options":{"include_usage":true},`, "", 1)
		}
		resp := g.post(t, "/v1/chat/completions", body)
		if b := readAll(t, resp.Body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %s", resp.StatusCode, b)
		}
		resp.Body.Close()
		g.settled(t)
	}
	has(first("warm", 2), first("cold", 1), `warmroute_request_duration_seconds_count{`+of+`} 3`,
		`warmroute_output_tokens_per_second_count{`+of+`} 2`, `warmroute_output_tokens_total{`+of+`} 60`)
}
