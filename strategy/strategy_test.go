package strategy

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

func known(id string, weight float64, inFlight int) router.Target {
	return router.Target{ID: id, Weight: weight, Load: router.Load{Known: true, InFlight: inFlight}}
}

func TestWeight(t *testing.T) {
	for in, want := range map[float64]float64{
		0: 1, -3: 1, math.Inf(1): 1, math.Inf(-1): 1, 2.5: 2.5, 1e300: 1e100, 5e-324: 1e-100,
	} {
		if got := Weight(&router.Target{Weight: in}); got != want {
			t.Errorf("Weight(%v) = %v, want %v", in, got, want)
		}
	}
	if got := Weight(&router.Target{Weight: math.NaN()}); got != 1 {
		t.Errorf("Weight(NaN) = %v, want 1", got)
	}
}

func TestScan(t *testing.T) {
	draining := known("gone", 0.25, 0)
	draining.State = router.Draining
	queued := known("q", 1, 1)
	queued.Load.Queued = 3
	for _, c := range []struct {
		name string
		in   []router.Target
		want Summary
	}{
		{"none", nil, Summary{Only: -1, MinWeight: 1}},
		{"none ready", []router.Target{draining}, Summary{Only: -1, MinWeight: 1}},
		{"one", []router.Target{draining, known("a", 2, 5)},
			Summary{Ready: 1, Known: 1, Only: 1, MinWeight: 2, Least: 5, Mean: 5}},
		{"weight 2 carries twice", []router.Target{known("a", 1, 3), known("b", 2, 2)},
			Summary{Ready: 2, Known: 2, Only: 1, MinWeight: 1, Least: 1, Mean: 2}},
		{"unknown is left out", []router.Target{{ID: "u"}, known("a", 1, 3), queued},
			Summary{Ready: 3, Known: 2, Only: 2, MinWeight: 1, Least: 3, Mean: 3.5}},
		{"none known", []router.Target{{ID: "u"}, {ID: "v"}}, Summary{Ready: 2, Only: 1, MinWeight: 1}},
		{"negative counts as none", []router.Target{known("a", 1, -7)},
			Summary{Ready: 1, Known: 1, Only: 0, MinWeight: 1}},
		{"fields of an unknown load are not read", []router.Target{{ID: "u", Load: router.Load{InFlight: 9}}},
			Summary{Ready: 1, Only: 0, MinWeight: 1}},
	} {
		if diff := cmp.Diff(c.want, Scan(c.in)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestUnknownLoad(t *testing.T) {
	ts := []router.Target{known("a", 1, 0), known("b", 1, 10), {ID: "u"}}
	s := Scan(ts)
	if got := s.Load(&ts[2]); got != 5 {
		t.Errorf("Load of the unknown = %v, want the mean 5", got)
	}
	if s.Overloaded(&ts[2], 2, 1.5) || !s.Overloaded(&ts[1], 2, 1.5) || s.Overloaded(&ts[0], 2, 1.5) {
		t.Error("want only b overloaded")
	}
}

func TestOverloaded(t *testing.T) {
	for _, c := range []struct {
		least, load int
		want        bool
	}{{0, 2, false}, {0, 3, true}, {4, 6, false}, {4, 7, true}, {10, 13, false}, {10, 15, false}, {10, 16, true}} {
		ts := []router.Target{known("a", 1, c.least), known("b", 1, c.load)}
		s := Scan(ts)
		if got := s.Overloaded(&ts[1], 2, 1.5); got != c.want {
			t.Errorf("load %d against %d: overloaded = %v, want %v", c.load, c.least, got, c.want)
		}
	}
}

// The mean of loads that no float holds exactly is the same in every order, and
// is that load if all are equal.
func TestMeanIgnoresOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ts := []router.Target{{ID: "w", Weight: 0.1}}
		for i := range 40 {
			ts = append(ts, known(strconv.Itoa(i), 0.1+rng.Float64(), rng.IntN(1000)))
		}
		want := Scan(ts).Mean
		for range 5 {
			rng.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
			if got := Scan(ts).Mean; got != want {
				t.Fatalf("mean %v after a shuffle, %v before", got, want)
			}
		}
	}
	third := []router.Target{known("a", 3, 1), known("b", 3, 1), known("c", 3, 1), {ID: "u", Weight: 1}}
	if s := Scan(third); s.Mean != s.Load(&third[0]) {
		t.Errorf("mean %v of equal loads %v", s.Mean, s.Load(&third[0]))
	}
}

func TestSum(t *testing.T) {
	var s Sum
	s.Add(-1)
	s.Add(math.NaN())
	if s.Float() != 0 {
		t.Errorf("sum %v, want 0", s.Float())
	}
	for range 1 << 10 {
		s.Add(math.Inf(1))
	}
	if want := math.Ldexp(1, 51); s.Float() != want {
		t.Errorf("sum %v, want %v", s.Float(), want)
	}
}

func TestNoTarget(t *testing.T) {
	err := NoTarget([]router.Target{{State: router.Cooling}, {State: 77}})
	var e *router.NoTargetError
	if !errors.Is(err, router.ErrNoTarget) || !errors.As(err, &e) {
		t.Fatalf("%v is no NoTargetError", err)
	}
	if diff := cmp.Diff(&router.NoTargetError{Offered: 2, NotReady: 2}, e); diff != "" {
		t.Error(diff)
	}
}

func ids(n int) []router.Target {
	ts := make([]router.Target, n)
	for i := range ts {
		ts[i].ID = "vllm-" + strconv.Itoa(i)
	}
	return ts
}

// chi2 returns the chi-square statistic of counts against shares that sum to 1.
func chi2(counts []int, shares []float64) float64 {
	n, x := 0, 0.0
	for _, c := range counts {
		n += c
	}
	for i, c := range counts {
		e := float64(n) * shares[i]
		x += (float64(c) - e) * (float64(c) - e) / e
	}
	return x
}

func TestTieIsFairInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ts := ids(8)
	counts, shares := make([]int, 8), make([]float64, 8)
	for i := range shares {
		shares[i] = 1.0 / 8
	}
	order := rng.Perm(8)
	for range 20000 {
		a, b := Tie{Seed: rng.Uint64()}, Tie{}
		b.Seed = a.Seed
		a.Better(5) // forgotten by the next
		a.Better(0)
		for i := 1; i < 8; i++ {
			a.Equal(i, ts)
		}
		for _, i := range order {
			b.Equal(i, ts)
		}
		if a.Best() != b.Best() || a.Tied() != 8 {
			t.Fatalf("%d in one order, %d in the other, %d tied", a.Best(), b.Best(), a.Tied())
		}
		counts[a.Best()]++
	}
	// 24.32 is exceeded once in 1,000 at 7 degrees of freedom.
	if x := chi2(counts, shares); x > 24.32 {
		t.Errorf("chi-square %.1f for %v", x, counts)
	}
	if (&Tie{}).Best() != -1 {
		t.Error("a best of none")
	}
}

func TestLotteryFollowsWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	ts := ids(4)
	weights := []float64{1, 2, 3, 4}
	first := make([]int, 4)
	second := make([]int, 4)
	shares := make([]float64, 4)
	after := make([]float64, 4) // the second of a draw without replacement
	for i, w := range weights {
		ts[i].Weight = w
		shares[i] = w / 10
		for j, v := range weights {
			if j != i {
				after[i] += v / 10 * w / (10 - v)
			}
		}
	}
	order := []int{2, 0, 3, 1}
	for range 40000 {
		a := Lottery{Seed: rng.Uint64()}
		b := Lottery{Seed: a.Seed}
		for i := range ts {
			a.Show(i, &ts[i])
			b.Show(order[i], &ts[order[i]])
		}
		if a.First() != b.First() || a.Second() != b.Second() || a.First() == a.Second() {
			t.Fatalf("%d, %d in one order, %d, %d in the other", a.First(), a.Second(), b.First(), b.Second())
		}
		first[a.First()]++
		second[a.Second()]++
	}
	// 16.27 is exceeded once in 1,000 at 3 degrees of freedom.
	if x := chi2(first, shares); x > 16.27 {
		t.Errorf("first: chi-square %.1f for %v", x, first)
	}
	if x := chi2(second, after); x > 16.27 {
		t.Errorf("second: chi-square %.1f for %v", x, second)
	}
}

func TestSortPutsNotReadyLast(t *testing.T) {
	ts := ids(4)
	ts[0].State = router.Cooling
	ts[2].State = 99
	cs := Candidates(&router.Prompt{Text: "abc"}, ts, nil)
	Sort(cs, func(a, b *router.Candidate) int {
		if a.Target.State != router.Ready || b.Target.State != router.Ready {
			t.Error("compared one that is not Ready")
		}
		if a.Target.ID > b.Target.ID {
			return -1
		}
		return 1
	})
	var got []string
	for _, c := range cs {
		got = append(got, c.Target.ID+" "+string(c.Reason))
		if c.Length != 3 || c.Unit != router.Bytes {
			t.Errorf("length %d %s", c.Length, c.Unit)
		}
	}
	if diff := cmp.Diff([]string{"vllm-3 ", "vllm-1 ", "vllm-0 cooling", "vllm-2 not_ready"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoAllocations(t *testing.T) {
	ts := ids(64)
	n := testing.AllocsPerRun(100, func() {
		s := Scan(ts)
		tie := Tie{Seed: 9}
		lot := Lottery{Seed: 9}
		for i := range ts {
			if s.Load(&ts[i]) == 0 {
				tie.Equal(i, ts)
			}
			lot.Show(i, &ts[i])
		}
		_ = NewDecision(router.Prompt{Text: "x"}, &ts[tie.Best()], "")
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
