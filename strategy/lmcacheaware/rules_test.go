package lmcacheaware_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/trie"
)

var p0 = router.Prompt{Model: "m", Text: "hello"}

func TestConfigErrors(t *testing.T) {
	tr, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  lmcacheaware.Config
		want string
	}{
		{lmcacheaware.Config{CapacityRequests: -1}, "CapacityRequests is -1"},
		{lmcacheaware.Config{CapacityRequests: math.NaN()}, "CapacityRequests is NaN"},
		{lmcacheaware.Config{StateRequests: math.Inf(1)}, "StateRequests is +Inf"},
		{lmcacheaware.Config{AffinityRequests: 1e7}, "AffinityRequests is 1e+07"},
		{lmcacheaware.Config{Trie: tr}, "must be nil as long as affinity is off"},
		{lmcacheaware.Config{MaxBytes: 1}, "MaxBytes is 1; it must be 0 as long as affinity is off"},
		{lmcacheaware.Config{AffinityRequests: 1, Trie: tr, MaxNodes: 5},
			"MaxNodes is 5; it must be 0 because Trie is given"},
		{lmcacheaware.Config{AffinityRequests: 1, MaxNodes: -5}, "MaxNodes"},
	} {
		if _, err := lmcacheaware.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q in it", c.cfg, err, c.want)
		}
	}
	s := mustNew(t, lmcacheaware.Config{AffinityRequests: 1, Trie: tr})
	send(t, s, p0, "a")
	if s.Trie() != tr || s.Stats() != tr.Stats() || s.Stats().Bytes == 0 {
		t.Errorf("Stats %+v", s.Stats())
	}
	off := mustNew(t, lmcacheaware.Config{})
	if off.Trie() != nil || off.Stats() != (trie.Stats{}) {
		t.Error("affinity is off, and something is remembered")
	}
}

// Available before neutral before not available, whatever the free capacity, at
// equal loads, and at unequal ones within StateRequests.
func TestStatesInOrder(t *testing.T) {
	f := values{"full": 0, "empty": 1, "off": unavailable}
	s := mustNew(t, lmcacheaware.Config{Source: f})
	for _, n := range []int{0, 3, 40} {
		ts := []router.Target{busy("off", n), busy("neutral", n), busy("full", n), busy("empty", n)}
		for _, want := range []string{"empty", "full", "neutral", "off"} {
			if got := taken(t, s, p0, ts...); got[want] != 1 {
				t.Fatalf("load %d: %v, want %s", n, got, want)
			}
			ts = slices.DeleteFunc(ts, func(t router.Target) bool { return t.ID == want })
		}
	}
	for _, c := range []struct {
		better string
		extra  int
		worse  string
		want   string
	}{
		{"full", 15, "neutral", "full"}, {"full", 17, "neutral", "neutral"},
		{"neutral", 15, "off", "neutral"}, {"neutral", 17, "off", "off"},
		{"empty", 19, "neutral", "empty"}, {"empty", 21, "neutral", "neutral"},
		{"full", 31, "off", "full"}, {"full", 33, "off", "off"},
		{"empty", 100, "off", "off"},
	} {
		if got := taken(t, s, p0, busy(c.better, 5+c.extra), busy(c.worse, 5)); got[c.want] != 1 {
			t.Errorf("%s with %d more than %s: %v", c.better, c.extra, c.worse, got)
		}
	}
}

// For random capacities and loads: a load difference beyond CapacityRequests
// decides whatever the capacities are; at equal loads the capacities decide, and
// they do for a load difference smaller than their worth.
func TestNeitherDrownsTheOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	f := values{}
	for _, worth := range []float64{0.5, 4, 100} {
		s := mustNew(t, lmcacheaware.Config{Source: f, CapacityRequests: worth})
		decided := [2]int{}
		for range 5000 {
			f["a"], f["b"] = rng.Float64(), rng.Float64()
			if rng.IntN(4) == 0 {
				f["a"], f["b"] = float64(rng.IntN(2)), float64(rng.IntN(2))
			}
			base := rng.IntN(1000)
			la, lb := base+rng.IntN(int(3*worth)+2), base+rng.IntN(int(3*worth)+2)
			ts := []router.Target{busy("a", la), busy("b", lb)}
			got := pickFor(t, s, p0, ts...).Target.ID
			d := float64(la - lb)          // a's disadvantage in load
			c := worth * (f["a"] - f["b"]) // a's advantage in capacity, in requests
			switch want := "b"; {
			case math.Abs(d) > worth:
				if d < 0 {
					want = "a"
				}
				if got != want {
					t.Fatalf("worth %v: %s of %v, %v, whatever the load", worth, got, ts, f)
				}
				decided[0]++
			case c > 0 && d < c-1e-6 || c < 0 && d < c-1e-6:
				if got != "a" {
					t.Fatalf("worth %v: %s of %v, %v, whatever the capacity", worth, got, ts, f)
				}
				decided[1]++
			case d > c+1e-6:
				if got != "b" {
					t.Fatalf("worth %v: %s of %v, %v, whatever the capacity", worth, got, ts, f)
				}
				decided[1]++
			}
		}
		if decided[0] < 500 || decided[1] < 200 {
			t.Errorf("worth %v: decided %v times", worth, decided)
		}
	}
}

