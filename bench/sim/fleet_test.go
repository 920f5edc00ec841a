package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/internal/shareddata"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/roundrobin"
)

var (
	cacheAware = Policy{Name: cacheaware.Name, New: func(e Env) (router.Strategy, error) {
		return cacheaware.New(cacheaware.Config{Rand: e.Rand})
	}}
	leastLoad = Policy{Name: leastload.Name, NoText: true, New: func(e Env) (router.Strategy, error) {
		return leastload.New(leastload.Config{Rand: e.Rand})
	}}
	roundRobin = Policy{Name: roundrobin.Name, NoText: true, New: func(Env) (router.Strategy, error) {
		return roundrobin.New(roundrobin.Config{})
	}}
)

// workload builds one of the generators' at a low number of requests.
func workload(t testing.TB, name string, rate float64, n int) *trace.Workload {
	t.Helper()
	for _, s := range trace.Generated() {
		if s.Name == name {
			w, err := s.Build(rate, 1)
			if err != nil {
				t.Fatal(err)
			}
			return &trace.Workload{Name: name, Requests: w.Requests[:min(n, len(w.Requests))]}
		}
	}
	t.Fatalf("no workload %q", name)
	return nil
}

func mustRun(t testing.TB, c Config) *Result {
	t.Helper()
	n := 0
	c.verify = func(e *engine) {
		if n++; n%101 == 0 || c.Calibration.Blocks > 0 && c.Calibration.Blocks < 100 { // small ones every time
			checkEngine(t, e)
		}
	}
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trouble is a config in which everything happens.
func trouble(t testing.TB, p Policy) Config {
	cal, err := CalibrationByName("70b-2xh100-cpu")
	if err != nil {
		t.Fatal(err)
	}
	cal.Blocks, cal.CPUBlocks, cal.Sequences = 64, 128, 16
	return Config{
		Workload: workload(t, "chat", 20, 400), Policy: p, Seed: 3, Replicas: 3, Gateways: 2, Calibration: cal,
		Speeds: []float64{1, 0.5}, Scrape: 2 * time.Second, Requests: true,
		Events: []Event{
			{At: 5 * time.Second, Kind: Slow, Replica: 2, Speed: 0.3},
			{At: 8 * time.Second, Kind: Die, Replica: 0, Down: 6 * time.Second, Tell: true},
			{At: 12 * time.Second, Kind: Join, Speed: 1.5},
			{At: 14 * time.Second, Kind: Die, Replica: 1},
		},
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for _, p := range []Policy{cacheAware, leastLoad} {
		c := trouble(t, p)
		want := mustRun(t, c)
		var wg sync.WaitGroup
		got := make([]*Result, 4)
		for i := range got {
			wg.Go(func() { got[i], _ = Run(context.Background(), c) })
		}
		wg.Wait()
		for _, r := range got {
			if d := cmp.Diff(want, r); d != "" {
				t.Fatalf("%s: a run beside others differs:\n%s", p.Name, d)
			}
		}
		c.single = true
		if d := cmp.Diff(want, mustRun(t, c)); d != "" {
			t.Errorf("%s: one step at a time differs:\n%s", p.Name, d)
		}
		c.single, c.Seed = false, 4
		if other := mustRun(t, c); other.TTFT == want.TTFT {
			t.Errorf("%s: another seed gives the same result", p.Name)
		}
	}
}

func TestNothingIsLost(t *testing.T) {
	w := workload(t, "b2b-saas", 3, 300)
	r := mustRun(t, Config{Workload: w, Policy: roundRobin, Seed: 1, Requests: true})
	prompts, outputs := int64(0), int64(0)
	for _, q := range w.Requests {
		prompts += int64(q.Input)
		outputs += int64(q.Output)
	}
	if r.Finished != 300 || r.PromptTokens != prompts || r.OutputTokens != outputs {
		t.Errorf("%d finished, %d prompt and %d output tokens; want 300, %d, %d", r.Finished, r.PromptTokens, r.OutputTokens,
			prompts, outputs)
	}
	computed, sent := int64(0), 0
	for _, p := range r.PerReplica {
		computed += p.Prefilled
		sent += p.Requests
	}
	if r.Preempted > 0 || computed != prompts-r.CachedTokens {
		t.Errorf("%d tokens computed of %d, of which %d were cached; %d preempted", computed, prompts, r.CachedTokens,
			r.Preempted)
	}
	if sent != 300 || r.MaxMean > 1.02 {
		t.Errorf("%d sent, max/mean %v", sent, r.MaxMean)
	}
	arrived := 0
	for _, s := range r.Timeline {
		arrived += s.Arrived
	}
	if arrived != 300 {
		t.Errorf("%d arrivals in the time line", arrived)
	}
}

func TestIdealBoundsEverything(t *testing.T) {
	for _, s := range trace.Generated() {
		w, err := s.Build(s.Rates[0], 2)
		if err != nil {
			t.Fatal(err)
		}
		// Followers come behind what they follow, so a beginning is complete.
		w = &trace.Workload{Name: s.Name, Requests: w.Requests[:min(len(w.Requests), 600)]}
		r := mustRun(t, Config{Workload: w, Policy: cacheAware, Seed: 1})
		if r.HitShare > r.IdealShare || r.PooledShare > r.IdealShare {
			t.Errorf("%s: hits %v, pooled %v, ideal %v", s.Name, r.HitShare, r.PooledShare, r.IdealShare)
		}
		if s.Name == "none" != (r.IdealShare == 0) {
			t.Errorf("%s: ideal %v", s.Name, r.IdealShare)
		}
	}
	bad := Result{HitShare: 0.5, IdealShare: 0.4}
	if bad.check() == nil {
		t.Error("a hit share above the ideal is no error")
	}
}

// TestOneReplicaIsIdeal: a replica that forgets nothing has what the infinite cache
// has, but for the blocks that were not computed yet when a request was admitted.
func TestOneReplicaIsIdeal(t *testing.T) {
	cal := Calibrations()[0]
	cal.Blocks = 100_000
	cal.BlockSize = 16
	w := workload(t, "chat", 0.5, 200)
	r := mustRun(t, Config{Workload: w, Policy: roundRobin, Replicas: 1, Calibration: cal})
	if r.IdealShare < 0.5 || r.HitShare < r.IdealShare-0.002 {
		t.Errorf("hits %v, ideal %v", r.HitShare, r.IdealShare)
	}
	// What cache_aware believes it has, it has: the text of replies included.
	r8 := mustRun(t, Config{Workload: w, Policy: cacheAware, Calibration: cal})
	if r8.HitShare < r8.IdealShare-0.12 {
		t.Errorf("cache_aware: hits %v, ideal %v", r8.HitShare, r8.IdealShare)
	}
}

func TestDeath(t *testing.T) {
	w := workload(t, "none", 8, 500)
	c := Config{Workload: w, Policy: leastLoad, Seed: 1, Replicas: 4, Events: []Event{
		{At: 10 * time.Second, Kind: Die, Replica: 1, Down: 20 * time.Second, Tell: true},
	}}
	r := mustRun(t, c)
	if r.Lost != 0 || r.Retries == 0 || r.Finished+r.Broken != 500 {
		t.Errorf("%d lost, %d retries, %d finished, %d broken off of 500", r.Lost, r.Retries, r.Finished, r.Broken)
	}
	alone := c
	alone.Replicas = 1
	alone.Events = []Event{{At: 10 * time.Second, Kind: Die, Replica: 0}}
	if r := mustRun(t, alone); r.Lost == 0 || r.Lost+r.Finished+r.Broken != 500 {
		t.Errorf("the only replica died: %d lost, %d finished, %d broken off", r.Lost, r.Finished, r.Broken)
	}
}

// forgetting records the targets that it forgets.
type forgetting struct {
	router.Strategy
	ids *[]string
}

func (f forgetting) Forget(id string) { *f.ids = append(*f.ids, id) }

func TestTell(t *testing.T) {
	for _, tell := range []bool{false, true} {
		var ids []string
		p := Policy{Name: "x", NoText: true, New: func(e Env) (router.Strategy, error) {
			s, err := leastLoad.New(e)
			return forgetting{s, &ids}, err
		}}
		mustRun(t, Config{Workload: workload(t, "none", 8, 300), Policy: p, Gateways: 2, Events: []Event{
			{At: time.Second, Kind: Die, Replica: 2, Down: time.Second, Tell: tell},
		}})
		want := []string(nil)
		if tell {
			want = []string{"replica-2", "replica-2"} // each gateway
		}
		if d := cmp.Diff(want, ids); d != "" {
			t.Errorf("tell %v: forgotten:\n%s", tell, d)
		}
	}
}

func TestJoinAndSlow(t *testing.T) {
	w := workload(t, "none", 8, 600)
	r := mustRun(t, Config{Workload: w, Policy: leastLoad, Replicas: 3,
		Events: []Event{{At: 20 * time.Second, Kind: Join}}})
	if len(r.PerReplica) != 4 || r.PerReplica[3].Requests < 50 {
		t.Errorf("the new replica got %+v", r.PerReplica[len(r.PerReplica)-1])
	}
	even := mustRun(t, Config{Workload: w, Policy: roundRobin, Replicas: 4})
	slow := mustRun(t, Config{Workload: w, Policy: roundRobin, Replicas: 4, Speeds: []float64{1, 0.5}})
	late := mustRun(t, Config{Workload: w, Policy: roundRobin, Replicas: 4,
		Events: []Event{{Kind: Slow, Replica: 1, Speed: 0.5}}})
	if slow.PerReplica[1].Busy < 1.1*even.PerReplica[1].Busy || slow.TTFT.Mean <= even.TTFT.Mean {
		t.Errorf("at half speed %v s are busy, mean TTFT %v; at full speed %v and %v", slow.PerReplica[1].Busy,
			slow.TTFT.Mean,
			even.PerReplica[1].Busy, even.TTFT.Mean)
	}
	if d := cmp.Diff(slow, late); d != "" {
		t.Errorf("slow from the start differs from slow at the start:\n%s", d)
	}
}

// seer records the queues that it receives.
type seer struct {
	router.Strategy
	most *int
}

func (s seer) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	for _, t := range ts {
		*s.most = max(*s.most, t.Load.Queued)
	}
	return s.Strategy.Pick(ctx, p, ts)
}

func TestScrape(t *testing.T) {
	for _, c := range []struct {
		gateways int
		scrape   time.Duration
		seen     bool
	}{{1, time.Second, false}, {3, 0, false}, {3, time.Second, true}} {
		most := 0
		p := Policy{Name: "x", NoText: true, New: func(e Env) (router.Strategy, error) {
			s, err := leastLoad.New(e)
			return seer{s, &most}, err
		}}
		mustRun(t, Config{Workload: workload(t, "none", 14, 500), Policy: p, Gateways: c.gateways, Scrape: c.scrape})
		if c.seen != (most > 0) {
			t.Errorf("%d gateways that scrape every %v saw a queue of others of %d", c.gateways, c.scrape, most)
		}
	}
}

func TestTokens(t *testing.T) {
	w := workload(t, "chat", 5, 100)
	p := Policy{Name: "x", New: func(e Env) (router.Strategy, error) {
		s, err := leastLoad.New(e)
		return asked{s, func(p router.Prompt) error {
			if len(p.Tokens)*4 != len(p.Text) {
				return fmt.Errorf("%d tokens, %d bytes", len(p.Tokens), len(p.Text))
			}
			return nil
		}}, err
	}}
	mustRun(t, Config{Workload: w, Policy: p, Tokens: true})
	if _, err := Run(context.Background(), Config{Workload: w, Policy: p}); err == nil {
		t.Error("the strategy's error is not passed on")
	}
}

type asked struct {
	router.Strategy
	ask func(router.Prompt) error
}

func (a asked) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	if err := a.ask(p); err != nil {
		return router.Decision{}, err
	}
	return a.Strategy.Pick(ctx, p, ts)
}

