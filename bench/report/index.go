package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// emphasised are the library's strategies that look at the prompt's cache: they are
// drawn thick. The first two have colours of their own.
var emphasised = []string{leastwork.Name, cacheaware.Name, "precise_cache_aware", "lmcache_aware", pipeline.Name}

// ownNames are all strategies of the library: one of them is recommended.
var ownNames = append([]string{leastload.Name, poweroftwo.Name, roundrobin.Name, random.Name, consistenthash.Name},
	emphasised...)

// policy is one policy and how it is drawn, the same everywhere on the page.
type policy struct {
	Index int
	Name  string
	About string
	Own   bool // drawn thick
	style
}

// study is a sim.Study by workload, gateways and rate.
type study struct {
	*sim.Study
	policies  []*policy
	byName    map[string]*policy
	workloads []*workload
	repeated  int // cells that are there already
}

type workload struct {
	sim.WorkloadInfo
	fleets []*fleet // by number of gateways, the least first
}

// fleet is a workload's cells with one number of gateways.
type fleet struct {
	work     *workload
	gateways int
	loads    []*load // the least rate first
}

// load is the cells that share workload, gateways and rate, in the order of the
// study's policies.
type load struct {
	fleet *fleet
	rate  float64
	cells []*sim.Cell
}

func indexOf(s *sim.Study) *study {
	d := &study{Study: s, byName: map[string]*policy{}}
	addPolicy := func(name, about string) {
		if d.byName[name] == nil {
			p := &policy{Index: len(d.policies), Name: name, About: about, Own: slices.Contains(emphasised, name)}
			d.policies, d.byName[name] = append(d.policies, p), p
		}
	}
	for _, p := range s.Policies {
		addPolicy(p.Name, p.About)
	}
	byName := map[string]*workload{}
	addWorkload := func(i sim.WorkloadInfo) {
		if byName[i.Name] == nil {
			w := &workload{WorkloadInfo: i}
			d.workloads, byName[i.Name] = append(d.workloads, w), w
		}
	}
	for _, w := range s.Workloads {
		addWorkload(w)
	}
	type key struct {
		workload string
		gateways int
		rate     uint64 // bits, so that NaN is a key
	}
	fleets, loads := map[key]*fleet{}, map[key]*load{}
	for i := range s.Cells {
		c := &s.Cells[i]
		addPolicy(c.Policy, "")
		addWorkload(sim.WorkloadInfo{Name: c.Workload})
		k := key{workload: c.Workload, gateways: c.Gateways}
		f := fleets[k]
		if f == nil {
			w := byName[c.Workload]
			f = &fleet{work: w, gateways: c.Gateways}
			fleets[k], w.fleets = f, append(w.fleets, f)
		}
		k.rate = math.Float64bits(c.Rate)
		l := loads[k]
		if l == nil {
			l = &load{fleet: f, rate: c.Rate}
			loads[k], f.loads = l, append(f.loads, l)
		}
		if l.cell(c.Policy) != nil {
			d.repeated++
			continue
		}
		l.cells = append(l.cells, c)
	}
	for _, w := range d.workloads {
		slices.SortStableFunc(w.fleets, func(a, b *fleet) int { return cmp.Compare(a.gateways, b.gateways) })
		for _, f := range w.fleets {
			slices.SortStableFunc(f.loads, func(a, b *load) int { return cmp.Compare(a.rate, b.rate) })
			for _, l := range f.loads {
				slices.SortStableFunc(l.cells, func(a, b *sim.Cell) int {
					return cmp.Compare(d.byName[a.Policy].Index, d.byName[b.Policy].Index)
				})
			}
		}
	}
	giveStyles(d.policies)
	return d
}

func (l *load) cell(policy string) *sim.Cell {
	for _, c := range l.cells {
		if c.Policy == policy {
			return c
		}
	}
	return nil
}

// best returns the cells with the least mean TTFT first; cells without one are last.
func (l *load) best() []*sim.Cell {
	out := slices.Clone(l.cells)
	slices.SortStableFunc(out, func(a, b *sim.Cell) int {
		x, y := a.TTFT.Mean, b.TTFT.Mean
		if positive(x) && positive(y) {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(truth(!positive(x)), truth(!positive(y)))
	})
	return out
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// drawable says that v can be on an axis.
func drawable(v float64) bool { return v >= 0 && v <= 1e15 }

func positive(v float64) bool { return finite(v) && v > 0 }

// saturated says that most runs of c were.
func saturated(c *sim.Cell) bool { return c.Saturated > 0 && 2*c.Saturated > len(c.Runs) }

func firstRun(c *sim.Cell) *sim.Result {
	if len(c.Runs) == 0 || c.Runs[0] == nil {
		return &sim.Result{}
	}
	return c.Runs[0]
}

// winner is the policy with the least mean TTFT of those that keep up: most of
// their runs are not saturated, and they lose at most a request in a thousand more
// than the one that loses least. nil: there is none.
func (l *load) winner() *sim.Cell {
	lost := func(c *sim.Cell) float64 { return float64(c.Lost) / float64(max(1, c.Requests)) }
	least := math.Inf(1)
	for _, c := range l.cells {
		least = min(least, lost(c))
	}
	for _, c := range l.best() {
		if positive(c.TTFT.Mean) && !saturated(c) && lost(c) <= least+1e-3 {
			return c
		}
	}
	return nil
}

// shown is the load at which one has to be chosen: the greatest with which a
// policy keeps up, else the least.
func (f *fleet) shown() *load {
	for _, l := range slices.Backward(f.loads) {
		if l.winner() != nil {
			return l
		}
	}
	return f.loads[0]
}

func (f *fleet) at(rate float64) *load {
	for _, l := range f.loads {
		if l.rate == rate {
			return l
		}
	}
	return nil
}

// close says that c's mean TTFT is as good as best's: within 5%, or, with three
// seeds or more, not distinguishable from it (95%, paired over the seeds).
func closeTo(c, best *sim.Cell) bool {
	if c == best || c.TTFT.Mean <= 1.05*best.TTFT.Mean {
		return positive(c.TTFT.Mean)
	}
	d := paired(c, best)
	return d.n >= 3 && d.Mean-d.Half <= 0
}

type difference struct {
	sim.Interval
	n int
}

// paired is the difference of mean TTFT, a minus b, over the seeds that both have.
func paired(a, b *sim.Cell) difference {
	var v []float64
	for _, x := range a.Runs {
		for _, y := range b.Runs {
			if x != nil && y != nil && x.Seed == y.Seed {
				v = append(v, x.TTFT.Mean-y.TTFT.Mean)
				break
			}
		}
	}
	return difference{sim.IntervalOf(v), len(v)}
}
