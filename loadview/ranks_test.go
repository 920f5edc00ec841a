package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/internal/shareddata"
	"github.com/warmroute/router/vllmtest"
)

// What recorded pages of several ranks say of each, and what together.
func TestPagesOfRanks(t *testing.T) {
	dir := shareddata.Path(t, ".")
	e := func(d Dialect, running, waiting int, usage float64) Engine {
		return Engine{Dialect: d, Running: running, Waiting: waiting, KVUsage: usage, KVUsageMean: usage}
	}
	for _, c := range []struct {
		file string
		from string // what is changed in the page, as recorded it is idle
		to   string
		rank string
		want Engine
	}{
		{"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt", "", "", "0", e(SGLang, 3, 2, 0.31)},
		{"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt", "", "", "1", e(SGLang, 6, 4, 0.62)},
		{"sglang_live/metrics_sglang-0.5.23_dpattn2.txt", "", "", "0", e(SGLang, 3, 2, 0.31)},
		{"sglang_live/metrics_sglang-0.5.23_dpattn2.txt", "", "", "1", e(SGLang, 6, 4, 0.62)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", "", "", "0", e(VLLM, 0, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_running{engine="1",model_name="tiny-llama"} 0.0`, `num_requests_running{engine="1",model_name="tiny-llama"} 7`, "0", e(VLLM, 0, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_running{engine="1",model_name="tiny-llama"} 0.0`, `num_requests_running{engine="1",model_name="tiny-llama"} 7`, "1", e(VLLM, 7, 0, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `num_requests_waiting{engine="0",model_name="tiny-llama"} 0.0`, `num_requests_waiting{engine="0",model_name="tiny-llama"} 9`, "0", e(VLLM, 0, 9, 0)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `kv_cache_usage_perc{engine="1",model_name="tiny-llama"} 0.0`, `kv_cache_usage_perc{engine="1",model_name="tiny-llama"} 0.5`, "1", e(VLLM, 0, 0, 0.5)},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `{engine="1",model_name="tiny-llama",sleep_state="awake"} 1.0`, `{engine="1",model_name="tiny-llama",sleep_state="awake"} 0`, "1", Engine{Dialect: VLLM, Asleep: true}},
		{"vllm_live/v0.32.0/metrics_dp2.txt", `{engine="1",model_name="tiny-llama",sleep_state="awake"} 1.0`, `{engine="1",model_name="tiny-llama",sleep_state="awake"} 0`, "0", Engine{Dialect: VLLM}},
	} {
		s := read(t, filepath.Join(dir, filepath.FromSlash(c.file)))
		if !strings.Contains(s, c.from) {
			t.Fatalf("%s has no %s", c.file, c.from)
		}
		p, err := parseRank(strings.Replace(s, c.from, c.to, 1), c.rank)
		if err != nil {
			t.Errorf("%s, rank %s: %v", c.file, c.rank, err)
			continue
		}
		wantEngine(t, fmt.Sprintf("%s, rank %s, %s", c.file, c.rank, c.to), c.want, p.Engine)
		if p.count < 0 {
			t.Errorf("%s, rank %s: there is no counter to tell a restart by", c.file, c.rank)
		}
		for _, none := range []string{"2", "00", "x"} {
			if p, err := parseRank(s, none); !errors.Is(err, errNoRank) || p.Dialect != noDialect {
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
		wantEngine(t, name, all.Engine, zero.Engine)
		if _, err := parseRank(s, "1"); !errors.Is(err, errNoRank) {
			t.Errorf("%s, rank 1: %v", name, err)
		}
	}
	// The load of one rank alone, and a sum that names none.
	s := "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"0\"} 2\nvllm:num_requests_swapped 5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
	if p, err := parseRank(s, "0"); err != nil || p.Running != 1 || p.Waiting != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := parseRank(s, "1"); !errors.Is(err, errNoLoad) || p.KVUsage != 0.5 {
		t.Errorf("%+v, %v", p, err)
	}
}

// The sum over the ranks is what the page says without one.
func TestRanksAddUp(t *testing.T) {
	for _, d := range []vllmtest.Dialect{vllmtest.VLLM, vllmtest.SGLang} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			const ranks = 3
			s := vllmtest.NewServer(vllmtest.Config{Dialect: d, Ranks: ranks, MaxSeqs: 2})
			defer s.Close()
			v := newView(t, fast(), 0)
			ms := []Member{{ID: "all", Metrics: s.MetricsURL()}}
			for i := range ranks {
				ms = append(ms, Member{ID: fmt.Sprint(i), Metrics: s.MetricsURL(), Rank: fmt.Sprint(i)})
			}
			ms = append(ms, Member{ID: "none", Metrics: s.MetricsURL(), Rank: "3"})
			set(t, v, ms...)
			run(t, v)

			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			load := []int{5, 0, 2} // of others
			for rank, n := range load {
				for range n {
					wg.Go(func() {
						req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions",
							strings.NewReader(`{"prompt":"hello","max_tokens":100000,"ignore_eos":true}`))
						if err != nil {
							t.Error(err)
							return
						}
						req.Header.Set("X-Data-Parallel-Rank", fmt.Sprint(rank))
						if resp, err := s.Client().Do(req); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
			}
			own := send(t, v, "0") // one of the five is ours
			defer own.Done(ok)
			eventually(t, "each rank has its own queue", func() bool {
				return queued(t, v, "0") == 4 && queued(t, v, "1") == 0 && queued(t, v, "2") == 2 && queued(t, v, "all") == 7
			})
			eventually(t, "two run and three wait", func() bool {
				e, _ := v.Engine("0")
				return e.Running == 2 && e.Waiting == 3 && e.KVUsage > 0
			})
			if e, _ := v.Engine("1"); e.KVUsage != 0 || e.Running != 0 {
				t.Errorf("%+v", e)
			}
			if st := status(t, v, "none"); st.QueuedKnown || !errors.Is(st.ScrapeError, errNoRank) {
				t.Errorf("a rank that there is not: %+v", st)
			}
		})
	}
}

// One page is read once a round, however many members are on it, and a restart is
// told to each of them.
func TestOneScrapeForAllRanks(t *testing.T) {
	e := newEngine(t)
	var start, answers atomic.Int64
	start.Store(1000)
	e.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		answer := answers.Add(1)
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\n", start.Load())
		for i := range 4 {
			_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\"} %d\nvllm:num_requests_waiting{engine=\"%d\"} %d\n", i, i+1, i, answer)
		}
		return true
	})
	cfg := fast()
	var mu sync.Mutex
	forgot := map[string]int{}
	cfg.Trace.Forget = func(id string) {
		mu.Lock()
		defer mu.Unlock()
		forgot[id]++
	}
	v := newView(t, cfg, 0)
	var ms []Member
	for i := range 4 {
		ms = append(ms, Member{ID: fmt.Sprint(i), Metrics: e.URL, Rank: fmt.Sprint(i)})
	}
	set(t, v, ms[:2]...)
	run(t, v)
	known := func(n int) func() bool {
		return func() bool {
			for i := range n {
				if e, ok := v.Engine(fmt.Sprint(i)); !ok || e.Running != i+1 || !status(t, v, fmt.Sprint(i)).QueuedKnown {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "two are read", known(2))
	set(t, v, ms...) // two join the page
	eventually(t, "four are read", known(4))
	// Each answer has a number of its own, so members that have the same were
	// served by one.
	eventually(t, "all are served by one answer", func() bool {
		served := map[int]bool{}
		for i := range 4 {
			e, _ := v.Engine(fmt.Sprint(i))
			served[e.Waiting] = true
		}
		return len(served) == 1
	})

	start.Store(2000)
	eventually(t, "each is told of the restart", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return cmp.Equal(forgot, map[string]int{"0": 1, "1": 1, "2": 1, "3": 1})
	})
	e.scraped(t)
	mu.Lock()
	if diff := cmp.Diff(map[string]int{"0": 1, "1": 1, "2": 1, "3": 1}, forgot); diff != "" {
		t.Error(diff)
	}
	mu.Unlock()

	// One leaves, another's rank changes, a third's header is another: it is read apart.
	ms[1].Rank = "3"
	ms[2].Header = http.Header{"Authorization": {"Bearer x"}}
	set(t, v, ms[:3]...)
	eventually(t, "the new rank is read", func() bool { e, _ := v.Engine("1"); return e.Running == 4 })
	n, page := e.scrapes.Load(), v.members[2].page.Load()
	eventually(t, "both pages are read", func() bool { return e.scrapes.Load() > n+2 && v.members[2].page.Load() != page })
	if key := v.members[0].source.pageKey(); key == v.members[2].source.pageKey() || key != v.members[1].source.pageKey() {
		t.Error("the members are not on the pages that they should be on")
	}
}

// A rank's counter that went back after a time away is a restart of that rank.
func TestRestartOfARank(t *testing.T) {
	var forgot []string
	v := newView(t, Config{Trace: Trace{Forget: func(id string) { forgot = append(forgot, id) }}}, 0)
	set(t, v, Member{ID: "a", Metrics: "http://x/m", Rank: "0"}, Member{ID: "b", Metrics: "http://x/m", Rank: "1"})
	look := func(a, b int, failed bool) {
		t.Helper()
		text := ""
		for i, n := range []int{a, b} {
			text += fmt.Sprintf("vllm:num_requests_running{engine=\"%d\"} 0\nvllm:num_requests_waiting{engine=\"%d\"} 0\nvllm:prompt_tokens_total{engine=\"%d\"} %d\n", i, i, i, n)
		}
		for i, m := range v.members {
			if failed {
				v.report(m.source, page{}, errLook)
				continue
			}
			p, err := parseRank(text, fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			if restarted, _ := v.report(m.source, p, nil); restarted {
				v.Forget(m.id)
			}
		}
	}
	look(10, 20, false)
	look(0, 0, true)
	look(10, 3, false)
	if diff := cmp.Diff([]string{"b"}, forgot); diff != "" {
		t.Error(diff)
	}
}
