package sim

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

var (
	precise = Policy{Name: precisecacheaware.Name, Exact: true, New: func(e Env) (router.Strategy, error) {
		return precisecacheaware.New(precisecacheaware.Config{Rand: e.Rand, Now: e.Now, Index: e.Index,
			BlockSize: e.Calibration.BlockSize})
	}}
	exactWork = Policy{Name: "exact_work", Exact: true, New: func(e Env) (router.Strategy, error) {
		return leastwork.New(leastwork.Config{Rand: e.Rand, Now: e.Now, Index: e.Index, BlockSize: e.Calibration.BlockSize})
	}}
)

// watched is a run in which now and then each gateway's index is held against the
// engines' pools. It returns how often they were compared, how many leading tokens
// there were, and how often the index was wrong, or was not trusted.
func watched(t *testing.T, cfg Config) (compared, tokens, wrong, untrusted int) {
	t.Helper()
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	f, err := newFleet(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(cfg.Seed, 77))
	size := cfg.Calibration.BlockSize
	steps := 0
	cfg.verify = func(e *engine) {
		if steps++; steps%97 != 0 {
			return
		}
		for range 4 {
			i := r.IntN(len(f.reqs))
			q := &cfg.Workload.Requests[i]
			p := router.Prompt{Tokens: q.TokenIDs(i)[:q.Input]}
			for _, g := range f.gates {
				for k, got := range g.listener.index.Match(p, f.ids, nil) {
					if !f.engines[k].alive {
						continue
					}
					n := 0
					for n < min((q.Input-1)/size, len(f.hashes[i])) {
						if _, ok := f.engines[k].pool.byHash[f.hashes[i][n]]; !ok {
							break
						}
						n++
					}
					compared++
					tokens += n * size
					switch {
					case got < 0:
						untrusted++
					case got != n*size:
						wrong++
					}
				}
			}
		}
	}
	if err := f.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return compared, tokens, wrong, untrusted
}

// TestIndexIsThePool: with events that come at once every gateway's index says what
// is in the pools, evictions, preemptions, CPU memory, deaths and newcomers
// included.
func TestIndexIsThePool(t *testing.T) {
	small := Calibrations()[2] // blocks of 16
	small.Blocks = 3000
	coarse := Calibrations()[0]
	coarse.Blocks = 60
	tiered := coarse
	tiered.CPUBlocks, tiered.LoadToken = 200, 6.5e-6
	tight := small
	tight.Blocks, tight.StepTokens = 900, 512
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"chat", Config{Workload: workload(t, "chat", 40, 1500), Policy: precise, Calibration: coarse}},
		{"fine blocks, three gateways", Config{Workload: workload(t, "chat", 30, 600), Policy: exactWork, Calibration: small,
			Gateways: 3}},
		{"preempted, chunk by chunk", Config{Workload: workload(t, "chat", 30, 500), Policy: exactWork, Calibration: tight,
			Replicas: 4}},
		{"cpu memory", Config{Workload: workload(t, "b2b-saas", 4, 800), Policy: precise, Calibration: tiered, Gateways: 2}},
		{"deaths and newcomers", Config{Workload: workload(t, "chat", 20, 800), Policy: precise, Calibration: coarse,
			Gateways: 2, Events: []Event{
				{At: 5 * time.Second, Kind: Die, Replica: 1, Down: 5 * time.Second}, {At: 8 * time.Second, Kind: Join},
				{At: 15 * time.Second, Kind: Die, Replica: 1, Down: time.Second, Tell: true},
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Seed = 3
			compared, tokens, wrong, untrusted := watched(t, c.cfg)
			if wrong > 0 || untrusted > 0 {
				t.Errorf("%d of %d wrong, %d not trusted", wrong, compared, untrusted)
			}
			if compared < 300 || tokens < 100_000 {
				t.Errorf("only %d compared, %d tokens", compared, tokens)
			}
		})
	}
}