// In a fleet of any size the one that is taken has at most CapacityRequests more to
// do than the least loaded available one; and no available one with as little to do
// and more free capacity is passed over.
func TestTheOneTakenIsNotDominated(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	f := values{}
	s := mustNew(t, lmcacheaware.Config{Source: f})
	for range 3000 {
		var ts []router.Target
		for i := range 1 + rng.IntN(12) {
			id := fmt.Sprint("t", i)
			f[id] = rng.Float64()
			ts = append(ts, busy(id, rng.IntN(12)))
		}
		d := pickFor(t, s, p0, ts...)
		for _, o := range ts {
			if d.Target.Load.InFlight > o.Load.InFlight+4 {
				t.Fatalf("%v taken before %v", d.Target, o)
			}
			if o.Load.InFlight <= d.Target.Load.InFlight && f[o.ID] > f[d.Target.ID] {
				t.Fatalf("%v (free %v) taken before %v (free %v)", d.Target, f[d.Target.ID], o, f[o.ID])
			}
		}
	}
}

// Whatever is known of the caches, 200 requests that stay do not all pile up on the
// only target with an available cache: it carries StateRequests and
// CapacityRequests more than the others, and the rest is spread.
func TestTheOnlyAvailableOneIsNotRunOver(t *testing.T) {
	for _, off := range []bool{false, true} {
		f := values{"t0": 1}
		ts := []router.Target{busy("t0", 0)}
		for i := 1; i < 8; i++ {
			ts = append(ts, busy(fmt.Sprint("t", i), 0))
			if off {
				f[ts[i].ID] = unavailable
			}
		}
		s := mustNew(t, lmcacheaware.Config{Source: f})
		for range 200 {
			id := pickFor(t, s, p0, ts...).Target.ID
			ts[slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == id })].Load.InFlight++
		}
		extra := 16 + 4
		if off {
			extra += 16
		}
		for _, tg := range ts[1:] {
			if d := ts[0].Load.InFlight - tg.Load.InFlight; d < extra-1 || d > extra+1 {
				t.Errorf("unavailable %v: %d in flight beside %d, want %d more", off, ts[0].Load.InFlight, tg.Load.InFlight, extra)
			}
		}
	}
}

// A neutral target is between the two others: learning that its cache is available
// never makes it worse, and learning that it is not never makes it better.
func TestNeutralIsNeitherBestNorWorst(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	f := values{}
	s := mustNew(t, lmcacheaware.Config{Source: f})
	rank := func(ts []router.Target) int {
		cs := s.Explain(context.Background(), p0, ts, nil)
		return slices.IndexFunc(cs, func(c router.Candidate) bool { return c.Target.ID == "x" })
	}
	moved := 0
	for range 2000 {
		clear(f)
		ts := []router.Target{busy("x", rng.IntN(30))}
		for i := range 1 + rng.IntN(7) {
			id := fmt.Sprint("t", i)
			switch rng.IntN(3) {
			case 0:
				f[id] = rng.Float64()
			case 1:
				f[id] = unavailable
			}
			ts = append(ts, busy(id, rng.IntN(30)))
		}
		neutral := rank(ts)
		f["x"] = rng.Float64()
		up := rank(ts)
		f["x"] = unavailable
		down := rank(ts)
		if up > neutral || down < neutral {
			t.Fatalf("available: %d, neutral: %d, not: %d of %v, %v", up, neutral, down, ts, f)
		}
		if up < neutral && neutral < down {
			moved++
		}
	}
	if moved < 200 {
		t.Errorf("in the middle only %d times", moved)
	}
}

// With no source, a source that knows nothing, or one that has failed for all, what
// is left is the least load, and the reason says so.
func TestAllMissingIsLeastLoad(t *testing.T) {
	for name, cfg := range map[string]lmcacheaware.Config{
		"no source": {}, "knows nothing": {Source: values{}}, "NaN for all": {Source: alike(math.NaN())},
		"infinity for all": {Source: alike(math.Inf(1))},
	} {
		s := mustNew(t, cfg)
		d := pickFor(t, s, p0, busy("a", 2), busy("b", 1), busy("c", 9))
		if d.Target.ID != "b" || d.Reason != router.ReasonLeastLoad || d.Memo != nil || d.Length != 5 || d.Cached != 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if d := pickFor(t, s, p0, router.Target{ID: "a"}, router.Target{ID: "b"}); d.Reason != router.ReasonRandom {
			t.Errorf("%s: no load known: %q", name, d.Reason)
		}
		if d := pickFor(t, s, p0, busy("a", 2)); d.Reason != router.ReasonOnly {
			t.Errorf("%s: one target: %q", name, d.Reason)
		}
		// If no load is known, by weight.
		got := taken(t, s, p0, router.Target{ID: "a", Weight: 3}, router.Target{ID: "b"})
		if got["a"] < 0.7 || got["a"] > 0.8 {
			t.Errorf("%s: by weight: %v", name, got)
		}
	}
	// What only a target says that is not Ready is nothing.
	s := mustNew(t, lmcacheaware.Config{Source: values{"down": 1}})
	down := busy("down", 0)
	down.State = router.Unhealthy
	if d := pickFor(t, s, p0, down, busy("a", 3), busy("b", 2)); d.Target.ID != "b" || d.Reason != router.ReasonLeastLoad {
		t.Errorf("%+v", d)
	}
}

