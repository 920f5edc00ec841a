package loadview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/loadview/enginepage"
	"github.com/warmroute/router/vllmtest"
)

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
			if st := status(t, v, "none"); st.QueuedKnown || !errors.Is(st.ScrapeError, enginepage.ErrNoRank) {
				t.Errorf("a rank that there is not: %+v", st)
			}
		})
	}
}

// One page is read once a round, however many members are on it, and a restart is
// reported to each of them.
func TestOneScrapeForAllRanks(t *testing.T) {
	e := newEngine(t)
	var start, answers atomic.Int64
	start.Store(1000)
	e.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		answer := answers.Add(1)
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\n", start.Load())
		for i := range 4 {
			_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\"} %d\nvllm:num_requests_waiting{engine=\"%d\"} %d\n",
				i, i+1, i, answer)
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
			text += fmt.Sprintf("vllm:num_requests_running{engine=\"%d\"} 0\nvllm:num_requests_waiting{engine=\"%d\"} "+
				"0\nvllm:prompt_tokens_total{engine=\"%d\"} %d\n", i, i, i, n)
		}
		for i, m := range v.members {
			if failed {
				v.report(m.source, page{}, errLook)
				continue
			}
			p, err := new(enginepage.Reader).Read(strings.NewReader(text), v.dialects, DefaultMaxBody)
			if err != nil {
				t.Fatal(err)
			}
			st, err := p.State(fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			if restarted, _ := v.report(m.source, page{State: st}, nil); restarted {
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
