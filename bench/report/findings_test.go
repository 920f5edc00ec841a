package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/bench/sim"
)

// exact is a study of three seeds in which each policy has the mean TTFT given, on
// workload w at rates 1, 2, ...; a negative one is saturated.
func exact(ttft map[string][]float64, policies ...string) *sim.Study {
	s := &sim.Study{Seeds: []uint64{1, 2, 3}, Workloads: []sim.WorkloadInfo{{Name: "w", Unit: "x"}}}
	for k := range ttft[policies[0]] {
		for _, p := range policies {
			var runs []*sim.Result
			for _, seed := range s.Seeds {
				v := ttft[p][k]
				runs = append(runs, &sim.Result{Workload: "w", Policy: p, Rate: float64(k + 1), Gateways: 1, Seed: seed,
					Requests: 10,
					TTFT:     sim.Dist{Mean: max(v, -v), P99: 3 * max(v, -v)}, HitShare: 0.25, IdealShare: 0.5, Saturated: v < 0})
			}
			s.Cells = append(s.Cells, sim.NewCell(runs))
		}
	}
	return s
}

func plainText(list []sentence) (out []string) {
	for _, s := range list {
		t := ""
		for _, p := range s {
			t += p.S
		}
		out = append(out, strings.TrimSpace(t))
	}
	return out
}

func said(s *sim.Study) []string {
	d := indexOf(s)
	all, loads := d.standings()
	out := plainText(d.findings(all, loads))
	for _, w := range d.drawn() {
		out = append(out, plainText(d.words(w, recommended(all)))...)
	}
	return out
}

func TestFindings(t *testing.T) {
	for _, x := range []struct {
		name     string
		study    *sim.Study
		findings []string
	}{{
		"the recommended one is best, cache_aware only sometimes",
		exact(map[string][]float64{"least_work": {1, 2, 4}, "cache_aware": {1.02, 3, 8}, "rival": {2, 4, -90}}, "rival",
			"cache_aware", "least_work"),
		[]string{
			"Recommended: least_work. Its mean TTFT is 1.00× that of the best policy of each load (geometric mean over 3 " +
				"loads), and at most 1.00×, on w at 1×.",
			"cache_aware is the right choice for loads like w at 1×: there it is as good as least_work. It is slower on w at " +
				"2 and 3× (at most 2.00×, on w at 3×).",
			"At 3×, least_work is best with a mean TTFT of 4.00 s. The hit share of the best is 0.250 of an ideal 0.500 (50%).",
			"Saturated from 3× on: rival.",
		},
	}, {
		"a rival is better",
		exact(map[string][]float64{"least_work": {2, 2}, "cache_aware": {8, 8}, "rival": {1, 1}}, "least_work",
			"cache_aware", "rival"),
		[]string{
			"Recommended: least_work. Its mean TTFT is 2.00× that of the best policy of each load (geometric mean over 2 " +
				"loads), and at most 2.00×, on w at 1×.",
			"rival, which is not one of the library's strategies, does better: 1.00× in the mean, at most 1.00×, on w at 1×.",
			"cache_aware is not the right choice at any of these loads: each time least_work is faster, most on w at 1×, " +
				"where it takes 75% less time.",
			"At 2×, rival is best with a mean TTFT of 1.00 s. The hit share of the best is 0.250 of an ideal 0.500 (50%).",
			"No policy is saturated at any load measured.",
		},
	}, {
		"cache_aware itself",
		exact(map[string][]float64{"least_work": {2, 2}, "cache_aware": {1, 1}}, "least_work", "cache_aware"),
		[]string{
			"Recommended: cache_aware. Its mean TTFT is 1.00× that of the best policy of each load (geometric mean over 2 " +
				"loads), and at most 1.00×, on w at 1×.",
			"cache_aware is the right choice here: none of the library's other strategies has a better mean over these loads.",
			"At 2×, cache_aware is best with a mean TTFT of 1.00 s. The hit share of the best is 0.250 of an ideal 0.500 (50%).",
			"No policy is saturated at any load measured.",
		},
	}, {
		"loads at which nothing keeps up do not count",
		exact(map[string][]float64{"round_robin": {1, -50}, "random": {1.01, -1}}, "round_robin", "random"),
		[]string{
			"Recommended: round_robin. Its mean TTFT is 1.00× that of the best policy of each load (geometric mean over 1 " +
				"load), and at most 1.00×, on w at 1×.",
			"At 1×, round_robin is best with a mean TTFT of 1.00 s; as good is random. The hit share of the best is 0.250 of " +
				"an ideal 0.500 (50%).",
			"From 2× on all policies are saturated.",
		},
	}, {
		"nothing keeps up",
		exact(map[string][]float64{"least_work": {-1}, "random": {-2}}, "least_work", "random"),
		[]string{
			"No policy keeps up at any of these loads, or nothing was measured: there is nothing to recommend.",
			"Every policy is saturated at every load. The times depend on how long the workload lasts, and show no more than " +
				"an order.",
		},
	}, {
		"rivals only",
		exact(map[string][]float64{"a": {3}, "b": {2}}, "a", "b"),
		[]string{
			"None of the library's strategies was measured. b does best: its mean TTFT is 1.00× that of the best policy of " +
				"each load (geometric mean over 1 load).",
			"At 1×, b is best with a mean TTFT of 2.00 s. The hit share of the best is 0.250 of an ideal 0.500 (50%).",
			"No policy is saturated at any load measured.",
		},
	}} {
		if d := cmp.Diff(x.findings, said(x.study)); d != "" {
			t.Errorf("%s: %s", x.name, d)
		}
	}
}

