package file_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

var (
	record = flag.Bool("record", false, "write testdata/decisions.txt anew: after a change of decisions that is wanted")
	show   = flag.String("show", "", "print the decisions of this recording, a name and a seed")
)

// occupancy is an lmcacheaware.Source.
type occupancy struct{}

func (o *occupancy) Free(targets []router.Target, dst []float64) {
	for i := range targets {
		switch n := targets[i].ID[0] % 4; n {
		case 0:
			dst[i] = -1
		case 1, 2:
			dst[i] = float64(n) / 4
		}
	}
}

// made is what a recorded strategy is made of: random numbers that depend on the step alone, not on
// how many were drawn, and an index that knows what was sent.
type made struct {
	rand  func() uint64
	now   func() time.Time
	index *kvindex.Index
}

type recording struct {
	name string
	make func(made) (router.Strategy, error)
}

var recorded = []recording{
	{"cache_aware", func(m made) (router.Strategy, error) { return cacheaware.New(cacheaware.Config{Rand: m.rand}) }},
	{"consistent_hash", func(m made) (router.Strategy, error) {
		return consistenthash.New(consistenthash.Config{Rand: m.rand})
	}},
	{"least_load", func(m made) (router.Strategy, error) { return leastload.New(leastload.Config{Rand: m.rand}) }},
	{"least_work", func(m made) (router.Strategy, error) { return leastwork.New(leastwork.Config{Rand: m.rand}) }},
	{"least_work agree", func(m made) (router.Strategy, error) {
		return leastwork.New(leastwork.Config{Rand: m.rand, Agree: 0.25})
	}},
	{"least_work index", func(m made) (router.Strategy, error) {
		return leastwork.New(leastwork.Config{Rand: m.rand, Now: m.now, Index: m.index})
	}},
	{"lmcache_aware", func(m made) (router.Strategy, error) {
		return lmcacheaware.New(lmcacheaware.Config{Rand: m.rand, Source: &occupancy{}})
	}},
	{"lmcache_aware affinity", func(m made) (router.Strategy, error) {
		return lmcacheaware.New(lmcacheaware.Config{Rand: m.rand, Source: &occupancy{}, AffinityRequests: 6})
	}},
	{"pipeline", func(m made) (router.Strategy, error) {
		return pipeline.New(pipeline.Config{Rand: m.rand, Now: m.now})
	}},
	{"power_of_two", func(m made) (router.Strategy, error) { return poweroftwo.New(poweroftwo.Config{Rand: m.rand}) }},
	{"precise_cache_aware", func(m made) (router.Strategy, error) {
		return precisecacheaware.New(precisecacheaware.Config{Rand: m.rand, Now: m.now, Index: m.index})
	}},
	{"precise_cache_aware text", func(m made) (router.Strategy, error) {
		return precisecacheaware.New(precisecacheaware.Config{Rand: m.rand, Now: m.now, Index: m.index, Fallback: "text"})
	}},
	{"precise_cache_aware no index", func(m made) (router.Strategy, error) {
		return precisecacheaware.New(precisecacheaware.Config{Rand: m.rand, Now: m.now})
	}},
	{"precise_cache_aware no index, text", func(m made) (router.Strategy, error) {
		return precisecacheaware.New(precisecacheaware.Config{Rand: m.rand, Now: m.now, Fallback: "text"})
	}},
	{"random", func(m made) (router.Strategy, error) { return random.New(random.Config{Rand: m.rand}) }},
	{"round_robin", func(m made) (router.Strategy, error) { return roundrobin.New(roundrobin.Config{}) }},
}

// TestAllAreRecorded names strategies of the library's list of which no decisions are recorded.
func TestAllAreRecorded(t *testing.T) {
	for name := range file.Strategies() {
		if !slices.ContainsFunc(recorded, func(r recording) bool { return r.name == name }) {
			t.Errorf("%s is not among those that are recorded", name)
		}
	}
}

