package vllmtest

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router/kvindex"
)

// askRank sends a prompt to a rank, by a header where that is not "-", and returns
// the status and how many tokens were cached.
func askRank(t *testing.T, s *Server, header, prompt string) (status, cached int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/completions",
		strings.NewReader(`{"prompt":"`+prompt+`","max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if header != "-" {
		req.Header.Set("X-Data-Parallel-Rank", header)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, r.Usage.Details.Cached
}

func TestRankHeader(t *testing.T) {
	s := NewServer(Config{Ranks: 3, TimeScale: 1e-6})
	defer s.Close()
	prompt := strings.Repeat("the same long prompt for all ranks ", 20)
	for _, rank := range []string{"0", "2", " 1 "} {
		if _, cached := askRank(t, s, rank, prompt); cached != 0 {
			t.Errorf("rank %s had cached %d tokens of a prompt that only the others had seen", rank, cached)
		}
		if _, cached := askRank(t, s, rank, prompt); cached == 0 {
			t.Errorf("rank %s has not cached its own prompt", rank)
		}
	}
	for i := range 3 {
		if st := s.RankStats(i); st.PromptTokens == 0 || st.BlocksCached == 0 || st.BlocksCached*3 != s.Stats().BlocksCached {
			t.Errorf("rank %d: %+v", i, st)
		}
	}
	for _, bad := range []string{"3", "-1", "99999999999999999999"} {
		if status, _ := askRank(t, s, bad, prompt); status != http.StatusBadRequest {
			t.Errorf("rank %s: status %d", bad, status)
		}
	}
	if st := s.Stats(); st.Requests != 9 || st.Finished != 6 || st.Failed != 3 {
		t.Errorf("%+v", st)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.BlocksCached != 0 || st.CachedTokens == 0 {
		t.Errorf("after a restart: %+v", st)
	}
}

// Without a header, and with one that is no number, idle ranks take turns and a
// loaded one is left alone.
func TestRanksAreBalanced(t *testing.T) {
	s := NewServer(Config{Ranks: 2})
	defer s.Close()
	for i := range 4 {
		header := []string{"-", "", "one", "0x1"}[i]
		if status, _ := askRank(t, s, header, "hello"); status != http.StatusOK {
			t.Fatalf("header %q: status %d", header, status)
		}
	}
	if a, b := s.RankStats(0).PromptTokens, s.RankStats(1).PromptTokens; a != b || a == 0 {
		t.Errorf("idle ranks got %d and %d prompt tokens", a, b)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/completions",
		strings.NewReader(`{"prompt":"long","stream":true,"max_tokens":100000,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Data-Parallel-Rank", "0")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil { // it runs
		t.Fatal(err)
	}
	before := s.RankStats(0).PromptTokens
	for range 4 {
		askRank(t, s, "-", "hello")
	}
	if got := s.RankStats(0).PromptTokens; got != before {
		t.Errorf("the rank that is busy got %d prompt tokens more", got-before)
	}
}

// Each rank publishes on its own port with its own sequence, its batches name it,
// and their events are of its own cache.
func TestRankEvents(t *testing.T) {
	const ranks = 3
	s := NewServer(Config{Ranks: ranks, TimeScale: 1e-6, Events: &Events{Rank: 8}})
	defer s.Close()
	port := func(endpoint string) int {
		n, err := strconv.Atoi(endpoint[strings.LastIndexByte(endpoint, ':')+1:])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ranks {
		p := s.RankEvents(i)
		if got, want := port(p.Endpoint()), port(s.Events().Endpoint())+i; got != want {
			t.Errorf("rank %d publishes on port %d, not %d", i, got, want)
		}
		if got, want := port(p.ReplayEndpoint()), port(s.Events().ReplayEndpoint())+i; got != want {
			t.Errorf("rank %d replays on port %d, not %d", i, got, want)
		}
		for range i + 1 {
			askRank(t, s, strconv.Itoa(i), strings.Repeat("x", 100+200*int(p.Next())))
		}
		if p.Next() != uint64(i+1) {
			t.Errorf("rank %d has published %d batches of %d requests", i, p.Next(), i+1)
		}
		for _, b := range p.buffer {
			batch, err := kvindex.Decode(b.payload)
			if err != nil || batch.Rank != 8+i {
				t.Fatalf("rank %d: %v, rank %d", i, err, batch.Rank)
			}
			if err := x.Apply(strconv.Itoa(i), b.seq, batch); err != nil {
				t.Fatal(err)
			}
		}
		st, _ := x.Target(strconv.Itoa(i))
		if st.Blocks != s.RankStats(i).BlocksCached || st.Blocks == 0 {
			t.Errorf("rank %d told of %d blocks of %d", i, st.Blocks, s.RankStats(i).BlocksCached)
		}
	}
	if s.RankEvents(-1) != nil || s.RankEvents(ranks) != nil {
		t.Error("there is a publisher without a rank")
	}
}

func TestSharedEvents(t *testing.T) {
	s := NewServer(Config{Ranks: 2, TimeScale: 1e-6, Events: &Events{Shared: true}})
	defer s.Close()
	if s.RankEvents(1) != s.Events() {
		t.Fatal("each rank has a publisher of its own")
	}
	var got []int
	for _, rank := range []string{"1", "0", "1"} {
		askRank(t, s, rank, strings.Repeat("y", 100+200*len(got)))
		got = append(got, -1)
	}
	got = got[:0]
	for i, b := range s.Events().buffer {
		batch, err := kvindex.Decode(b.payload)
		if err != nil || b.seq != uint64(i) {
			t.Fatalf("%v, seq %d", err, b.seq)
		}
		got = append(got, batch.Rank)
	}
	if diff := cmp.Diff([]int{1, 0, 1}, got); diff != "" {
		t.Error(diff)
	}
	if err := s.Restart(); err != nil || s.Events().Next() != 0 {
		t.Errorf("after a restart the next number is %d: %v", s.Events().Next(), err)
	}
}

// The page of two ranks has the series of a real one, each once.
func TestRankMetricsAsRecorded(t *testing.T) {
	for _, c := range []struct {
		file    string
		dialect Dialect
		model   string
		want    []string
	}{
		{"vllm_live/v0.32.0/metrics_dp2.txt", VLLM, "tiny-llama", []string{
			`vllm:num_requests_running{engine="0",model_name="tiny-llama"}`,
			`vllm:num_requests_waiting{engine="1",model_name="tiny-llama"}`,
			`vllm:kv_cache_usage_perc{engine="1",model_name="tiny-llama"}`,
			`vllm:engine_sleep_state{engine="1",model_name="tiny-llama",sleep_state="awake"}`,
			`vllm:prompt_tokens_total{engine="1",model_name="tiny-llama"}`,
			`vllm:admission_rejections_total{model_name="tiny-llama",reason="max_num_queued_reqs"}`,
			`vllm:time_to_first_token_seconds_bucket{engine="1",le="0.25",model_name="tiny-llama"}`,
		}},
		{"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt", SGLang, "meta-llama/Llama-3.1-8B-Instruct", []string{
			`sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="meta-llama/Llama-3.1-8B-Instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0"}`,
			`sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="meta-llama/Llama-3.1-8B-Instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0"}`,
		}},
	} {
		t.Run(string(c.dialect), func(t *testing.T) {
			file := filepath.Join("..", "..", "shared", "data", filepath.FromSlash(c.file))
			real, err := os.ReadFile(file)
			if err != nil {
				t.Skipf("no recording: %v", err)
			}
			s := NewServer(Config{Ranks: 2, Dialect: c.dialect, Model: c.model, TimeScale: 1e-6})
			defer s.Close()
			askRank(t, s, "1", "hello")
			resp, err := s.Client().Get(s.MetricsURL())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			page, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			want, got := seriesOf(string(real)), seriesOf(string(page))
			for _, s := range c.want {
				if !want[s] || !got[s] {
					t.Errorf("%s: on the real page %v, on ours %v", s, want[s], got[s])
				}
			}
			lines := 0
			for l := range strings.Lines(string(page)) {
				if l[0] != '#' {
					lines++
				}
			}
			series := 0
			for s := range got {
				if s[0] == '#' {
					continue
				}
				series++
				if c.dialect == VLLM && !want[s] && !strings.HasPrefix(s, "vllm:cache_config_info{") && !strings.Contains(s,
					"_tokens_bucket") {
					t.Errorf("a real page has no %s", s)
				}
			}
			if lines != series {
				t.Errorf("%d lines for %d series", lines, series)
			}
		})
	}
}

func TestRanksConfig(t *testing.T) {
	for _, c := range []Config{{Ranks: -1}, {Ranks: 65}, {Ranks: 2, Instant: true}, {Ranks: 2, Dialect: TGI}} {
		if s, err := New(c); err == nil || !strings.Contains(err.Error(), "Ranks") {
			if s != nil {
				s.Close()
			}
			t.Errorf("%+v: %v", c, err)
		}
	}
	// The second rank's port is taken.
	p, err := NewPublisher(Events{NoReplay: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	addr := strings.TrimPrefix(p.Endpoint(), "tcp://")
	i := strings.LastIndexByte(addr, ':')
	port, err := strconv.Atoi(addr[i+1:])
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Ranks: 2, Events: &Events{Addr: addr[:i+1] + strconv.Itoa(port-1), NoReplay: true}})
	if err == nil {
		s.Close()
		t.Error("two sockets on one port")
	} else if !strings.Contains(err.Error(), "listen") {
		t.Error(err)
	}
}
