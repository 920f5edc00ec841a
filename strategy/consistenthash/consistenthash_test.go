package consistenthash_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/consistenthash"
)

func newWith(t testing.TB, c consistenthash.Config) *consistenthash.Strategy {
	s, err := consistenthash.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fleet makes targets of known load 0, so that no bound is in the way of a
// single request.
func fleet(n int) []router.Target {
	ts := make([]router.Target, n)
	for i := range ts {
		ts[i] = router.Target{ID: fmt.Sprint("vllm-", i), Load: router.Load{Known: true}}
	}
	return ts
}

func place(t testing.TB, s router.Strategy, p router.Prompt, ts []router.Target) string {
	d, err := s.Pick(context.Background(), p, ts)
	if err != nil {
		t.Fatal(err)
	}
	return d.Target.ID
}

func session(i int) router.Prompt {
	return router.Prompt{Model: "llama", Session: fmt.Sprint("session ", i)}
}

// Places must be the same in every process, and from one release to the next.
func TestGolden(t *testing.T) {
	ts := fleet(16)
	ts[3].Weight = 4
	tokens := make([]uint32, 400)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	s := newWith(t, consistenthash.Config{})
	got := []string{
		place(t, s, router.Prompt{Session: "alice"}, ts),
		place(t, s, router.Prompt{Session: "bob"}, ts),
		place(t, s, router.Prompt{Model: "llama", Session: "alice"}, ts),
		place(t, s, router.Prompt{Model: "llama", Adapter: "sql", Salt: "x", Session: "alice"}, ts),
		place(t, s, router.Prompt{Text: "alice"}, ts),
		place(t, s, router.Prompt{Model: "llama", Text: strings.Repeat("a long text ", 200)}, ts),
		place(t, s, router.Prompt{Tokens: tokens}, ts),
		place(t, s, router.Prompt{Model: "llama", Tokens: tokens[:3]}, ts),
	}
	want := []string{"vllm-9", "vllm-6", "vllm-9", "vllm-3", "vllm-0", "vllm-2", "vllm-3", "vllm-13"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKey(t *testing.T) {
	lead := strings.Repeat("x", consistenthash.DefaultPrefixBytes)
	tokens := make([]uint32, 300)
	for _, c := range []struct {
		name string
		a, b router.Prompt
		same bool
	}{
		{"a session whatever the text", router.Prompt{Session: "s", Text: "one"}, router.Prompt{Session: "s", Text: "two"},
			true},
		{"the leading part", router.Prompt{Text: lead + "one"}, router.Prompt{Text: lead + "two"}, true},
		{"within the leading part", router.Prompt{Text: "1" + lead}, router.Prompt{Text: "2" + lead}, false},
		{"leading tokens", router.Prompt{Tokens: tokens}, router.Prompt{Tokens: tokens[:256]}, true},
		{"within the leading tokens", router.Prompt{Tokens: tokens}, router.Prompt{Tokens: tokens[:255]}, false},
		{"the text goes before tokens", router.Prompt{Text: "t", Tokens: tokens}, router.Prompt{Text: "t"}, true},
		{"a session is no text", router.Prompt{Session: "s"}, router.Prompt{Text: "s"}, false},
		{"the model", router.Prompt{Model: "a", Session: "s"}, router.Prompt{Model: "b", Session: "s"}, false},
		{"the adapter", router.Prompt{Adapter: "a", Session: "s"}, router.Prompt{Session: "s"}, false},
		{"the salt", router.Prompt{Salt: "a", Session: "s"}, router.Prompt{Salt: "b", Session: "s"}, false},
	} {
		// Equal keys meet on any set of targets; different ones part on one of
		// several with all but certainty.
		s, same := newWith(t, consistenthash.Config{}), true
		for n := 50; n < 60; n++ {
			same = same && place(t, s, c.a, fleet(n)) == place(t, s, c.b, fleet(n))
		}
		if same != c.same {
			t.Errorf("%s: same place %v, want %v", c.name, same, c.same)
		}
	}
}

func TestLeavingAndJoiningMovesOnlyOwnKeys(t *testing.T) {
	const keys = 4000
	s := newWith(t, consistenthash.Config{})
	ts := fleet(9)
	ts[2].Weight, ts[5].Weight = 3, 0.5
	for gone := range ts {
		fewer := append(append([]router.Target{}, ts[:gone]...), ts[gone+1:]...)
		cooling := append([]router.Target{}, ts...)
		cooling[gone].State = router.Cooling
		moved := 0
		for i := range keys {
			with, without := place(t, s, session(i), ts), place(t, s, session(i), fewer)
			if with != ts[gone].ID && with != without {
				t.Fatalf("%s left, and a key of %s moved to %s", ts[gone].ID, with, without)
			}
			if got := place(t, s, session(i), cooling); got != without {
				t.Fatalf("%s where one is cooling, %s where it is gone", got, without)
			}
			if with == ts[gone].ID {
				moved++
			}
		}
		w := ts[gone].Weight
		if w == 0 {
			w = 1
		}
		want := keys * w / 10.5
		if math.Abs(float64(moved)-want) > 5*math.Sqrt(want) {
			t.Errorf("%s of weight %v had %d keys, want about %.0f", ts[gone].ID, w, moved, want)
		}
	}
}

func TestAnotherWeightMovesKeysOneWay(t *testing.T) {
	s := newWith(t, consistenthash.Config{})
	before, after := fleet(8), fleet(8)
	after[4].Weight = 2
	for i := range 3000 {
		a, b := place(t, s, session(i), before), place(t, s, session(i), after)
		if a != b && b != after[4].ID {
			t.Fatalf("a key moved from %s to %s when %s grew", a, b, after[4].ID)
		}
	}
}

// However hot one key is, nobody carries more than the bound, and the request
// goes down the key's own list of places.
func TestBoundedLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, weights := range [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 4, 0.5}} {
		for _, factor := range []float64{1, 1.25, 2} {
			s := newWith(t, consistenthash.Config{LoadFactor: factor})
			ts := fleet(len(weights))
			sum := 0.0
			for i, w := range weights {
				ts[i].Weight = w
				sum += w
			}
			hot := 0 // a session with a light target as its own place
			for place(t, s, session(hot), ts) != ts[0].ID {
				hot++
			}
			total, overflows := 0, 0
			for range 3000 {
				p := session(hot)
				if rng.IntN(3) == 0 {
					p = session(rng.IntN(100))
				}
				d, err := s.Pick(context.Background(), p, ts)
				if err != nil {
					t.Fatal(err)
				}
				total++
				if d.Reason == router.ReasonHashOverflow {
					overflows++
				}
				for i := range ts {
					if ts[i].ID != d.Target.ID {
						continue
					}
					ts[i].Load.InFlight++
					if limit := math.Ceil(factor*float64(total)*weights[i]/sum + 1e-6); float64(ts[i].Load.InFlight) > limit {
						t.Fatalf("factor %v: %d on %s of %d in all, limit %v", factor, ts[i].Load.InFlight, ts[i].ID, total, limit)
					}
				}
				if rng.IntN(3) == 0 { // something ends
					if i := rng.IntN(len(ts)); ts[i].Load.InFlight > 0 {
						ts[i].Load.InFlight--
						total--
					}
				}
			}
			if overflows == 0 {
				t.Error("nothing overflowed: the test shows nothing")
			}
		}
	}
}

func TestOverflowGoesToTheNextPlaceAndBack(t *testing.T) {
	s, ts := newWith(t, consistenthash.Config{}), fleet(6)
	p := session(7)
	order := s.Explain(context.Background(), p, ts, nil)
	at := func(id string) *router.Target {
		for i := range ts {
			if ts[i].ID == id {
				return &ts[i]
			}
		}
		panic(id)
	}
	own := at(order[0].Target.ID)
	own.Load.InFlight = 5
	d, err := s.Pick(context.Background(), p, ts)
	if err != nil || d.Reason != router.ReasonHashOverflow || d.Target.ID != order[1].Target.ID {
		t.Errorf("%s %q %v, want %s", d.Target.ID, d.Reason, err, order[1].Target.ID)
	}
	cs := s.Explain(context.Background(), p, ts, nil)
	if c := cs[len(cs)-1]; c.Target.ID != own.ID || c.Reason != router.ReasonOverloaded || c.Score >= cs[0].Score {
		t.Errorf("the full own place is explained as %+v", c)
	}
	if cs[0].Reason != router.ReasonHashOverflow || cs[1].Reason != router.ReasonElsewhere {
		t.Errorf("explained as %q, %q", cs[0].Reason, cs[1].Reason)
	}
	own.Load = router.Load{} // unknown: never full
	if got := place(t, s, p, ts); got != own.ID {
		t.Errorf("%s, want the own place %s, whose load is unknown", got, own.ID)
	}
	own.Load = router.Load{Known: true, InFlight: 5}
	if got := place(t, newWith(t, consistenthash.Config{LoadFactor: math.Inf(1)}), p, ts); got != own.ID {
		t.Errorf("%s, want the own place %s: there is no bound", got, own.ID)
	}
}

func TestEmptyPromptGoesToTheLeastLoaded(t *testing.T) {
	ts := fleet(4)
	for i := range ts {
		ts[i].Load.InFlight = 4 - i
	}
	s := newWith(t, consistenthash.Config{})
	d, err := s.Pick(context.Background(), router.Prompt{Model: "llama"}, ts)
	if err != nil || d.Target.ID != "vllm-3" || d.Reason != router.ReasonEmpty {
		t.Errorf("%s %q %v", d.Target.ID, d.Reason, err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []struct {
		cfg   consistenthash.Config
		field string
	}{
		{consistenthash.Config{LoadFactor: 0.99}, "LoadFactor"},
		{consistenthash.Config{LoadFactor: -1}, "LoadFactor"},
		{consistenthash.Config{LoadFactor: math.NaN()}, "LoadFactor"},
		{consistenthash.Config{PrefixBytes: -1}, "PrefixBytes"},
	} {
		if s, err := consistenthash.New(c.cfg); err == nil || s != nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v, want an error that names %s", c.cfg, err, c.field)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	s, ts, p := newWith(t, consistenthash.Config{}), fleet(64), session(1)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Pick(context.Background(), p, ts) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The own place is full from the first request on that would be more than
// LoadFactor x (all + this one) x its share, rounded up.
func TestWhenTheOwnPlaceIsFull(t *testing.T) {
	const unknown = -1
	for _, c := range []struct {
		own    int
		others []int
		full   bool
	}{
		{0, []int{0, 0, 0}, false},                     // 1 of 1.25 x 1/4, rounded up 1
		{1, []int{0, 0, 0}, true},                      // 2 of 1.25 x 2/4, rounded up 1
		{1, []int{1, 1, 0}, false},                     // 2 of 1.25 x 4/4, rounded up 2
		{4, []int{4, 4, 4}, false},                     // 5 of 1.25 x 17/4, rounded up 6
		{6, []int{4, 4, 4}, true},                      // 7 of 1.25 x 19/4, rounded up 6
		{4, []int{4, unknown, unknown}, false},         // the unknown ones count as 4 each
		{6, []int{4, unknown, unknown}, false},         // 7 of 1.25 x 21/4, rounded up 7
		{8, []int{4, unknown, unknown}, true},          // 9 of 1.25 x 25/4, rounded up 8
		{unknown, []int{0, 0, 0}, false},               // nobody knows
		{unknown, []int{unknown, unknown, 500}, false}, // nobody knows
		{500, []int{unknown, unknown, unknown}, false}, // it is the mean
		{math.MaxInt, []int{math.MaxInt, 0, -2}, true}, // clamped
		{-5, []int{0, -7, math.MinInt}, false},         // nothing
		{math.MaxInt, []int{math.MaxInt, math.MaxInt, math.MaxInt}, false},
	} {
		s, ts := newWith(t, consistenthash.Config{}), fleet(4)
		own := place(t, s, session(0), ts)
		others := c.others
		for i := range ts {
			n := c.own
			if ts[i].ID != own {
				n, others = others[0], others[1:]
			}
			ts[i].Load = router.Load{Known: n != unknown, InFlight: n}
			if n == unknown {
				ts[i].Load = router.Load{}
			}
		}
		if got := place(t, s, session(0), ts) != own; got != c.full {
			t.Errorf("own place with %d, others with %v: full %v, want %v", c.own, c.others, got, c.full)
		}
	}
}
