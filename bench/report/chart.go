package report

import (
	"cmp"
	"math"
	"slices"
)

// chart is one drawing. Its parts are drawn in the order of the fields.
type chart struct {
	ID, Class   string
	W, H        float64
	Title, Desc string
	Rules       []rule
	Texts       []text
	Series      []series
}

type rule struct{ Class, D string }

type text struct {
	Class string
	X, Y  string
	S     string
}

// series is the appearance of one policy.
type series struct {
	*policy
	Band, Line string
	Marks      []mark
	Leader     string
	Texts      []text
}

type mark struct {
	Class, D, Tip string
}

func label(class string, x, y float64, s string) text { return text{class, num(x), num(y), s} }

// frame is the space of a chart. Each is drawn for a wide and for a narrow
// page, so that its text stays as large as the page's.
type frame struct {
	class                string
	w, h                 float64
	left, right, top     float64
	bottom, font, labels float64 // labels is the space for the names of the policies
}

var frames = []frame{
	{class: "wide", w: 600, h: 380, left: 46, right: 14, top: 26, bottom: 40, font: 11.5, labels: 158},
	{class: "narrow", w: 336, h: 360, left: 38, right: 8, top: 26, bottom: 38, font: 10.5, labels: 118},
}

// figure is one plot in both forms.
type figure struct {
	Title, Note string
	Charts      []chart
}

// point is a value and half the width of its interval.
type point struct {
	x       float64
	y, half float64
	open    bool // drawn open: most runs were saturated
	tip     string
}

type line struct {
	policy *policy
	points []point
}

// reference is a line that is no policy's.
type reference struct {
	name, class string
	points      []point
}

// lines is a plot of values over load.
type lines struct {
	id, title, desc, xLabel, yLabel string
	ticks                           []tick // of the x axis
	lines                           []line
	references                      []reference
	logX, mayLog                    bool // mayLog: the y axis is logarithmic if the values need it
	near                            bool // the y axis need not begin at 0
}

type tick struct {
	at   float64
	name string
}

// draw returns the plot in a frame.
func (p *lines) draw(f frame) chart {
	gap := f.font + 1.5
	names := 0
	for _, l := range p.lines {
		if len(l.points) > 0 {
			names++
		}
	}
	f.h = max(f.h, gap*float64(names+len(p.references))+f.top+f.bottom)
	c := chart{ID: p.id + "-" + f.class, Class: f.class, W: f.w, H: f.h, Title: p.title, Desc: p.desc}
	x0, x1, y0, y1 := f.left, f.w-f.right-f.labels, f.h-f.bottom, f.top
	y := p.scaleY(y0, y1)
	x := scale{from: p.ticks[0].at, to: p.ticks[len(p.ticks)-1].at, a: x0 + 8, b: x1 - 6, log: p.logX}
	c.Texts = append(c.Texts, label("t", x0-f.left+2, f.top-12, p.yLabel), label("t mid", (x0+x1)/2, f.h-6, p.xLabel))
	for _, t := range y.ticks() {
		c.Rules = append(c.Rules, rule{"tick", "M" + num(x0) + " " + num(y.of(t)) + "H" + num(x1)})
		c.Texts = append(c.Texts, label("t end", x0-5, y.of(t)+4, tickName(t)))
	}
	last := math.Inf(-1)
	for _, t := range p.ticks {
		at := x.of(t.at)
		c.Rules = append(c.Rules, rule{"axis", "M" + num(at) + " " + num(y0) + "v4"})
		if at-last > 7+6.5*float64(len(t.name)) {
			c.Texts = append(c.Texts, label("t mid", at, y0+16, t.name))
			last = at
		}
	}
	c.Rules = append(c.Rules, rule{"axis", "M" + num(x0) + " " + num(y0) + "H" + num(x1)})
	var ends []end
	for _, r := range p.references {
		band, d := trace(r.points, x, y)
		c.Rules = append(c.Rules, rule{r.class + " band", band}, rule{r.class, d})
		if n := len(r.points); n > 0 {
			ends = append(ends, end{y: y.of(r.points[n-1].y), name: r.name, from: x.of(r.points[n-1].x)})
		}
	}
	// The emphasised ones lie on top.
	order := slices.Clone(p.lines)
	slices.SortStableFunc(order, func(a, b line) int { return cmp.Compare(truth(a.policy.Own), truth(b.policy.Own)) })
	for _, l := range order {
		s := series{policy: l.policy}
		s.Band, s.Line = trace(l.points, x, y)
		r := 3.1
		if l.policy.Own {
			r = 4
		}
		for _, q := range l.points {
			class := "m"
			if q.open {
				class = "m open"
			}
			s.Marks = append(s.Marks, mark{class, l.policy.marker(x.of(q.x), y.of(q.y), r), q.tip})
		}
		c.Series = append(c.Series, s)
		if n := len(l.points); n > 0 {
			ends = append(ends, end{y: y.of(l.points[n-1].y), name: l.policy.Name, from: x.of(l.points[n-1].x),
				series: len(c.Series)})
		}
	}
	spread(ends, y1, y0, gap)
	for _, e := range ends {
		leader := "M" + num(e.from+5) + " " + num(e.y) + "L" + num(x1+3) + " " + num(e.y) + "L" + num(x1+15) + " " +
			num(e.at) + "h4"
		t := label("n", x1+22, e.at+f.font*0.34, shorten(e.name, f.labels-20, f.font))
		if e.series == 0 {
			c.Rules = append(c.Rules, rule{"leader", leader})
			c.Texts = append(c.Texts, t)
			continue
		}
		s := &c.Series[e.series-1]
		s.Leader, s.Texts = leader, []text{t}
	}
	return c
}

