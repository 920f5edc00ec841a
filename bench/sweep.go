package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"text/tabwriter"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/strategy/leastwork"
)

// The constants that the sweep tries, and those that least_work has.
var (
	missWeights    = []float64{1, 2, 3, 5, 8, 12}
	contextWeights = []float64{0.05, 0.1, 0.2, 0.4, 0.8}
)

const chosenMiss, chosenContext = 5, 0.2

// sweepRivals run with the constants: the best of a scene is the best of all.
const sweepRivals = "cache_aware,least_load,least_prefill,lmetric,dynamo,llmd_weighted,sglang_threshold"

// scene is one thing that the constants are tried on. It is run with one seed.
type scene struct {
	workload string
	rate     float64
	gateways int  // 0 means 1
	replicas int  // 0 means the workload's own number
	half     bool // one replica works at half speed
}

func (s scene) String() string {
	t := fmt.Sprintf("%s %g", s.workload, s.rate)
	if s.gateways > 1 {
		t += fmt.Sprintf(", %d gateways", s.gateways)
	}
	if s.replicas > 0 {
		t += fmt.Sprintf(", %d replicas", s.replicas)
	}
	if s.half {
		t += ", one at half speed"
	}
	return t
}

// part is a set of scenes. The constants were chosen on the first part alone; the
// others were run when they stood.
type part struct {
	name   string
	seed   uint64
	scenes []scene
}

var parts = []part{
	{name: "chosen on", seed: 1, scenes: []scene{
		{workload: "mooncake-conversation", rate: 2}, {workload: "mooncake-synthetic", rate: 2},
		{workload: "miniswe", rate: 3},
		{workload: "tau-airline", rate: 30}, {workload: "chat", rate: 60}, {workload: "b2b-saas", rate: 6},
		{workload: "agents", rate: 30},
		{workload: "long", rate: 3}, {workload: "hot", rate: 60}, {workload: "bursts", rate: 45},
		{workload: "none", rate: 20},
	}},
	// The same traces and generators: new arrivals and, if text is generated, new
	// text; other rates and fleets.
	{name: "same sources", seed: 11, scenes: []scene{
		{workload: "mooncake-conversation", rate: 1.75}, {workload: "mooncake-synthetic", rate: 1.25, gateways: 2},
		{workload: "miniswe", rate: 2},
		{workload: "tau-airline", rate: 20, gateways: 8}, {workload: "chat", rate: 45, gateways: 4},
		{workload: "b2b-saas", rate: 4.5},
		{workload: "agents", rate: 36, replicas: 16}, {workload: "long", rate: 2}, {workload: "hot", rate: 40, half: true},
		{workload: "bursts", rate: 25}, {workload: "none", rate: 12, half: true},
	}},
	// Traces that had no part in the choice.
	{name: "other sources", seed: 11, scenes: []scene{
		{workload: "magagent", rate: 12}, {workload: "magagent", rate: 8, half: true},
		{workload: "magagent", rate: 8, gateways: 4},
		{workload: "azure-conv", rate: 6}, {workload: "azure-conv", rate: 4, half: true}, {workload: "azure-code", rate: 12},
	}},
}

// score is the result of a policy over the scenes of a part: the geometric mean
// and the worst of its mean TTFT over that of the scene's best policy.
type score struct {
	mean, worst float64
	at          scene // of the worst
}

type swept struct {
	part   part
	best   []string // policy, by scene
	scores map[string]score
}

func variant(miss, context float64) string { return fmt.Sprintf("w %g, c %g", miss, context) }

// sweep runs every pair of constants, and the rivals, on all parts.
func (o *options) sweep(ctx context.Context, out, log io.Writer) ([]swept, error) {
	policies, err := choose(sweepRivals)
	if err != nil {
		return nil, err
	}
	for _, m := range missWeights {
		for _, c := range contextWeights {
			policies = append(policies, sim.Policy{Name: variant(m, c), New: func(e sim.Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, MissWeight: m, ContextWeight: c})
			}})
		}
	}
	var all []swept
	for _, p := range parts {
		s := swept{part: part{name: p.name, seed: p.seed}, scores: make(map[string]score)}
		for _, sc := range p.scenes {
			cells, err := o.scene(ctx, sc, p.seed, policies, log)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(log, "left out: %v (%v)\n", sc, err)
				continue
			}
			if err != nil {
				return nil, err
			}
			s.add(sc, cells)
		}
		n := float64(len(s.part.scenes))
		for name, v := range s.scores {
			v.mean = math.Exp(v.mean / n)
			s.scores[name] = v
		}
		s.print(out, policies)
		all = append(all, s)
	}
	return all, nil
}

func (o *options) scene(ctx context.Context, s scene, seed uint64, policies []sim.Policy,
	log io.Writer) ([]sim.Cell, error) {
	with := *o
	with.workloads, with.replicas = s.workload, s.replicas
	sources, err := with.sources(log)
	if err != nil {
		return nil, err
	}
	if _, err := sources[0].Build(s.rate, seed); err != nil {
		return nil, err
	}
	cal, err := sim.CalibrationByName(o.calibration)
	if err != nil {
		return nil, err
	}
	p := plan{
		options: &with, sources: []trace.Source{sources[0]}, rates: []float64{s.rate}, policies: policies,
		seeds: []uint64{seed}, gateways: []int{max(s.gateways, 1)}, cal: cal,
	}
	if s.half {
		p.speeds = []float64{0.5}
	}
	study, err := p.run(ctx, log)
	if err != nil {
		return nil, err
	}
	return study.Cells, nil
}

// add takes in one scene. Until the end score.mean is a sum of logarithms.
func (s *swept) add(sc scene, cells []sim.Cell) {
	best := 0
	for i := range cells {
		if cells[i].TTFT.Mean < cells[best].TTFT.Mean {
			best = i
		}
	}
	s.part.scenes = append(s.part.scenes, sc)
	s.best = append(s.best, fmt.Sprintf("%s, %s s", cells[best].Policy, short(cells[best].TTFT.Mean)))
	for i := range cells {
		ratio := cells[i].TTFT.Mean / cells[best].TTFT.Mean
		v := s.scores[cells[i].Policy]
		v.mean += math.Log(ratio)
		if ratio > v.worst {
			v.worst, v.at = ratio, sc
		}
		s.scores[cells[i].Policy] = v
	}
}

func (s *swept) print(out io.Writer, policies []sim.Policy) {
	fmt.Fprintf(out, "\n%s (seed %d): mean TTFT over that of the scene's best policy\n", s.part.name, s.part.seed)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tgeometric mean\tworst\tin\t")
	for _, p := range policies {
		v := s.scores[p.Name]
		fmt.Fprintf(t, "%s\t%.3f\t%.2f\t%v\t\n", p.Name, v.mean, v.worst, v.at)
	}
	t.Flush()
	for i, sc := range s.part.scenes {
		fmt.Fprintf(out, "%v: best %s\n", sc, s.best[i])
	}
}
