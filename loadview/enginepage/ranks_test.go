package enginepage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What recorded pages of several ranks say of each, and what together.
func TestPagesOfRanks(t *testing.T) {
	e := func(d string, running, waiting int, usage float64) State {
		return State{Dialect: d, Running: running, Waiting: waiting, KVUsage: usage, KVUsageMean: usage}
	}
	for _, c := range []struct {
		file string
		from string // what is changed in the page, as recorded it is idle
		to   string
		rank string
		want State
	}{
		{"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt", "", "", "0", e(SGLang, 3, 2, 0.31)},
		{"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt", "", "", "1", e(SGLang, 6, 4, 0.62)},
		{"sglang_live/metrics_sglang-0.5.23_dpattn2.txt", "", "", "0", e(SGLang, 3, 2, 0.31)},
		{"sglang_live/metrics_sglang-0.5.23_dpattn2.txt", "", "", "1", e(SGLang, 6, 4, 0.62)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", "", "", "0", e(VLLM, 0, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_running{engine="1",model_name="tiny-llama"} 0.0`,
			`num_requests_running{engine="1",model_name="tiny-llama"} 7`, "0", e(VLLM, 0, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_running{engine="1",model_name="tiny-llama"} 0.0`,
			`num_requests_running{engine="1",model_name="tiny-llama"} 7`, "1", e(VLLM, 7, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_waiting{engine="0",model_name="tiny-llama"} 0.0`,
			`num_requests_waiting{engine="0",model_name="tiny-llama"} 9`, "0", e(VLLM, 0, 9, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `kv_cache_usage_perc{engine="1",model_name="tiny-llama"} 0.0`,
			`kv_cache_usage_perc{engine="1",model_name="tiny-llama"} 0.5`, "1", e(VLLM, 0, 0, 0.5)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `{engine="1",model_name="tiny-llama",sleep_state="awake"} 1.0`,
			`{engine="1",model_name="tiny-llama",sleep_state="awake"} 0`, "1", State{Dialect: VLLM, Asleep: true}},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `{engine="1",model_name="tiny-llama",sleep_state="awake"} 1.0`,
			`{engine="1",model_name="tiny-llama",sleep_state="awake"} 0`, "0", State{Dialect: VLLM}},
	} {
		s := read(t, filepath.Join("testdata/recorded", filepath.FromSlash(c.file)))
		if !strings.Contains(s, c.from) {
			t.Fatalf("%s has no %s", c.file, c.from)
		}
		p, err := parseRank(strings.Replace(s, c.from, c.to, 1), c.rank)
		if err != nil {
			t.Errorf("%s, rank %s: %v", c.file, c.rank, err)
			continue
		}
		wantState(t, fmt.Sprintf("%s, rank %s, %s", c.file, c.rank, c.to), c.want, p)
		if p.Total < 0 {
			t.Errorf("%s, rank %s: there is no counter to tell a restart by", c.file, c.rank)
		}
		for _, none := range []string{"2", "00", "x"} {
			if p, err := parseRank(s, none); !errors.Is(err, ErrNoRank) || p.Dialect != "" {
				t.Errorf("%s, rank %s: %+v, %v", c.file, none, p, err)
			}
		}
	}
}

// A page that knows of no ranks is rank 0's, and nobody else's.
func TestPagesWithoutRanks(t *testing.T) {
	for _, name := range []string{"vllm_v0", "trtllm", "triton", "tgi", "llamacpp"} {
		s := read(t, filepath.Join("testdata", name+".txt"))
		all, err := parse(s)
		if err != nil {
			t.Fatal(err)
		}
		zero, err := parseRank(s, "0")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantState(t, name, all, zero)
		if _, err := parseRank(s, "1"); !errors.Is(err, ErrNoRank) {
			t.Errorf("%s, rank 1: %v", name, err)
		}
	}
	// The load of one rank alone, and a sum that names none.
	s := "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"0\"} " +
		"2\nvllm:num_requests_swapped 5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
	if p, err := parseRank(s, "0"); err != nil || p.Running != 1 || p.Waiting != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := parseRank(s, "1"); !errors.Is(err, ErrNoLoad) || p.KVUsage != 0.5 {
		t.Errorf("%+v, %v", p, err)
	}
}