func TestTooLong(t *testing.T) {
	cal := Calibrations()[0]
	cal.Blocks = 4
	r := mustRun(t, Config{Workload: workload(t, "none", 8, 200), Policy: leastLoad, Calibration: cal})
	if r.Rejected == 0 || r.Rejected+r.Finished != 200 {
		t.Errorf("%d rejected, %d finished of 200", r.Rejected, r.Finished)
	}
}

func TestSaturation(t *testing.T) {
	if r := mustRun(t, Config{Workload: workload(t, "none", 8, 1000), Policy: leastLoad}); r.Saturated {
		t.Error("8 requests a second are said to saturate")
	}
	if r := mustRun(t, Config{Workload: workload(t, "none", 40, 4000), Policy: leastLoad, Replicas: 4}); !r.Saturated {
		t.Error("40 requests a second are not said to saturate")
	}
}

func TestBadConfig(t *testing.T) {
	w := workload(t, "none", 8, 10)
	for name, c := range map[string]Config{
		"Workload":    {Policy: leastLoad},
		"Policy":      {Workload: w},
		"Replicas":    {Workload: w, Policy: leastLoad, Replicas: -1},
		"Speeds":      {Workload: w, Policy: leastLoad, Speeds: []float64{math.NaN()}},
		"Scrape":      {Workload: w, Policy: leastLoad, Scrape: 1},
		"Events":      {Workload: w, Policy: leastLoad, Events: []Event{{Kind: Die, Replica: 8}}},
		"calibration": {Workload: w, Policy: leastLoad, Calibration: Calibration{Step: 1}},
	} {
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Config{Workload: w, Policy: leastLoad}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestMooncake(t *testing.T) {
	f, err := os.Open(shareddata.Path(t, "mooncake/conversation_trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rs, err := trace.Mooncake("conversation", f)
	if err != nil {
		t.Fatal(err)
	}
	w := &trace.Workload{Name: "conversation", Requests: trace.Spread(rs, 3*time.Second, 1)}
	r, err := Run(context.Background(), Config{Workload: w, Policy: leastLoad})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.IdealShare-0.374) > 0.001 {
		t.Errorf("ideal %v, want 0.374", r.IdealShare)
	}
	if r.Finished != 12031 || r.PromptTokens != 144_793_823 {
		t.Errorf("%d finished, %d tokens", r.Finished, r.PromptTokens)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, p := range []Policy{leastLoad, cacheAware} {
		b.Run(p.Name, func(b *testing.B) {
			w := workload(b, "b2b-saas", 4, 1600)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Run(context.Background(), Config{Workload: w, Policy: p}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