// TestRecordedDecisions holds every strategy to the decisions and explanations, reason and order
// alike, that it made when testdata/decisions.txt was written. A change that moves code moves none of them.
func TestRecordedDecisions(t *testing.T) {
	const seeds = 24
	var got strings.Builder
	for _, c := range recorded {
		for seed := range uint64(seeds) {
			h := fnv.New64a()
			var w io.Writer = h
			if *show == fmt.Sprint(c.name, " ", seed) {
				w = io.MultiWriter(h, os.Stdout)
			}
			playRecorded(t, w, seed, c.make)
			fmt.Fprintf(&got, "%s, %d: %016x\n", c.name, seed, h.Sum64())
		}
	}
	name := filepath.Join("testdata", "decisions.txt")
	if *record {
		if err := os.WriteFile(name, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("other decisions than recorded, (-want +got):\n%s", diff)
	}
}

func playRecorded(t *testing.T, w io.Writer, seed uint64, newStrategy func(made) (router.Strategy, error)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	clock, draw := time.Unix(1e9, 0), uint64(0)
	events := kvtest.New(t)
	s, err := newStrategy(made{
		rand: func() uint64 { return draw }, now: func() time.Time { return clock }, index: events.Index,
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	trusted := make(map[string]bool)
	for _, id := range ids {
		if seed%4 > 0 && r.IntN(4) > 0 {
			events.Begin(id)
			trusted[id] = true
		}
	}
	var open []router.Decision
	var chats []router.Prompt
	for step := range 150 {
		draw = r.Uint64()
		clock = clock.Add(time.Duration(r.IntN(500)) * time.Millisecond)
		p := recordedPrompt(r, chats)
		chats = append(chats, p)
		ts := recordedFleet(r, ids, seed)
		d, err := s.Pick(context.Background(), p, ts)
		fmt.Fprintf(w, "%d %s %d/%d %s %q %v\n", step, d.Target.ID, d.Cached, d.Length, d.Unit, d.Reason, err != nil)
		if e, ok := s.(router.Explainer); ok && step%3 == 0 {
			for _, c := range e.Explain(context.Background(), p, ts, nil) {
				fmt.Fprintf(w, "  %s %d/%d %s %q\n", c.Target.ID, c.Cached, c.Length, c.Unit, c.Reason)
			}
		}
		if err == nil {
			if r.IntN(8) == 0 {
				d.Memo = nil
			}
			s.Record(d, router.Outcome{Stage: router.Sent})
			open = append(open, d)
			if trusted[d.Target.ID] && len(p.Tokens) > 0 && r.IntN(3) > 0 {
				events.Store(d.Target.ID, p)
			}
		}
		for len(open) > 0 && r.IntN(3) > 0 {
			i := r.IntN(len(open))
			o := router.Outcome{Stage: router.Stage(2 + r.IntN(4)), Status: []int{200, 503, 404}[r.IntN(3)]}
			if o.Stage == router.Finished && r.IntN(2) == 0 {
				o.Reply = strings.Repeat("y", r.IntN(60))
			}
			s.Record(open[i], o)
			if o.Stage.Final() {
				open = append(open[:i], open[i+1:]...)
			}
		}
		switch id := ids[r.IntN(len(ids))]; r.IntN(40) {
		case 0:
			if f, ok := s.(router.Forgetter); ok {
				f.Forget(id)
			}
		case 1:
			if trusted[id] {
				events.Distrust(id)
				trusted[id] = false
			}
		}
	}
}

// recordedPrompt begins a conversation or goes on with one.
func recordedPrompt(r *rand.Rand, chats []router.Prompt) router.Prompt {
	if len(chats) > 0 && r.IntN(2) == 0 {
		p := chats[r.IntN(len(chats))]
		if p.Text != "" {
			p.Text += strings.Repeat("z", r.IntN(300))
		}
		if p.Tokens != nil {
			p.Tokens = append(p.Tokens[:len(p.Tokens):len(p.Tokens)], kvtest.Tokens(r.IntN(50), 1+r.IntN(40))...)
		}
		return p
	}
	p := router.Prompt{Model: []string{"m", "n"}[r.IntN(8)/7]}
	kind := r.IntN(8)
	if kind > 1 {
		p.Text = strings.Repeat("system ", 40*r.IntN(3)) + strings.Repeat(string(rune('a'+r.IntN(20))), 1+r.IntN(400))
	}
	if kind == 1 || kind > 4 {
		p.Tokens = append(kvtest.Tokens(1, 96)[:32*r.IntN(4)], kvtest.Tokens(2+r.IntN(30), 1+r.IntN(100))...)
	}
	if r.IntN(3) == 0 {
		p.Session = fmt.Sprint("s", r.IntN(20))
	}
	return p
}

func recordedFleet(r *rand.Rand, ids []string, seed uint64) []router.Target {
	ts := make([]router.Target, 1+r.IntN(len(ids)))
	for i := range ts {
		ts[i].ID = ids[i]
		if seed%3 == 0 {
			ts[i].Weight = float64(r.IntN(3))
		}
		if r.IntN(9) == 0 {
			ts[i].State = router.State(1 + r.IntN(4))
		}
		if seed%5 > 0 && r.IntN(7) > 0 {
			ts[i].Load = router.Load{Known: true, InFlight: r.IntN(6), Queued: r.IntN(2), Prefill: 100 * r.IntN(20)}
			if seed%2 == 0 {
				ts[i].Load = router.Load{Known: true, InFlight: r.IntN(2)}
			}
		}
	}
	return ts
}