func TestWhoDropsRequestsDoesNotWin(t *testing.T) {
	s := exact(map[string][]float64{"least_work": {2}, "hasty": {1}}, "least_work", "hasty")
	s.Cells[1].Lost = 5
	if got := indexOf(s).drawn()[0].fleets[0].loads[0].winner().Policy; got != "least_work" {
		t.Errorf("%s wins", got)
	}
	s.Cells[0].Lost = 5
	if got := indexOf(s).drawn()[0].fleets[0].loads[0].winner().Policy; got != "hasty" {
		t.Errorf("%s wins where all lose as many", got)
	}
}

func TestClose(t *testing.T) {
	cell := func(v ...float64) *sim.Cell {
		var runs []*sim.Result
		for i, v := range v {
			runs = append(runs, &sim.Result{Seed: uint64(i), TTFT: sim.Dist{Mean: v}})
		}
		c := sim.NewCell(runs)
		return &c
	}
	best := cell(1, 2, 3)
	for _, x := range []struct {
		c    *sim.Cell
		want bool
	}{
		{best, true},
		{cell(1.04, 2.08, 3.12), true},
		{cell(1.2, 2.2, 3.2), false}, // 10% more on each seed
		{cell(0.5, 2.0, 4.5), true},  // more in the mean, but not for sure
		{cell(1.5, 3), false},        // too few to say
		{cell(0, 0, 0), false},
	} {
		if got := closeTo(x.c, best); got != x.want {
			t.Errorf("close to %v with %v: %v", best.TTFT, x.c.TTFT, got)
		}
	}
}

// TestGateways checks the sentence about several gateways against the cells.
func TestGateways(t *testing.T) {
	f := usual()
	f.gateways = []int{1, 4}
	s := f.make()
	d := indexOf(s)
	w := d.workloads[0]
	one, four := w.fleets[0].shown(), w.fleets[1].at(w.fleets[0].shown().rate)
	a, b := one.cell("least_work"), four.cell("least_work")
	want := "With 4 gateways that share nothing, least_work takes " + times(b.TTFT.Mean/a.TTFT.Mean) +
		" the mean TTFT it has with 1, and its hit share is " +
		fixed(b.HitShare.Mean, 3) + " instead of " + fixed(a.HitShare.Mean, 3) + "."
	if got := plainText([]sentence{severalGateways(w, one, "least_work")}); got[0] != want {
		t.Errorf("got  %s\nwant %s", got[0], want)
	}
}
