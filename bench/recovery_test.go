package main

import (
	"testing"
	"time"

	"github.com/warmroute/router/bench/sim"
)

// line is a timeline of one sample a second, ten requests in each.
func line(ttft ...float64) *sim.Result {
	r := &sim.Result{TimelineStep: 1, Span: float64(len(ttft))}
	for _, v := range ttft {
		r.Timeline = append(r.Timeline, sim.Sample{Arrived: 10, TTFT: v})
	}
	return r
}

func TestRecovery(t *testing.T) {
	die := []sim.Event{{Kind: sim.Slow, At: time.Second, Speed: 1}, {Kind: sim.Die, At: 4 * time.Second, Down: 2 * time.Second}}
	for name, c := range map[string]struct {
		r    *sim.Result
		e    []sim.Event
		want recovery
		no   bool
	}{
		"at once": {r: line(9, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1), e: die, want: recovery{before: 1, worst: 2}},
		"later":   {r: line(1, 1, 1, 1, 5, 5, 5, 5, 5, 1, 1, 1, 1, 1), e: die, want: recovery{before: 1, worst: 5, seconds: 3}},
		// 1.24 in the mean of four.
		"nearly":      {r: line(1, 1, 1, 1, 5, 5, 1.24, 1.24, 1.24, 1.24), e: die, want: recovery{before: 1, worst: 5}},
		"not at all":  {r: line(1, 1, 1, 1, 5, 5, 5, 5, 1, 1, 1), e: die, want: recovery{before: 1, worst: 5, never: true}},
		"nothing":     {r: line(1, 1, 1, 1, 5, 5), e: die[:1], no: true},
		"no timeline": {r: &sim.Result{}, e: die, no: true},
		"too late":    {r: line(1, 1, 1), e: die, no: true},
	} {
		got, ok := recoveryOf(c.r, c.e)
		if ok == c.no || ok && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, c.want)
		}
	}
	got := recoveries([]recovery{{seconds: 4, worst: 2, before: 1}, {never: true, worst: 3, before: 2}})
	if want := "TTFT before 1.500, at worst 3.000, recovered 4 s after its return, not recovered in 1 of 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSweepScores(t *testing.T) {
	s := swept{scores: make(map[string]score)}
	add := func(sc scene, a, b float64) {
		s.add(sc, []sim.Cell{{Policy: "a", TTFT: sim.Interval{Mean: a}}, {Policy: "b", TTFT: sim.Interval{Mean: b}}})
	}
	add(scene{workload: "x"}, 1, 2)
	add(scene{workload: "y"}, 4, 1)
	if v := s.scores["a"]; v.worst != 4 || v.at.workload != "y" {
		t.Errorf("a: %+v", v)
	}
	if v := s.scores["b"]; v.worst != 2 || v.at.workload != "x" {
		t.Errorf("b: %+v", v)
	}
	for _, p := range parts {
		for _, sc := range p.scenes {
			if sc.rate <= 0 {
				t.Errorf("%v has no rate", sc)
			}
		}
	}
}
