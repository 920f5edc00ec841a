package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
)

// defaultWorkloads finish within two minutes on two cores, with defaultPolicies.
// Recorded ones that are not there are left out, and it is said.
var defaultWorkloads = []string{"mooncake-conversation", "b2b-saas", "agents"}

// plan is the set of runs.
type plan struct {
	options  *options
	sources  []trace.Source
	rates    []float64 // for all sources, if there are any
	policies []sim.Policy
	seeds    []uint64
	gateways []int
	cal      sim.Calibration
	speeds   []float64
	events   []sim.Event
	sharing  sim.Sharing

	notes map[cellKey]string // results of run that no sim.Cell has
}

func (o *options) kvEvents() sim.KVEvents {
	return sim.KVEvents{Lag: o.lag, Drop: o.drop, NoReplay: o.noReplay}
}

func (o *options) sharing() (sim.Sharing, error) {
	s := sim.Sharing{On: o.share >= 0, Lag: max(o.share, 0), Loss: o.shareLoss, Every: o.shareEvery,
		Paths: o.sharePaths}
	switch o.shareOnly {
	case "":
	case "cache":
		s.NoLoad = true
	case "load":
		s.NoCache = true
	default:
		return s, fmt.Errorf("-share-only: %q is neither cache nor load", o.shareOnly)
	}
	return s, nil
}

// cellKey identifies a cell.
type cellKey struct {
	workload, policy string
	rate             float64
	gateways         int
}

func keyOf(c *sim.Cell) cellKey { return cellKey{c.Workload, c.Policy, c.Rate, c.Gateways} }

func (o *options) plan(log io.Writer) (*plan, error) {
	p := &plan{options: o}
	var err error
	if p.sources, err = o.sources(log); err != nil {
		return nil, err
	}
	if p.policies, err = choose(o.policies); err != nil {
		return nil, err
	}
	if p.cal, err = sim.CalibrationByName(o.calibration); err != nil {
		return nil, fmt.Errorf("-calibration: %w", err)
	}
	if o.blocks < 0 || o.blocks > 1<<24 {
		return nil, fmt.Errorf("-blocks: %d is out of range", o.blocks)
	}
	if o.blocks > 0 {
		p.cal.Blocks = o.blocks
		p.cal.About += fmt.Sprintf("; %d blocks", o.blocks)
	}
	if p.sharing, err = o.sharing(); err != nil {
		return nil, err
	}
	if p.rates, err = numbers("rate", o.rates); err != nil {
		return nil, err
	}
	if p.speeds, err = numbers("speeds", o.speeds); err != nil {
		return nil, err
	}
	gateways, err := numbers("gateways", o.gateways)
	if err != nil {
		return nil, err
	}
	for _, g := range gateways {
		p.gateways = append(p.gateways, int(g))
	}
	seeds, err := numbers("seeds", o.seeds)
	if err != nil {
		return nil, err
	}
	if len(seeds) == 1 {
		for s := range int(min(seeds[0], 10_000)) {
			p.seeds = append(p.seeds, uint64(s+1))
		}
	} else {
		for _, s := range seeds {
			p.seeds = append(p.seeds, uint64(s))
		}
	}
	if len(p.seeds) == 0 || len(p.gateways) == 0 {
		return nil, errors.New("-seeds and -gateways need a number")
	}
	p.events, err = parseEvents(o.events)
	return p, err
}

// sources finds the workloads.
func (o *options) sources(log io.Writer) ([]trace.Source, error) {
	names, must := split(o.workloads), true
	if len(names) == 0 {
		names, must = defaultWorkloads, false
	}
	known := append(trace.Recorded(o.data), trace.Generated()...)
	var out []trace.Source
	for _, name := range names {
		var s trace.Source
		for _, k := range known {
			if k.Name == name {
				s = k
			}
		}
		if s.Build == nil {
			var err error
			if s, err = trace.File(name); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					err = fmt.Errorf("-workload: %q is neither a name (see -list) nor a file", name)
				}
				return nil, err
			}
		}
		if !must {
			if _, err := s.Build(1, 1); errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(log, "left out: %s (%v)\n", name, err)
				continue
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func numbers(name, list string) ([]float64, error) {
	var out []float64
	for _, s := range split(list) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v > 0 && v < 1e9) {
			return nil, fmt.Errorf("-%s: %q is not a positive number", name, s)
		}
		out = append(out, v)
	}
	return out, nil
}

// group is the runs that share a workload: built when the first one needs it, and
// given up after the last.
type group struct {
	build func() (*trace.Workload, error)
	left  atomic.Int32
}

type job struct {
	group *group
	cfg   sim.Config
	cell  int
	run   int
	still bool // without the events, to compare with
}