// TestIndexThatLags: with a lag, and with messages that are lost, the index is wrong
// or not trusted for a while, and mostly right.
func TestIndexThatLags(t *testing.T) {
	cal := Calibrations()[0]
	cal.Blocks = 60
	for _, c := range []struct {
		name             string
		kv               KVEvents
		wrong, untrusted bool
	}{
		{"lag", KVEvents{Lag: 200 * time.Millisecond}, true, false},
		{"lost", KVEvents{Drop: 0.02}, true, false},
		{"lag, lost", KVEvents{Lag: 200 * time.Millisecond, Drop: 0.02}, true, true},
		{"lost for good", KVEvents{Drop: 0.02, NoReplay: true}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compared, _, wrong, untrusted := watched(t, Config{
				Workload: workload(t, "chat", 40, 1500), Policy: precise, Calibration: cal, Gateways: 2, Seed: 3, KV: c.kv,
			})
			if c.wrong && wrong == 0 || c.untrusted && untrusted == 0 || 2*(wrong+untrusted) > compared {
				t.Errorf("%d of %d wrong, %d not trusted", wrong, compared, untrusted)
			}
		})
	}
}

// TestEventsRepeat: a run with events is a function of its Config too, and so is
// which of them are lost.
func TestEventsRepeat(t *testing.T) {
	cal := Calibrations()[0]
	cal.Blocks = 60
	run := func(seed uint64, kv KVEvents) *Result {
		return mustRun(t, Config{
			Workload: workload(t, "chat", 40, 1500), Policy: exactWork, Calibration: cal, Gateways: 2, Seed: seed, KV: kv,
		})
	}
	lossy := KVEvents{Lag: time.Second, Drop: 0.05}
	a, b := run(1, lossy), run(1, lossy)
	if diff := cmp.Diff(a, b, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the same run twice:\n%s", diff)
	}
	if a.Gaps == 0 || a.Messages == 0 {
		t.Errorf("%d messages, %d gaps", a.Messages, a.Gaps)
	}
	if c := run(1, KVEvents{}); c.Gaps != 0 || c.RightShare <= a.RightShare {
		t.Errorf("without loss and lag: %d gaps, %v right; with them %v", c.Gaps, c.RightShare, a.RightShare)
	}
}

// TestTokenIDsAreTheBlocks: ids of two requests are equal as far as their blocks
// have equal hashes, and no further than the next block.
func TestTokenIDsAreTheBlocks(t *testing.T) {
	const size = 16
	texts := &trace.Workload{Name: "text", Requests: []trace.Request{
		{Text: string(make([]byte, 999)), Input: 250, Output: 40, ReplyText: "the answer, of some length, that goes on"},
		{Text: string(make([]byte, 999)) + "the answer, of some length, that goes on and on, until the end", Input: 266,
			Output: 50},
		{Text: string(make([]byte, 130)), Input: 33, Output: 200},
	}}
	for _, w := range []*trace.Workload{workload(t, "chat", 10, 300), workload(t, "agents", 10, 300), texts} {
		hashes := w.Blocks(size)
		shared := 0
		for i := range w.Requests {
			a := w.Requests[i].TokenIDs(i)
			if len(a) != w.Requests[i].Input+w.Requests[i].Output {
				t.Fatalf("%s: %d ids of %d", w.Name, len(a), w.Requests[i].Input+w.Requests[i].Output)
			}
			for k := range min(i, 40) {
				k = i - 1 - k
				b := w.Requests[k].TokenIDs(k)
				blocks, ids := 0, 0
				for blocks < min(len(hashes[i]), len(hashes[k])) && hashes[i][blocks] == hashes[k][blocks] {
					blocks++
				}
				for ids < min(len(a), len(b)) && a[ids] == b[ids] {
					ids++
				}
				if ids/size != blocks {
					t.Fatalf("%s: requests %d and %d share %d ids and %d blocks", w.Name, k, i, ids, blocks)
				}
				shared += blocks
			}
		}
		if shared == 0 {
			t.Errorf("%s: nothing is shared", w.Name)
		}
	}
}

func TestKVEventsAreChecked(t *testing.T) {
	for _, kv := range []KVEvents{{Lag: -1}, {Drop: -0.1}, {Drop: 1}} {
		if _, err := Run(context.Background(), Config{Workload: workload(t, "chat", 5, 10), Policy: precise,
			KV: kv}); err == nil {
			t.Errorf("%+v is taken", kv)
		}
	}
}
