package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/warmroute/router/bench/sim"
)

type kind uint8

const (
	aTime  kind = iota // seconds
	aShare             // next to the ideal
	aRatio             // 1 at the least
)

// measure is one thing that is plotted.
type measure struct {
	id, title, yLabel string
	get               func(*sim.Cell) sim.Interval
	kind              kind
}

var measures = []measure{
	{"ttft", "Mean TTFT over load", "seconds", func(c *sim.Cell) sim.Interval { return c.TTFT }, aTime},
	{"p99", "p99 of TTFT over load", "seconds", func(c *sim.Cell) sim.Interval { return c.P99 }, aTime},
	{"hits", "Hit share over load", "share of prompt tokens", func(c *sim.Cell) sim.Interval { return c.HitShare },
		aShare},
	{"balance", "Balance over load: computed tokens, max/mean", "greatest over mean of the replicas",
		func(c *sim.Cell) sim.Interval { return c.MaxMeanTokens }, aRatio},
}

// overLoad plots each measure over the loads of a fleet; with one load only, a row
// for each policy.
func (d *study) overLoad(id string, f *fleet, chosen []*policy) (out []figure) {
	loads := f.loads
	note := ""
	if n := len(loads); n > maxLoads {
		// Evenly spaced ones.
		loads = make([]*load, maxLoads)
		for i := range loads {
			loads[i] = f.loads[i*(n-1)/(maxLoads-1)]
		}
		note = fmt.Sprintf("%d of %d loads are drawn.", maxLoads, n)
	}
	var ticks []tick
	for _, l := range loads {
		if drawable(l.rate) {
			ticks = append(ticks, tick{l.rate, plain(l.rate)})
		}
	}
	for _, m := range measures {
		if len(ticks) < 2 {
			out = append(out, d.oneLoad(id, m, loads[0]))
			continue
		}
		lo, hi := ticks[0].at, ticks[len(ticks)-1].at
		p := lines{id: id + "-" + m.id, title: m.title, yLabel: m.yLabel, xLabel: "load", near: m.kind != aTime,
			mayLog: m.kind != aShare, ticks: ticks,
			logX: lo > 0 && hi > 20*lo}
		if u := f.work.Unit; u != "" {
			p.xLabel = "load, " + clip(u, 20)
		}
		p.desc = fmt.Sprintf("A line for each of %s; the tables below give all numbers.",
			count(len(chosen), "policy", "policies"))
		for _, q := range chosen {
			var ps []point
			for _, l := range loads {
				if c := l.cell(q.Name); c != nil && drawable(l.rate) {
					ps = m.point(ps, l.rate, rateName(l.rate, f.work.Unit), c)
				}
			}
			p.lines = append(p.lines, line{q, ps})
		}
		if m.kind == aShare {
			p.references = ideals(loads, func(_ int, l *load) float64 { return l.rate })
		}
		out = append(out, figure{Title: m.title, Note: note, Charts: []chart{p.draw(frames[0]), p.draw(frames[1])}})
	}
	return out
}

func (m *measure) show(v float64) string {
	switch m.kind {
	case aTime:
		return seconds(v)
	case aShare:
		return fixed(v, 3)
	}
	return fixed(v, 2)
}

// point appends c's, if it can be drawn.
func (m *measure) point(ps []point, x float64, at string, c *sim.Cell) []point {
	v := m.get(c)
	if !drawable(v.Mean) || m.kind == aTime && v.Mean == 0 {
		return ps
	}
	if !drawable(v.Half) {
		v.Half = 0
	}
	tip := fmt.Sprintf("%s at %s: %s", clip(c.Policy, maxName), at, m.show(v.Mean))
	if v.Half > 0 {
		tip += " ±" + m.show(v.Half)
	}
	if saturated(c) {
		tip += ", saturated"
	}
	return append(ps, point{x: x, y: v.Mean, half: v.Half, open: saturated(c), tip: tip})
}

