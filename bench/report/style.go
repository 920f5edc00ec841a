package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
)

// The page's colours. Each of series has a contrast of 3:1 at least with paper, and
// any two of them differ for people with normal sight, protanopia, deuteranopia
// and tritanopia; a test computes both. The first two are those of the two
// strategies to choose from.
type palette struct {
	paper, panel, ink, soft, line, link string
	series                              [8]string
}

var (
	light = palette{
		paper: "#ffffff", panel: "#f3f5f7", ink: "#16191d", soft: "#515a64", line: "#d3d9df", link: "#0b5cc4",
		series: [8]string{"#0b5cc4", "#c2410c", "#8d3370", "#8875b8", "#de3cfe", "#21a26f", "#48199e", "#7a060a"},
	}
	dark = palette{
		paper: "#14171c", panel: "#1e232a", ink: "#e9edf1", soft: "#a7b1bc", line: "#38414b", link: "#8cc2ff",
		series: [8]string{"#6cb2ff", "#ff9e4a", "#a423fd", "#a15045", "#f40396", "#59eab5", "#2386be", "#9b8a27"},
	}
)

func (p palette) css() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--paper:%s;--panel:%s;--ink:%s;--soft:%s;--line:%s;--link:%s", p.paper, p.panel, p.ink, p.soft,
		p.line, p.link)
	for i, c := range p.series {
		fmt.Fprintf(&b, ";--c%d:%s", i, c)
	}
	return b.String()
}

// style distinguishes policies without their names.
type style struct {
	Color, Dash, shape int
}

const dashes = 4 // with a rule each in page.css, 0 is solid

// giveStyles gives each policy its own. The two that are recommended most have
// their colours to themselves; of the others 24 differ in colour and shape, and
// more in the dash.
func giveStyles(ps []*policy) {
	n := 0
	for _, p := range ps {
		switch p.Name {
		case leastwork.Name:
			p.style = style{Color: 0, shape: 0}
		case cacheaware.Name:
			p.style = style{Color: 1, shape: 1}
		default:
			p.style = style{Color: 2 + n%6, Dash: (n/6 + n/24) % dashes, shape: n % len(shapes)}
			n++
		}
	}
}

// shapes are closed, so that an open one can mean something. Coordinates are those
// of a circle of radius 1.
var shapes = [8][][2]float64{
	nil, // a circle
	{{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}},
	{{0, -1.2}, {1.1, .8}, {-1.1, .8}},
	{{0, 1.2}, {1.1, -.8}, {-1.1, -.8}},
	{{0, -1.3}, {1.1, 0}, {0, 1.3}, {-1.1, 0}},
	{{-.4, -1.2}, {.4, -1.2}, {.4, -.4}, {1.2, -.4}, {1.2, .4}, {.4, .4}, {.4, 1.2}, {-.4, 1.2}, {-.4, .4}, {-1.2, .4},
		{-1.2, -.4}, {-.4, -.4}},
	star(),
	{{-1.2, 0}, {.8, -1.1}, {.8, 1.1}},
}

func star() [][2]float64 {
	p := make([][2]float64, 10)
	for i := range p {
		r := 1.45 - 0.8*float64(i%2)
		p[i] = [2]float64{r * math.Sin(math.Pi*float64(i)/5), -r * math.Cos(math.Pi*float64(i)/5)}
	}
	return p
}

// marker is the path of shape s around x, y.
func (s style) marker(x, y, r float64) string {
	if shapes[s.shape] == nil {
		return "M" + num(x-r) + " " + num(y) + "a" + num(r) + " " + num(r) + " 0 1 0 " + num(2*r) + " 0a" + num(r) + " " +
			num(r) + " 0 1 0 " + num(-2*r) + " 0z"
	}
	var b path
	for _, p := range shapes[s.shape] {
		b.to(x+r*p[0], y+r*p[1])
	}
	return b.String() + "z"
}

// num prints a coordinate.
func num(v float64) string {
	s := fmt.Sprintf("%.1f", v)
	s = strings.TrimSuffix(s, ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

// path is a line through points.
type path struct{ strings.Builder }

func (p *path) to(x, y float64) {
	c := "L"
	if p.Len() == 0 {
		c = "M"
	}
	p.WriteString(c + num(x) + " " + num(y))
}

// Glyph is the marker in the key.
func (s style) Glyph() string { return s.marker(15, 6, 3.6) }

// Short and ShortAbout fit on a page.
func (p *policy) Short() string      { return clip(p.Name, maxName) }
func (p *policy) ShortAbout() string { return clip(p.About, maxAbout) }
