package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestStudent(t *testing.T) {
	// From tables of the distribution.
	for df, want := range map[int]float64{1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980} {
		if got := studentQuantile(df); math.Abs(got-want) > 0.001 {
			t.Errorf("%d degrees of freedom: %v, want %v", df, got, want)
		}
	}
	for _, c := range []struct {
		t    float64
		df   int
		want float64
	}{{0, 5, 1}, {2.015, 5, 0.1}, {-2.015, 5, 0.1}, {4.032, 5, 0.01}, {1.812, 10, 0.1}} {
		if got := studentP(c.t, c.df); math.Abs(got-c.want) > 0.0002 {
			t.Errorf("t %v, %d degrees of freedom: %v, want %v", c.t, c.df, got, c.want)
		}
	}
}

func TestIntervalOf(t *testing.T) {
	i := IntervalOf([]float64{1, 2, 3, 4, 5})
	if i.Mean != 3 || math.Abs(i.Half-2.776*math.Sqrt(0.5)) > 0.001 {
		t.Errorf("%+v", i)
	}
	if one := IntervalOf([]float64{7}); one != (Interval{Mean: 7}) {
		t.Errorf("%+v", one)
	}
}

func TestDist(t *testing.T) {
	d := distOf([]float64{5, 1, 4, 2, 3})
	if d.Mean != 3 || d.P50 != 3 || d.P90 != 4.6 || math.Abs(d.P99-4.96) > 1e-12 {
		t.Errorf("%+v", d)
	}
	if distOf(nil) != (Dist{}) {
		t.Error("nothing is not the zero")
	}
}

// cells makes two sets of runs of which the requests of the second take by longer.
func cells(by float64) (a, b Cell) {
	r := rand.New(rand.NewPCG(1, 2))
	var as, bs []*Result
	for seed := range uint64(5) {
		x, y := &Result{Seed: seed}, &Result{Seed: seed}
		for range 1000 {
			v := r.ExpFloat64()
			x.FirstTokens = append(x.FirstTokens, v)
			y.FirstTokens = append(y.FirstTokens, v+by+0.1*r.NormFloat64()*v)
		}
		x.FirstTokens[3] = -1
		x.TTFT = distOf(append([]float64(nil), x.FirstTokens...))
		y.TTFT = distOf(append([]float64(nil), y.FirstTokens...))
		as, bs = append(as, x), append(bs, y)
	}
	bs[0], bs[4] = bs[4], bs[0] // paired by seed, not by place
	return NewCell(as), NewCell(bs)
}

func TestCompare(t *testing.T) {
	a, b := cells(0.1)
	p, ok := Compare(&a, &b, rand.New(rand.NewPCG(1, 1)).IntN)
	if !ok || p.Seeds != 5 || p.Requests != 4995 {
		t.Fatalf("%+v", p)
	}
	if p.P > 0.001 || p.Difference.Mean > -0.08 || p.Low > -0.1-0 && p.High < -0.1 || p.High > 0 || p.Faster < 0.6 {
		t.Errorf("a difference of 0.1 gives %+v", p)
	}
	a, b = cells(0)
	p, _ = Compare(&a, &b, rand.New(rand.NewPCG(1, 1)).IntN)
	if p.P < 0.01 || p.Low > 0 || p.High < 0 {
		t.Errorf("no difference gives %+v", p)
	}
	if _, ok := Compare(&a, &Cell{}, nil); ok {
		t.Error("no pair is one")
	}
}