// ideals are the ideal and the pooled share, each over the range of the
// policies' own orders of requests.
func ideals(loads []*load, x func(int, *load) float64) []reference {
	of := func(name, class string, get func(*sim.Cell) float64) reference {
		r := reference{name: name, class: class}
		for i, l := range loads {
			lo, hi := math.Inf(1), math.Inf(-1)
			for _, c := range l.cells {
				if v := get(c); drawable(v) {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
			if lo <= hi && drawable(x(i, l)) {
				r.points = append(r.points, point{x: x(i, l), y: (lo + hi) / 2, half: (hi - lo) / 2})
			}
		}
		return r
	}
	return []reference{
		of("ideal", "ideal", func(c *sim.Cell) float64 { return c.IdealShare.Mean }),
		of("pooled memory", "pooled", func(c *sim.Cell) float64 { return c.PooledShare.Mean }),
	}
}

// oneLoad is the plot of a measure at a single load.
func (d *study) oneLoad(id string, m measure, l *load) figure {
	title := map[string]string{"ttft": "Mean TTFT", "p99": "p99 of TTFT", "hits": "Hit share",
		"balance": "Computed tokens, max/mean"}[m.id]
	p := rows{id: id + "-" + m.id, title: title, xLabel: m.yLabel, mayLog: m.kind != aShare, right: " ",
		desc: "One row for each policy, the best by mean TTFT first."}
	ideal := 0.0
	for _, c := range l.best() {
		q := d.byName[c.Policy]
		r := row{policy: q, open: saturated(c), right: "–"}
		if ps := m.point(nil, 0, rateName(l.rate, l.fleet.work.Unit), c); len(ps) > 0 {
			r.values, r.half, r.tip = []float64{ps[0].y}, ps[0].half, ps[0].tip
			r.right = m.show(ps[0].y)
		}
		if finite(c.IdealShare.Mean) {
			ideal = max(ideal, c.IdealShare.Mean)
		}
		if len(p.rows) < maxDrawn {
			p.rows = append(p.rows, r)
		}
	}
	f := figure{Title: title}
	if m.kind == aShare {
		f.Note = fmt.Sprintf("The ideal is %s.", fixed(ideal, 3))
	}
	for _, fr := range frames {
		f.Charts = append(f.Charts, p.draw(fr))
	}
	return f
}

// overGateways plots mean TTFT and hit share over the number of gateways at l's
// rate.
func (d *study) overGateways(id string, w *workload, l *load, chosen []*policy) (out []figure) {
	var loads []*load
	var ticks []tick
	for _, f := range w.fleets[:min(len(w.fleets), maxFleets)] {
		if at := f.at(l.rate); at != nil {
			ticks = append(ticks, tick{float64(len(loads)), strconv.Itoa(f.gateways)})
			loads = append(loads, at)
		}
	}
	if len(loads) < 2 {
		return nil
	}
	for _, m := range []measure{measures[0], measures[2]} {
		title := map[string]string{"ttft": "Mean TTFT over gateways", "hits": "Hit share over gateways"}[m.id]
		p := lines{id: id + "-gateways-" + m.id, title: title, yLabel: m.yLabel, xLabel: "gateways that share nothing",
			mayLog: m.kind != aShare, ticks: ticks,
			near: m.kind != aTime, desc: "A line for each policy; the tables below give all numbers."}
		for _, q := range chosen {
			var ps []point
			for i, l := range loads {
				if c := l.cell(q.Name); c != nil {
					ps = m.point(ps, float64(i), count(l.fleet.gateways, "gateway", "gateways"), c)
				}
			}
			p.lines = append(p.lines, line{q, ps})
		}
		if m.kind == aShare {
			p.references = ideals(loads, func(i int, _ *load) float64 { return float64(i) })
		}
		out = append(out, figure{Title: title, Charts: []chart{p.draw(frames[0]), p.draw(frames[1])}})
	}
	return out
}
