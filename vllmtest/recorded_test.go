package vllmtest

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// liveData returns the path of a recording of a real engine, of the folder from
// which those in testdata were cut if it is there. It skips the test if there is
// neither.
func liveData(t *testing.T, name string) string {
	t.Helper()
	full := filepath.Join("..", "..", "shared", "data", "vllm_live", name)
	for _, p := range []string{full, filepath.Join("..", "kvindex", "testdata", "recorded", "vllm_live", name)} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skipf("no recording %s, and none that was cut from it", full)
	return ""
}

// drain runs c until nothing is left to do.
func drain(c *scheduler) {
	for {
		st := c.schedule(time.Now())
		if len(st.work) == 0 {
			return
		}
		c.complete(st, time.Now())
	}
}

// What real engines reported as cached, request by request, is what the block
// pool and the scheduler say for the same token ids and the same size of cache:
// the hit rule, what a reply leaves behind, second copies, the order of eviction,
// scopes.
func TestCachedTokensAsRecorded(t *testing.T) {
	type engine struct{ blocks, blockSize, budget int }
	large16, large32 := engine{199, 16, 8192}, engine{199, 32, 8192} // one block is the engine's own
	small16, small32 := engine{60, 16, 256}, engine{60, 32, 256}
	for name, e := range map[string]engine{
		"v0.10.2/multi_turn_tokens":         {60, 16, 8192},
		"v0.10.2/cache_salt":                {60, 16, 8192},
		"v0.10.2/eviction":                  small16,
		"v0.16.0/multi_turn_tokens":         large16,
		"v0.16.0/multi_turn_chat":           large16,
		"v0.16.0/cache_salt":                large16,
		"v0.16.0/duplicate_copies":          small16,
		"v0.23.0/multi_turn_tokens":         large16,
		"v0.23.0/cache_salt":                large16,
		"v0.23.0/eviction":                  small16,
		"v0.23.0/lora":                      {109, 16, 8192},
		"v0.25.1/multi_turn_chat":           large16,
		"v0.25.1/cache_salt":                large16,
		"v0.25.1/duplicate_copies":          small16,
		"v0.32.0/multi_turn_tokens":         large32,
		"v0.32.0/multi_turn_chat":           large32,
		"v0.32.0/eviction":                  large32,
		"v0.32.0/lora":                      large32,
		"v0.32.0/duplicate_copies":          small32,
		"v0.32.0/sha256_cbor_default_topic": small32,
		"v0.32.0/bytes_hashes":              {40, 32, 2048},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(liveData(t, name+".requests.jsonl"))
			if err != nil {
				t.Skipf("no recording: %v", err)
			}
			defer f.Close()
			cfg, err := Config{Blocks: e.blocks, BlockSize: e.blockSize, MaxStepTokens: e.budget, MaxSeqs: 8}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			m := newCounters(time.Now())
			old := name < "v0.25"
			c := &scheduler{cfg: &cfg, pool: newPool(cfg.Blocks), m: &m}
			c.pool.unkeyedLast = old
			sc := bufio.NewScanner(f)
			sc.Buffer(nil, 16<<20)
			requests, hits := 0, 0
			for sc.Scan() {
				if len(sc.Bytes()) == 0 {
					continue
				}
				var r struct {
					Kind, ID string
					Body     json.RawMessage
					Prompt   []uint32 `json:"prompt_token_ids"`
					Output   []uint32 `json:"output_token_ids"`
					Cached   *int     `json:"cached_tokens"`
				}
				if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
					t.Fatal(err)
				}
				switch r.Kind {
				case "reset_prefix_cache":
					evicted := c.pool.evicted
					c.pool = newPool(cfg.Blocks)
					c.pool.unkeyedLast, c.pool.evicted = old, evicted
				case "request":
					var b struct {
						Model string
						Salt  string `json:"cache_salt"`
					}
					if err := json.Unmarshal(r.Body, &b); err != nil {
						t.Fatal(err)
					}
					adapter := ""
					if strings.HasPrefix(b.Model, "adapter") {
						adapter = b.Model
					}
					s := newSeq(rootKey(adapter, b.Salt), r.Prompt, len(r.Output), cfg.BlockSize,
						func(i int) uint32 { return r.Output[i] })
					if err := c.submit(s, time.Now()); err != nil {
						t.Fatal(err)
					}
					drain(c)
					want := 0
					if r.Cached != nil {
						want = *r.Cached
					}
					if s.state != seqFinished || s.cached != want {
						t.Errorf("%s: %d of %d tokens cached, the engine said %d", r.ID, s.cached, len(r.Prompt), want)
					}
					requests++
					if want > 0 {
						hits++
					}
				}
			}
			if err := sc.Err(); err != nil {
				t.Fatal(err)
			}
			if requests == 0 {
				t.Fatal("no requests in the recording")
			}
			// The engine announces each eviction, on a channel of its own.
			events, err := os.ReadFile(liveData(t, name+".events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			removed := 0
			for l := range strings.Lines(string(events)) {
				if strings.Contains(l, `"channel":"live"`) {
					removed += strings.Count(l, hex.EncodeToString([]byte("BlockRemoved")))
				}
			}
			if removed != int(c.pool.evicted) {
				t.Errorf("%d blocks evicted, the engine announced %d", c.pool.evicted, removed)
			}
			t.Logf("%d requests, %d with hits, %d blocks evicted", requests, hits, c.pool.evicted)
		})
	}
}

// Every series of the metrics page has the name, the kind and the labels that a
// real page has.
func TestMetricsPageAsRecorded(t *testing.T) {
	real, err := os.ReadFile(liveData(t, "v0.32.0/metrics_load.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Config{Model: "tiny-llama"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want, got := seriesOf(string(real)), seriesOf(string(metricsPage(&cfg,
		[]snapshot{{counters: newCounters(time.Now())}})))
	if len(got) < 60 {
		t.Fatalf("only %d series", len(got))
	}
	for s := range got {
		switch {
		case strings.HasPrefix(s, "vllm:cache_config_info{"), strings.Contains(s, `vllm:request_prompt_tokens_bucket`),
			strings.Contains(s, "vllm:request_generation_tokens_bucket"):
			// Their labels depend on the engine's configuration.
		case !want[s]:
			t.Errorf("a real page has no %s", s)
		}
	}
	for _, s := range []string{
		`vllm:num_requests_running{engine="0",model_name="tiny-llama"}`,
		`vllm:num_requests_waiting{engine="0",model_name="tiny-llama"}`,
		`vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny-llama",reason="capacity"}`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="tiny-llama"}`,
		`vllm:prefix_cache_queries_total{engine="0",model_name="tiny-llama"}`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="tiny-llama"}`,
		`vllm:prefix_cache_hits_created{engine="0",model_name="tiny-llama"}`,
		`vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="tiny-llama"}`,
		`# TYPE vllm:num_requests_running gauge`,
	} {
		if !want[s] || !got[s] {
			t.Errorf("%s: on the real page %v, on ours %v", s, want[s], got[s])
		}
	}
}

// seriesOf returns the series of a page, labels in alphabetical order, and its TYPE
// lines.
func seriesOf(page string) map[string]bool {
	set := make(map[string]bool)
	for l := range strings.Lines(page) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "# TYPE ") {
			set[l] = true
			continue
		}
		if strings.HasPrefix(l, "#") || l == "" {
			continue
		}
		set[l[:strings.LastIndexByte(l, ' ')]] = true
	}
	return set
}
