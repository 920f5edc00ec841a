package report

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/warmroute/router/bench/sim"
)

// shape is what a made-up study consists of.
type shape struct {
	workloads, policies []string
	rates               []float64
	gateways            []int
	seeds, replicas     int
	samples             int
}

func usual() shape {
	return shape{workloads: []string{"chat", "code"}, policies: []string{"least_work", "cache_aware", "round_robin",
		"lmetric"},
		rates: []float64{1, 1.5, 2}, gateways: []int{1}, seeds: 5, replicas: 8, samples: 100}
}

// make makes a study with policies that get worse in the order of the list, and the
// more so the greater the load. The last one is saturated at the greatest load.
func (f shape) make() *sim.Study {
	r := rand.New(rand.NewPCG(1, 2))
	s := &sim.Study{Command: "go -C bench run . -seeds 5", Replicas: f.replicas, Calibration: sim.Calibrations()[0]}
	for i := range f.seeds {
		s.Seeds = append(s.Seeds, uint64(i+1))
	}
	for _, p := range f.policies {
		s.Policies = append(s.Policies, sim.PolicyInfo{Name: p, About: "about " + p})
	}
	for _, w := range f.workloads {
		s.Workloads = append(s.Workloads, sim.WorkloadInfo{Name: w, About: "about " + w, Unit: "x"})
		for _, g := range f.gateways {
			for k, rate := range f.rates {
				for n, p := range f.policies {
					var runs []*sim.Result
					for _, seed := range s.Seeds {
						base := 0.2 * rate * (1 + float64(n)*rate) * (1 + 0.02*r.Float64()) * float64(1+g) / 2
						x := &sim.Result{Workload: w, Policy: p, Rate: rate, Seed: seed, Gateways: g, Replicas: f.replicas,
							Requests: 1000, Finished: 1000,
							TTFT: sim.Dist{Mean: base, P50: base * 0.7, P90: base * 2.1, P99: base * 4.3}, E2E: sim.Dist{Mean: base + 5.5},
							HitShare: 0.31 / float64(n+1) * (1 + 0.01*r.Float64()), IdealShare: 0.374, PooledShare: 0.35,
							MaxMean: 1.1 + r.Float64(), MaxMeanTokens: 1.2 + r.Float64(), TimelineStep: 3}
						for i := range f.replicas {
							x.PerReplica = append(x.PerReplica, sim.Replica{ID: fmt.Sprint(i), Requests: 100 + r.IntN(50), Prefilled: 1e6 +
								r.Int64N(1e6)})
						}
						for range f.samples {
							x.Timeline = append(x.Timeline, sim.Sample{InFlight: r.IntN(500), Waiting: r.IntN(9)})
						}
						x.Saturated = n > 0 && n == len(f.policies)-1 && k == len(f.rates)-1
						runs = append(runs, x)
					}
					s.Cells = append(s.Cells, sim.NewCell(runs))
				}
			}
		}
	}
	return s
}

// odd are studies that no command makes today and that must not break a page.
func odd() map[string]*sim.Study {
	out := map[string]*sim.Study{"empty": {}}
	change := func(name string, f func(*shape)) {
		s := usual()
		f(&s)
		out[name] = s.make()
	}
	change("usual", func(*shape) {})
	change("one seed", func(s *shape) { s.seeds = 1 })
	change("one rate", func(s *shape) { s.rates = []float64{2} })
	change("one of all", func(s *shape) {
		*s = shape{workloads: []string{"w"}, policies: []string{"p"}, rates: []float64{1}, gateways: []int{1}, seeds: 1,
			replicas: 1, samples: 1}
	})
	change("rates far apart", func(s *shape) { s.rates = []float64{0.001, 1, 1000, 1e6} })
	change("gateways", func(s *shape) { s.gateways = []int{1, 2, 4, 8} })
	change("gateways at one rate", func(s *shape) { s.gateways, s.rates = []int{8, 1}, []float64{3} })
	change("no time line", func(s *shape) { s.samples = 0 })
	change("no replicas", func(s *shape) { s.replicas = 0 })
	change("sixty policies", func(s *shape) {
		for i := range 56 {
			s.policies = append(s.policies, fmt.Sprintf("policy_number_%d_with_a_long_name", i))
		}
	})
	every := func(name string, f func(*sim.Cell)) {
		s := usual().make()
		for i := range s.Cells {
			f(&s.Cells[i])
		}
		out[name] = s
	}
	for name, v := range map[string]float64{"NaN": math.NaN(), "infinite": math.Inf(1), "less than nothing": -1, "zero": 0,
		"huge": math.MaxFloat64} {
		every(name, func(c *sim.Cell) {
			i := sim.Interval{Mean: v, Half: v}
			c.TTFT, c.P50, c.P90, c.P99, c.E2E, c.HitShare, c.IdealShare, c.PooledShare, c.MaxMean, c.MaxMeanTokens = i, i, i, i,
				i, i, i, i, i, i
			for _, r := range c.Runs {
				r.TTFT.Mean, r.TimelineStep = v, v
			}
		})
		every(name+" half", func(c *sim.Cell) { c.TTFT.Half, c.HitShare.Half, c.MaxMean.Half = v, v, v })
		every(name+" rate", func(c *sim.Cell) { c.Rate = v })
		s := usual().make()
		s.Cells[0].TTFT.Mean, s.Cells[5].HitShare.Mean = v, v
		out["one "+name] = s
	}
	every("no runs", func(c *sim.Cell) { c.Runs = nil })
	every("nil runs", func(c *sim.Cell) { c.Runs = make([]*sim.Result, 3) })
	every("all saturated", func(c *sim.Cell) { c.Saturated = len(c.Runs) })
	every("all lost", func(c *sim.Cell) { c.Lost, c.TTFT.Mean = c.Requests, 0 })
	every("negative counts", func(c *sim.Cell) {
		c.Requests, c.Gateways, c.Saturated = -1, -1, -1
		for _, r := range c.Runs {
			for i := range r.Timeline {
				r.Timeline[i].InFlight = -5
			}
			for i := range r.PerReplica {
				r.PerReplica[i].Requests = -5
			}
		}
	})
	s := usual().make()
	s.Workloads, s.Policies, s.Seeds = nil, nil, nil
	out["unnamed"] = s
	s = usual().make()
	s.Cells = append(s.Cells, s.Cells...)
	out["twice"] = s
	s = usual().make()
	s.Cells = s.Cells[:7]
	out["holes"] = s
	return out
}