// run makes all runs, as many at a time as there are processors, and aggregates
// them. The result does not depend on how many that are.
func (p *plan) run(ctx context.Context, log io.Writer) (*sim.Study, error) {
	study := &sim.Study{Calibration: p.cal, Replicas: p.options.replicas, Seeds: p.seeds}
	for _, q := range p.policies {
		study.Policies = append(study.Policies, sim.PolicyInfo{Name: q.Name, About: q.About})
	}
	dies := slices.ContainsFunc(p.events, func(e sim.Event) bool { return e.Kind == sim.Die })
	var jobs []job
	cells := 0
	for _, s := range p.sources {
		study.Workloads = append(study.Workloads, sim.WorkloadInfo{Name: s.Name, About: s.About, Unit: s.Unit})
		rates := p.rates
		if len(rates) == 0 {
			rates = s.Rates
		}
		replicas := p.options.replicas
		if replicas == 0 {
			replicas = s.Replicas
		}
		for _, gateways := range p.gateways {
			for _, rate := range rates {
				for n, seed := range p.seeds {
					g := &group{}
					g.build = sync.OnceValues(func() (*trace.Workload, error) { return s.Build(rate, seed) })
					g.left.Store(int32(len(p.policies)))
					for k, q := range p.policies {
						j := job{group: g, cell: cells + k, run: n, cfg: sim.Config{
							Rate: rate, Policy: q, Seed: seed, Replicas: replicas, Calibration: p.cal, Speeds: p.speeds,
							Gateways: gateways, Scrape: p.options.scrape, KV: p.options.kvEvents(), Events: p.events,
							Tokens: p.options.tokens, Requests: true, Share: p.sharing,
						}}
						jobs = append(jobs, j)
						if dies {
							g.left.Add(1)
							j.still, j.cfg.Events, j.cfg.Requests = true, nil, false
							jobs = append(jobs, j)
						}
					}
				}
				cells += len(p.policies)
			}
		}
	}
	results, stills := make([][]*sim.Result, cells), make([][]*sim.Result, cells)
	for i := range results {
		results[i], stills[i] = make([]*sim.Result, len(p.seeds)), make([]*sim.Result, len(p.seeds))
	}
	if err := work(ctx, jobs, results, stills, log); err != nil {
		return nil, err
	}
	p.notes = make(map[cellKey]string)
	for i, runs := range results {
		var vs []recovery
		for k, r := range runs { // before NewCell, which keeps one timeline
			if stills[i][k] == nil {
				continue
			}
			if v, ok := recoveryOf(r, stills[i][k], p.events); ok {
				vs = append(vs, v)
			}
		}
		study.Cells = append(study.Cells, sim.NewCell(runs))
		p.notes[keyOf(&study.Cells[len(study.Cells)-1])] = recoveries(vs)
	}
	if study.Replicas == 0 && len(results) > 0 {
		study.Replicas = results[0][0].Replicas
	}
	return study, nil
}

func work(ctx context.Context, jobs []job, results, stills [][]*sim.Result, log io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bar := newProgress(log, "simulating", len(jobs))
	defer bar.end()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) || ctx.Err() != nil {
					return
				}
				j := &jobs[i]
				w, err := j.group.build()
				if err == nil {
					j.cfg.Workload = w
					var r *sim.Result
					if r, err = sim.Run(ctx, j.cfg); err == nil {
						if j.still {
							stills[j.cell][j.run] = r
						} else {
							results[j.cell][j.run] = r
						}
					}
					j.cfg.Workload = nil
				}
				if err != nil {
					cancel(err)
					return
				}
				if j.group.left.Add(-1) == 0 {
					j.group.build = nil
				}
				bar.step()
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// parseEvents reads -events.
func parseEvents(s string) ([]sim.Event, error) {
	var out []sim.Event
	for _, one := range fields(s, ';') {
		w := fields(one, ' ')
		bad := func() ([]sim.Event, error) {
			return nil, fmt.Errorf(
				"-events: %q is none of: die REPLICA AT [DOWN] [tell], slow REPLICA AT SPEED, join AT [SPEED]", one)
		}
		var e sim.Event
		arg := func(i int) string {
			if i < len(w) {
				return w[i]
			}
			return ""
		}
		ok := true
		duration := func(i int) (d time.Duration) {
			d, err := time.ParseDuration(arg(i))
			ok = ok && err == nil && d >= 0
			return d
		}
		number := func(i int) float64 {
			v, err := strconv.ParseFloat(arg(i), 64)
			ok = ok && err == nil && v >= 0
			return v
		}
		switch arg(0) {
		case "die":
			e = sim.Event{Kind: sim.Die, Replica: int(number(1)), At: duration(2)}
			rest := w[min(3, len(w)):]
			if n := len(rest); n > 0 && rest[n-1] == "tell" {
				e.Tell, rest = true, rest[:n-1]
			}
			if len(rest) == 1 {
				e.Down = duration(3)
			}
			ok = ok && len(rest) <= 1
		case "slow":
			e = sim.Event{Kind: sim.Slow, Replica: int(number(1)), At: duration(2), Speed: number(3)}
			ok = ok && len(w) == 4
		case "join":
			e = sim.Event{Kind: sim.Join, At: duration(1)}
			if len(w) > 2 {
				e.Speed = number(2)
			}
			ok = ok && len(w) <= 3
		default:
			return bad()
		}
		if !ok {
			return bad()
		}
		out = append(out, e)
	}
	return out, nil
}