// trace returns the interval around points, and the line through them.
func trace(ps []point, x, y scale) (band, d string) {
	var up, mid path
	wide := false
	for _, q := range ps {
		up.to(x.of(q.x), y.of(q.y+q.half))
		mid.to(x.of(q.x), y.of(q.y))
		wide = wide || q.half > 0
	}
	if len(ps) < 2 {
		return "", ""
	}
	if !wide {
		return "", mid.String()
	}
	for _, q := range slices.Backward(ps) {
		up.to(x.of(q.x), y.of(q.y-q.half))
	}
	return up.String() + "z", mid.String()
}

func (p *lines) scaleY(a, b float64) scale {
	lo, hi, top, none := math.Inf(1), 0.0, 0.0, false
	see := func(q point) {
		none = none || q.y <= 0
		hi, top = max(hi, q.y), max(top, q.y+q.half)
		if q.y > 0 {
			lo = min(lo, q.y)
		}
	}
	for _, l := range p.lines {
		for _, q := range l.points {
			see(q)
		}
	}
	for _, r := range p.references {
		for _, q := range r.points {
			see(q)
		}
	}
	if p.mayLog && hi > 6*lo {
		return scale{from: lo / 1.15, to: hi * 1.15, a: a, b: b, log: true}
	}
	if hi <= 0 {
		return scale{from: 0, to: 1, a: a, b: b}
	}
	s := scale{from: 0, to: min(top, 1.5*hi) * 1.04, a: a, b: b}
	if p.near && lo > 0.5*hi && !none {
		// Small differences stay small.
		s.from, s.to = min(lo, 0.9*hi)*0.98, max(s.to/1.04, 1.02*hi)
	}
	return s
}

// scale maps from..to to a..b, and values outside to the nearer end.
type scale struct {
	from, to, a, b float64
	log            bool
}

func (s scale) of(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(max(v, s.from))
	}
	if to == from {
		return (s.a + s.b) / 2
	}
	return s.a + (s.b-s.a)*min(max((v-from)/(to-from), 0), 1)
}

// ticks are round numbers between the ends, about six.
func (s scale) ticks() []float64 {
	var out []float64
	if s.log {
		for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
			out = out[:0]
			for e := math.Floor(math.Log10(s.from)); e <= math.Log10(s.to); e++ {
				for _, m := range steps {
					if v := m * math.Pow(10, e); v >= s.from && v <= s.to {
						out = append(out, v)
					}
				}
			}
			if len(out) <= 8 {
				break
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((s.to-s.from)/4)))
	for _, m := range []float64{5, 2} {
		if (s.to-s.from)/(m*step) >= 4 {
			step *= m
			break
		}
	}
	first := math.Ceil(s.from/step - 1e-9)
	for i := range 20 {
		v := (first + float64(i)) * step
		if v > s.to {
			break
		}
		out = append(out, v)
	}
	return out
}

// end is the point where a line ends and its name is written.
type end struct {
	name     string
	from     float64 // x
	y, at    float64
	series   int // 1 + its index
	n        int
	sum, pos float64
}

// spread moves the names apart as little as it can, within top..bottom.
func spread(ends []end, top, bottom, gap float64) {
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.y, b.y) })
	// Runs of names that touch, each at the mean of the wanted positions of its
	// members.
	var runs []end
	place := func(r *end) {
		r.pos = max(top, min(r.sum/float64(r.n), bottom-gap*float64(r.n-1)))
	}
	for i := range ends {
		r := end{n: 1, sum: ends[i].y}
		place(&r)
		for len(runs) > 0 {
			p := runs[len(runs)-1]
			if r.pos >= p.pos+gap*float64(p.n) {
				break
			}
			// A member's wish is for the run's start.
			r.sum += p.sum - gap*float64(p.n*r.n)
			r.n += p.n
			place(&r)
			runs = runs[:len(runs)-1]
		}
		runs = append(runs, r)
	}
	i := 0
	for _, r := range runs {
		for k := range r.n {
			ends[i].at = r.pos + gap*float64(k)
			i++
		}
	}
}

// shorten cuts a name to fit into width at a font size.
func shorten(s string, width, font float64) string {
	r := []rune(s)
	if n := max(2, int(width/(font*0.56))); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