func TestWeightCarriesMore(t *testing.T) {
	s := mustNew(t, lmcacheaware.Config{Source: values{"big": 0.5, "small": 0.5}})
	big, small := busy("big", 4), busy("small", 3)
	big.Weight, small.Weight = 2, 1
	if d := pickFor(t, s, p0, big, small); d.Target.ID != "big" {
		t.Errorf("took %s", d.Target.ID)
	}
}

// With affinity, the target that was sent the prompt comes before an emptier cache
// until it is too busy; without, it does not.
func TestAffinity(t *testing.T) {
	f := values{"full of it": 0, "empty": 1}
	on := mustNew(t, lmcacheaware.Config{Source: f, AffinityRequests: 8})
	off := mustNew(t, lmcacheaware.Config{Source: f})
	p := router.Prompt{Model: "m", Text: strings.Repeat("a conversation ", 50)}
	send(t, on, p, "full of it")
	send(t, off, p, "full of it")
	for _, c := range []struct {
		s    *lmcacheaware.Strategy
		load int
		want string
	}{{on, 0, "full of it"}, {on, 3, "full of it"}, {on, 5, "empty"}, {off, 0, "empty"}} {
		d := pickFor(t, c.s, p, busy("full of it", c.load), busy("empty", 0))
		if d.Target.ID != c.want {
			t.Errorf("load %d: %+v", c.load, d)
		}
		if c.s == on && c.want == "full of it" && (d.Cached != len(p.Text) || d.Length != len(p.Text)) {
			t.Errorf("cached %d of %d", d.Cached, d.Length)
		}
	}
	on.Forget("full of it")
	if d := pickFor(t, on, p, busy("full of it", 0), busy("empty", 0)); d.Target.ID != "empty" {
		t.Errorf("after Forget: %+v", d)
	}
	// All missing, and something is held.
	clear(f)
	send(t, on, p, "full of it")
	if d := pickFor(t, on, p, busy("full of it", 2), busy("empty", 0)); d.Target.ID != "full of it" ||
		d.Reason != router.ReasonWarm {
		t.Errorf("nothing known: %+v", d)
	}
	if d := pickFor(t, on, p0, busy("full of it", 2), busy("empty", 0)); d.Target.ID != "empty" ||
		d.Reason != router.ReasonLeastLoad {
		t.Errorf("nothing known, nothing held: %+v", d)
	}
}

func TestExplain(t *testing.T) {
	f := values{"best": 0.75, "twin": 0.75, "busy": 0.75, "fuller": 0.5, "off": unavailable, "down": 1}
	s := mustNew(t, lmcacheaware.Config{Source: f, AffinityRequests: 2})
	p := router.Prompt{Model: "m", Text: "abcdefgh"}
	down := busy("down", 0)
	down.State = router.Cooling
	ts := []router.Target{down, busy("off", 0), busy("neutral", 1), busy("fuller", 1), busy("busy", 9), busy("twin", 1),
		busy("best", 1)}
	type row struct {
		ID     string
		Score  float64
		Reason router.Reason
	}
	explain := func() (rows []row) {
		for _, c := range s.Explain(context.Background(), p, ts, nil) {
			rows = append(rows, row{c.Target.ID, math.Round(c.Score*1000) / 1000, c.Reason})
		}
		return rows
	}
	want := []row{
		{"best", 1, lmcacheaware.ReasonCapacity}, {"twin", 1, router.ReasonTied},
		{"fuller", 0.5, lmcacheaware.ReasonFuller}, {"busy", 0.111, router.ReasonBusier},
		{"neutral", 0.05, lmcacheaware.ReasonNeutral}, {"off", 0.029, lmcacheaware.ReasonUnavailable},
		{"down", 0, router.ReasonCooling},
	}
	if diff := cmp.Diff(want, explain()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	send(t, s, p, "twin")
	want[0], want[1] = row{"twin", 1, lmcacheaware.ReasonCapacity}, row{"best", 0.333, router.ReasonColder}
	want[2], want[3] = row{"fuller", 0.25, router.ReasonColder}, row{"busy", 0.091, router.ReasonBusier}
	want[4].Score, want[5].Score = 0.045, 0.027
	if diff := cmp.Diff(want, explain()); diff != "" {
		t.Errorf("with affinity: (-want +got)\n%s", diff)
	}
}
