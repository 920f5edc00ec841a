package main

import (
	"math"
	"strings"
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
	die := []sim.Event{{Kind: sim.Slow, At: time.Second, Speed: 1},
		{Kind: sim.Die, At: 4 * time.Second, Down: 2 * time.Second}}
	still := line(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	for name, c := range map[string]struct {
		r, still *sim.Result
		e        []sim.Event
		want     recovery
		no       bool
	}{
		"at once": {r: line(9, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1), e: die, want: recovery{worst: 1.5, without: 1}},
		"later": {r: line(1, 1, 1, 1, 5, 5, 5, 5, 5, 1, 1, 1, 1, 1), e: die,
			want: recovery{worst: 5, without: 1, seconds: 3}},
		"nearly": {r: line(1, 1, 1, 1, 5, 5, 1.24, 1.24, 1.24, 1.24, 1, 1, 1, 1), e: die,
			want: recovery{worst: 3.12, without: 1}},
		"never": {r: line(1, 1, 1, 1, 5, 5, 5, 5, 2, 2, 2, 2, 2, 2), e: die,
			want: recovery{worst: 5, without: 1, never: true}},
		// The workload itself slows down.
		"grows": {r: line(1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2), still: line(1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2),
			e:    die,
			want: recovery{worst: 2, without: 2}},
		"nothing dies": {r: still, e: die[:1], no: true},
		"no timeline":  {r: &sim.Result{}, e: die, no: true},
		"too late":     {r: line(1, 1, 1, 1, 1), e: die, no: true},
	} {
		if c.still == nil {
			c.still = still
		}
		got, ok := recoveryOf(c.r, c.still, c.e)
		got.worst = math.Round(got.worst*1e9) / 1e9
		if ok == c.no || ok && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, c.want)
		}
	}
	got := recoveries([]recovery{{seconds: 4, worst: 2, without: 1}, {never: true, worst: 3, without: 2}})
	if want := "TTFT at worst 2.500, without 1.500, recovered 4 s after its return, not recovered in 1 of 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRecoveryIsTold runs the command.
func TestRecoveryIsTold(t *testing.T) {
	out := command(t, "-workload", "none", "-rate", "2", "-seeds", "1", "-policies", "least_load", "-events",
		"die 0 100s 20s")
	if !strings.Contains(out, "recovered 0 s after its return") {
		t.Error(out)
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
