package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// originalDst is the cluster that the README shows.
func originalDst(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```yaml\n  - name: replicas\n")
	block, _, ok2 := strings.Cut(block, "```")
	if !ok || !ok2 {
		t.Fatal("the README shows no cluster")
	}
	config, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, was, ok := strings.Cut(string(config), "  - name: replicas\n")
	was, _, ok2 = strings.Cut(was, "  - name: warmroute\n")
	if !ok || !ok2 {
		t.Fatal("envoy.yaml has no clusters replicas and warmroute")
	}
	return []string{was, block}
}

func TestEnvoyOriginalDst(t *testing.T) {
	rs, ids := replicas(t, 4, quick())
	s := serve(t, Config{Endpoints: 1, MaxLoad: 1, RetryAfter: 1500 * time.Millisecond}, patience, ids...)
	c := envoy(t, s.addr, ids, originalDst(t)...)
	for range 4 {
		if stayed, later := conversations(t, c, s, 1, 4); stayed != later {
			t.Errorf("%d of %d later turns stayed", stayed, later)
		}
	}
	t.Run("all are full", func(t *testing.T) {
		for _, r := range rs {
			if err := r.SetFaults(vllmtest.Faults{Hang: true}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for i := range rs {
			wg.Go(func() { chat(ctx, c, ask(false, 1, user(fmt.Sprint(i))), nil, nil) })
		}
		eventually(t, "one request at each", func() bool {
			n := 0
			for _, st := range s.view.Snapshot() {
				n += st.Target.Load.InFlight
			}
			return n == len(rs)
		})
		status, h, body, err := chat(t.Context(), c, ask(false, 1, user("one more")), nil, nil)
		if status != http.StatusTooManyRequests || h.Get("Retry-After") != "2" || !strings.Contains(body, `"error"`) {
			t.Errorf("status %d, Retry-After %q, %v: %s", status, h.Get("Retry-After"), err, body)
		}
		cancel()
		wg.Wait()
		s.idle(t)
	})
	t.Run("none is ready", func(t *testing.T) {
		for _, id := range ids {
			if err := s.view.SetUnhealthy(id, true); err != nil {
				t.Fatal(err)
			}
		}
		status, _, body, err := chat(t.Context(), c, ask(false, 1, user("anybody?")), nil, nil)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "router_error") {
			t.Errorf("status %d, %v: %s", status, err, body)
		}
		s.idle(t)
	})
}

// A data plane of the Gateway API streams both bodies through the processor and
// names a subset.
func TestEnvoyFullDuplex(t *testing.T) {
	rs, ids := replicas(t, 4, quick())
	s := serve(t, Config{}, patience, ids...)
	c := envoy(t, s.addr, ids,
		"request_body_mode: BUFFERED", "request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND",
		"response_body_mode: STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED",
		"failure_mode_allow: true", "failure_mode_allow: false",
		"          - name: envoy.filters.http.ext_proc\n", fmt.Sprintf(`          - name: envoy.filters.http.set_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{ metadata_namespace: envoy.lb.subset_hint, value: { x-gateway-destination-endpoint-subset: [%q, %q] } }]
          - name: envoy.filters.http.ext_proc
`, ids[1], ids[3]))
	if stayed, later := conversations(t, c, s, 4, 4); stayed*10 < later*9 {
		t.Errorf("%d of %d later turns stayed", stayed, later)
	}
	long := strings.Repeat("A long document. ", 20000)
	status, _, body, err := chat(t.Context(), c, ask(false, 5, user(long)), nil, nil)
	if status != 200 || err != nil {
		t.Errorf("a long body: status %d, %v: %.200s", status, err, body)
	}
	s.idle(t)
	if done := s.take(); len(done) != 1 || !strings.Contains(done[0].Prompt.Text, long) || done[0].PromptTokens == 0 {
		t.Errorf("of a long body, %d requests ended", len(done))
	}
	for i, r := range rs {
		if n := r.Stats().Requests; (n > 0) != (i == 1 || i == 3) {
			t.Errorf("replica %d of 4 had %d requests, although the subset is the second and the fourth", i+1, n)
		}
	}
}

// Without a processor Envoy goes on, as failure_mode_allow has it.
func TestEnvoyOutlivesProcessor(t *testing.T) {
	_, ids := replicas(t, 4, quick())
	s := serve(t, Config{}, time.Millisecond, ids...)
	c := envoy(t, s.addr, ids)
	stopped := make(chan struct{})
	status, _, body, err := chat(t.Context(), c, ask(true, 400, user("Go on.")), nil, func() {
		go func() { defer close(stopped); s.stop() }()
	})
	<-stopped
	if status != 200 || err != nil {
		t.Errorf("a stream under way: status %d, %v", status, err)
	}
	content(t, body)
	s.idle(t)
	if status, _, body, err := chat(t.Context(), c, ask(false, 5, user("Hello?")), nil, nil); status != 200 || err != nil {
		t.Errorf("a new request: status %d, %v: %s", status, err, body)
	}
}

// The added latency is logged; it is for people to judge.
func TestEnvoyLatency(t *testing.T) {
	_, ids := replicas(t, 4, vllmtest.Config{Instant: true, ReplyTokens: 20})
	s := serve(t, Config{}, patience, ids...)
	with := envoy(t, s.addr, ids)
	config, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, filter, _ := strings.Cut(string(config), "          - name: envoy.filters.http.ext_proc\n")
	filter, _, _ = strings.Cut(filter, "          - name: envoy.filters.http.router\n")
	without := envoy(t, s.addr, ids, "          - name: envoy.filters.http.ext_proc\n"+filter, "")
	var took [2][]time.Duration
	body := ask(true, 20, user(strings.Repeat("A prompt of some four thousand bytes. ", 105)))
	for range 300 {
		for i, c := range []*http.Client{with, without} {
			start := time.Now()
			if status, _, _, err := chat(t.Context(), c, body, nil, nil); status != 200 || err != nil {
				t.Fatalf("status %d, %v", status, err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	s.idle(t)
	for i := range took {
		slices.Sort(took[i])
	}
	a, b := took[0][150], took[1][150]
	t.Logf("p50 at one client: %v with the processor, %v without (round robin): %v added", a, b, a-b)
}
