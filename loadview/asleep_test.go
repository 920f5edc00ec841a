package loadview

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview/enginepage"
)

// An engine that says that it sleeps, whatever its health page says, takes no
// request, is forgotten once, and is back when it says so.
func TestAsleep(t *testing.T) {
	var asleep [2]atomic.Bool
	var forgot atomic.Int64
	e := newEngine(t)
	e.answer(func(w http.ResponseWriter, r *http.Request) bool {
		for i := range asleep {
			_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\"} 0\nvllm:num_requests_waiting{engine=\"%d\"} 0\n", i,
				i)
			awake := 1
			if asleep[i].Load() {
				awake = 0
			}
			_, _ = fmt.Fprintf(w, "vllm:engine_sleep_state{engine=\"%d\",sleep_state=\"awake\"} %d\n"+
				"vllm:engine_sleep_state{engine=\"%d\",sleep_state=\"discard_all\"} %d\n", i, awake, i, 1-awake)
		}
		return true
	})
	cfg := fast()
	cfg.Trace.Forget = func(string) { forgot.Add(1) }
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: "a", Metrics: e.URL, Health: e.URL, Rank: "0"},
		Member{ID: "b", Metrics: e.URL, Health: e.URL, Rank: "1"})
	run(t, v)
	for round := range 3 {
		asleep[1].Store(true)
		eventually(t, "it is asleep", func() bool { return stateOf(v, "b").Target.State == router.Asleep })
		e.scraped(t)
		r := router.New(pickLeast{}, v, router.Options{FailOpen: true})
		for range 20 {
			l, err := r.Route(t.Context(), router.Prompt{})
			if err != nil || l.Decision().Target.ID != "a" {
				t.Fatalf("%v went to %q", err, l.Decision().Target.ID)
			}
			l.Done(router.Outcome{Status: 200})
		}
		if n := forgot.Load(); n != int64(round+1) {
			t.Errorf("forgotten %d times after falling asleep %d times", n, round+1)
		}
		asleep[1].Store(false)
		eventually(t, "it is awake", func() bool { return stateOf(v, "b").Target.State == router.Ready })
	}
}

// A page that is gone keeps nobody asleep.
func TestAsleepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 0)
		set(t, v, Member{ID: a, Metrics: "http://x/metrics"})
		m := v.members[0]
		sleeping := page{State: enginepage.State{Dialect: "vllm", Asleep: true, Start: -1, Total: -1}}
		if lost, _ := v.report(m.source, sleeping, nil); !lost {
			t.Error("its cache is not forgotten")
		}
		wantStates(t, v, router.Asleep)
		time.Sleep(10 * time.Second)
		v.report(m.source, page{}, io.ErrUnexpectedEOF)
		wantStates(t, v, router.Asleep)
		time.Sleep(5 * time.Second)
		wantStates(t, v, router.Ready)
		if lost, _ := v.report(m.source, sleeping, nil); lost {
			t.Error("it slept all the time")
		}
		wantStates(t, v, router.Asleep)
		set(t, v, Member{ID: a})
		wantStates(t, v, router.Ready)
	})
}

// Servers behind one address, with counters that only grow, count as restarts no
// more often than there are further ones; one that is alone never without a cause,
// and always if its counter is lower than before.
func TestCounters(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		servers := 1 + rng.IntN(5)
		totals := make([]float64, servers)
		for i := range totals {
			totals[i] = float64(rng.IntN(1000))
		}
		h := &history{}
		found := 0
		for range 1000 {
			i := rng.IntN(servers)
			totals[i] += float64(rng.IntN(50))
			if h.restarted(&page{State: enginepage.State{Start: -1, Total: totals[i]}}) {
				found++
			}
		}
		if found > servers-1 {
			t.Errorf("%d servers without a restart: %d found", servers, found)
		}
		if len(h.counters) > maxStarts {
			t.Errorf("%d counters", len(h.counters))
		}
		if servers > 1 {
			continue
		}
		lower := rng.Float64() * totals[0] * 0.9
		if totals[0] > 0 && !h.restarted(&page{State: enginepage.State{Start: -1, Total: lower}}) {
			t.Errorf("from %v to %v: no restart is found", totals[0], lower)
		}
	}
	h := &history{}
	for i := range 1000 {
		h.restarted(&page{State: enginepage.State{Start: -1, Total: float64(1000 - i)}})
		if len(h.counters) > maxStarts {
			t.Fatalf("%d counters", len(h.counters))
		}
	}
}
