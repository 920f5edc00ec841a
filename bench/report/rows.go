package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/warmroute/router/bench/sim"
)

// rows is a plot with a row of dots for each policy.
type rows struct {
	id, title, desc, xLabel, right string
	rows                           []row
	mayLog                         bool
}

type row struct {
	policy *policy
	values []float64
	half   float64 // of an interval around the one value
	open   bool
	right  string // printed at the end
	tip    string
}

func (p *rows) draw(f frame) chart {
	pitch := f.font + 5.5
	f.top, f.bottom = 30, 22
	f.left, f.right = f.labels, 50
	f.h = pitch*float64(len(p.rows)) + f.top + f.bottom
	c := chart{ID: p.id + "-" + f.class, Class: f.class + " rows", W: f.w, H: f.h, Title: p.title, Desc: p.desc}
	x0, x1, y0 := f.left, f.w-f.right, f.h-f.bottom
	x := p.scaleX(x0+4, x1-4)
	for i, t := range x.ticks() {
		at := x.of(t)
		c.Rules = append(c.Rules, rule{"tick", "M" + num(at) + " " + num(f.top-4) + "V" + num(y0)})
		if f.class == "wide" || i%2 == 0 || x.log {
			c.Texts = append(c.Texts, label("t mid", at, y0+14, tickName(t)))
		}
	}
	c.Texts = append(c.Texts, label("t mid", (x0+x1)/2, 12, p.xLabel), label("t end", f.w-2, 12, p.right))
	for i, r := range p.rows {
		y := f.top + pitch*(float64(i)+0.5)
		s := series{policy: r.policy}
		s.Texts = append(s.Texts, label("n end", x0-6, y+f.font*0.34, shorten(r.policy.Name, f.labels-8, f.font)),
			label("t end", f.w-2, y+f.font*0.34, r.right))
		if n := len(r.values); n > 0 {
			from, to := slices.Min(r.values), slices.Max(r.values)
			s.Line = "M" + num(x.of(from-r.half)) + " " + num(y) + "H" + num(x.of(to+r.half))
		}
		size := 3.2
		if r.policy.Own {
			size = 4
		}
		class := "m see"
		if r.open {
			class = "m open"
		}
		for k, v := range r.values {
			m := mark{Class: class, D: r.policy.marker(x.of(v), y, size)}
			if k == 0 {
				m.Tip = r.tip
			}
			s.Marks = append(s.Marks, m)
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func (p *rows) scaleX(a, b float64) scale {
	lo, hi, top := math.Inf(1), 0.0, 0.0
	for _, r := range p.rows {
		for _, v := range r.values {
			hi, top = max(hi, v), max(top, v+r.half)
			if v > 0 {
				lo = min(lo, v)
			}
		}
	}
	if p.mayLog && hi > 6*lo {
		return scale{from: lo / 1.15, to: hi * 1.15, a: a, b: b, log: true}
	}
	if hi <= 0 {
		hi, top = 1, 1
	}
	return scale{from: 0, to: min(top, 1.5*hi), a: a, b: b}
}

// maxDots bounds the dots in a row: with more replicas, they are quantiles.
const maxDots = 48

func dots(v []float64) []float64 {
	if len(v) <= maxDots {
		return v
	}
	v = slices.Sorted(slices.Values(v))
	out := make([]float64, maxDots)
	for i := range out {
		out[i] = v[i*(len(v)-1)/(maxDots-1)]
	}
	return out
}

// replicas plots the load of each replica in one run.
func replicas(id, title, unit string, d *study, cells []*sim.Cell, get func(*sim.Replica) float64,
	maxMean func(*sim.Cell) sim.Interval) figure {
	p := rows{id: id, title: title, xLabel: unit, right: "max/mean",
		desc: "One row for each policy, a dot for each replica. The tables give the greatest over the mean."}
	most := 0
	for _, c := range cells {
		r := row{policy: d.byName[c.Policy], right: fixed(maxMean(c).Mean, 2), open: saturated(c)}
		run := firstRun(c)
		most = max(most, len(run.PerReplica))
		for i := range run.PerReplica {
			if v := get(&run.PerReplica[i]); drawable(v) {
				r.values = append(r.values, v)
			}
		}
		if len(r.values) > 0 {
			r.tip = fmt.Sprintf("%s: %s to %s", clip(c.Policy, maxName), amount(slices.Min(r.values)),
				amount(slices.Max(r.values)))
		}
		r.values = dots(r.values)
		p.rows = append(p.rows, r)
	}
	f := figure{Title: title}
	if most > maxDots {
		f.Note = fmt.Sprintf("Of %d replicas, %d evenly spaced quantiles are drawn.", most, maxDots)
	}
	for _, fr := range frames {
		f.Charts = append(f.Charts, p.draw(fr))
	}
	return f
}

// panel is one policy's time line.
type panel struct {
	*policy
	Chart chart
	Note  string
}

// maxSamples bounds a time line; longer ones show the greatest of each stretch.
const maxSamples = 80

func thin(s []sim.Sample) (out []sim.Sample) {
	n := min(len(s), maxSamples)
	for i := range n {
		var m sim.Sample
		for _, v := range s[i*len(s)/n : (i+1)*len(s)/n] {
			m.InFlight, m.Waiting = max(m.InFlight, v.InFlight), max(m.Waiting, v.Waiting)
		}
		out = append(out, m)
	}
	return out
}

// timelines draws in flight and waiting over time, of one run of each policy, all
// on the same axes, with the first policy's line behind each.
func timelines(id string, d *study, cells []*sim.Cell) (ps []panel) {
	most, span := 1, 0.0
	for _, c := range cells {
		r := firstRun(c)
		for _, s := range r.Timeline {
			most = max(most, s.InFlight, s.Waiting)
		}
		if v := r.TimelineStep * float64(len(r.Timeline)); drawable(v) {
			span = max(span, v)
		}
	}
	if span <= 0 {
		return nil
	}
	const w, h, left, top, bottom = 150.0, 92.0, 30.0, 8.0, 80.0
	x := scale{from: 0, to: span, a: left, b: w - 6}
	// log(1 + v), so that 0 has a place.
	y := scale{from: 1, to: float64(most) + 1, a: bottom, b: top, log: true}
	of := func(v int) float64 { return y.of(float64(v) + 1) }
	draw := func(r *sim.Result) (flight, waiting string) {
		var f, q path
		ss := thin(r.Timeline)
		q.to(left, bottom)
		for i, s := range ss {
			at := x.of(r.TimelineStep * float64(len(r.Timeline)) * (float64(i) + 0.5) / float64(len(ss)))
			f.to(at, of(s.InFlight))
			q.to(at, of(s.Waiting))
			if i == len(ss)-1 {
				q.to(at, bottom)
			}
		}
		return f.String(), q.String() + "z"
	}
	reference := ""
	for i, c := range cells {
		p := d.byName[c.Policy]
		r := firstRun(c)
		if len(r.Timeline) == 0 || !positive(r.TimelineStep) {
			continue
		}
		flight, waiting := draw(r)
		peak, queued := 0, 0
		for _, s := range r.Timeline {
			peak, queued = max(peak, s.InFlight), max(queued, s.Waiting)
		}
		ch := chart{ID: id + "-" + strconv.Itoa(p.Index), Class: "small", W: w, H: h,
			Title: "In flight over time: " + p.Short(),
			Desc: fmt.Sprintf("At most %d in flight, %d of them waiting to be admitted, in %s.", peak, queued,
				clock(r.TimelineStep*float64(len(r.Timeline))))}
		for v := 0; v <= most && v < 1e9; v = max(1, v*10) {
			ch.Rules = append(ch.Rules, rule{"tick", "M" + num(left) + " " + num(of(v)) + "H" + num(w-6)})
			if v != 1 { // too near 0
				ch.Texts = append(ch.Texts, label("t end", left-4, of(v)+3.5, tickName(float64(v))))
			}
		}
		ch.Texts = append(ch.Texts, label("t", left, h-1, "0"), label("t end", w-2, h-1, clock(span)))
		if reference != "" {
			ch.Rules = append(ch.Rules, rule{"back", reference})
		}
		if i == 0 {
			reference = flight
		}
		s := series{policy: p, Band: waiting, Line: flight}
		ch.Series = []series{s}
		ps = append(ps, panel{policy: p, Chart: ch, Note: fmt.Sprintf("at most %s, %s waiting", whole(peak), whole(queued))})
	}
	return ps
}
