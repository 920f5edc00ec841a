package vllmtest

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestDialects(t *testing.T) {
	// running, waiting and the cache's use, as each dialect calls them.
	for d, names := range map[Dialect][3]string{
		VLLM: {`vllm:num_requests_running\{.*\}`, `vllm:num_requests_waiting\{.*\}`, `vllm:kv_cache_usage_perc\{.*\}`},
		VLLM06: {`vllm:num_requests_running\{model_name="m"\}`, `vllm:num_requests_waiting\{model_name="m"\}`,
			`vllm:gpu_cache_usage_perc\{.*\}`},
		SGLang: {`sglang:num_running_reqs\{.*tp_rank="0"\}`, `sglang:num_queue_reqs\{.*\}`, `sglang:token_usage\{.*\}`},
		TensorRT: {`trtllm_num_requests_running\{.*\}`, `trtllm_num_requests_waiting\{.*\}`,
			`trtllm_kv_cache_utilization\{.*\}`},
		Triton: {`nv_trt_llm_request_metrics\{request_type="scheduled".*\}`,
			`nv_trt_llm_request_metrics\{request_type="waiting".*\}`,
			`nv_trt_llm_kv_cache_block_metrics\{kv_cache_block_type="fraction".*\}`},
		TGI:      {`tgi_batch_current_size`, `tgi_queue_size`, ``},
		LlamaCpp: {`llamacpp:requests_processing`, `llamacpp:requests_deferred`, `llamacpp:kv_cache_usage_ratio`},
	} {
		cfg, err := Config{Model: "m", Dialect: d, Blocks: 100, MaxModelLen: 100}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		page := string(metricsPage(&cfg, []snapshot{{counters: newCounters(time.Unix(1.7e9, 0)), running: 3, waiting: 2,
			blocksUsed: 25}}))
		for i, want := range []string{`3(\.0)?`, `2(\.0)?`, `0\.25`} {
			if names[i] != "" && !regexp.MustCompile(`(?m)^`+names[i]+` `+want+`$`).MatchString(page) {
				t.Errorf("%s: no %s of %s in\n%s", d, names[i], want, page)
			}
		}
	}
	if _, err := New(Config{Dialect: "klingon"}); err == nil || !strings.Contains(err.Error(), "Dialect") {
		t.Error(err)
	}
}

func TestMetricsFaults(t *testing.T) {
	s := NewServer(Config{Dialect: TensorRT})
	defer s.Close()
	get := func(url string, limit time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for url, want := range map[string]string{s.MetricsURL(): "trtllm_num_requests_running",
		s.URL + "/metrics": `"numActiveRequests":0`} {
		if page, err := get(url, 30*time.Second); err != nil || !strings.Contains(page, want) {
			t.Errorf("%s: %v, %s", url, err, page)
		}
	}
	if err := s.SetFaults(Faults{HangMetrics: true, Status: 500, Next: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := get(s.MetricsURL(), 300*time.Millisecond); err == nil {
		t.Error("it did not hang")
	}
	if page, err := get(s.URL+"/health", 30*time.Second); err != nil || page != "" {
		t.Errorf("/health: %v, %s", err, page)
	}
	if err := s.SetFaults(Faults{GarbageMetrics: true}); err != nil {
		t.Fatal(err)
	}
	if page, err := get(s.MetricsURL(), 30*time.Second); err != nil || !strings.Contains(page, "NaN NaN") {
		t.Errorf("garbage: %v, %s", err, page)
	}
}
