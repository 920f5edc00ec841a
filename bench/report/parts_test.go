package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/bench/sim"
)

type rgb [3]float64 // linear, 0..1

func linear(t *testing.T, hex string) rgb {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("%q is no colour", hex)
	}
	var c rgb
	for i := range c {
		v := float64(n>>(16-8*i)&255) / 255
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return c
}

// contrast is WCAG 2's.
func contrast(a, b rgb) float64 {
	y := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(y(a), y(b)) / min(y(a), y(b))
}

// sights are linear maps of people's colour vision (Machado, Oliveira and
// Fernandes, 2009, severity 1).
var sights = map[string][3]rgb{
	"normal":       {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}},
	"deuteranopia": {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}},
	"tritanopia":   {{1.255528, -.076749, -.178779}, {-.078411, .930809, .147602}, {.004733, .691367, .303900}},
}

// oklab is Ottosson's.
func oklab(c rgb) rgb {
	mul := func(m [3]rgb, c rgb) (out rgb) {
		for i, r := range m {
			for k := range r {
				out[i] += r[k] * c[k]
			}
		}
		return out
	}
	l := mul([3]rgb{{.4122214708, .5363325363, .0514459929}, {.2119034982, .6806995451, .1073969566},
		{.0883024619, .2817188376, .6299787005}}, c)
	for i := range l {
		l[i] = math.Cbrt(l[i])
	}
	return mul([3]rgb{{.2104542553, .7936177850, -.0040720468}, {1.9779984951, -2.4285922050, .4505937099},
		{.0259040371, .7827717662, -.8086757660}}, l)
}

func TestColours(t *testing.T) {
	for name, p := range map[string]palette{"light": light, "dark": dark} {
		paper, panel := linear(t, p.paper), linear(t, p.panel)
		for what, c := range map[string]string{"ink": p.ink, "soft": p.soft, "link": p.link} {
			for _, back := range []rgb{paper, panel} {
				if v := contrast(linear(t, c), back); v < 4.5 {
					t.Errorf("%s: text in %s has a contrast of %.2f", name, what, v)
				}
			}
		}
		for i, a := range p.series {
			if v := contrast(linear(t, a), paper); v < 3 {
				t.Errorf("%s: colour %d has a contrast of %.2f", name, i, v)
			}
			for k, b := range p.series[:i] {
				for sight, m := range sights {
					see := func(hex string) rgb {
						c := linear(t, hex)
						var out rgb
						for j, r := range m {
							out[j] = min(max(r[0]*c[0]+r[1]*c[1]+r[2]*c[2], 0), 1)
						}
						return oklab(out)
					}
					x, y := see(a), see(b)
					if d := math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2])); d < 0.09 {
						t.Errorf("%s: colours %d and %d are %.3f apart with %s", name, k, i, d, sight)
					}
				}
			}
		}
	}
}

func TestStylesDiffer(t *testing.T) {
	s := usual()
	s.policies = []string{"round_robin", "least_work", "x", "cache_aware"}
	for i := range 60 {
		s.policies = append(s.policies, fmt.Sprint("p", i))
	}
	seen, marks := map[style]string{}, map[[2]int]bool{}
	for i, p := range indexOf(s.make()).policies {
		if was := seen[p.style]; was != "" {
			t.Errorf("%s looks like %s: %+v", p.Name, was, p.style)
		}
		seen[p.style] = p.Name
		if k := [2]int{p.Color, p.shape}; i < 26 && marks[k] {
			t.Errorf("%s has the colour and shape of another: %v", p.Name, k)
		} else {
			marks[k] = true
		}
		if own := p.Name == "least_work" || p.Name == "cache_aware"; own != (p.Color < 2) || own != p.Own {
			t.Errorf("%s has colour %d, own: %v", p.Name, p.Color, p.Own)
		}
	}
}

func TestNamesDoNotOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		top, bottom, gap := 20.0, 300.0, 13.0
		ends := make([]end, r.IntN(int((bottom-top)/gap)+1))
		for i := range ends {
			ends[i] = end{name: strconv.Itoa(i), y: top + (bottom-top)*math.Pow(r.Float64(), 4)}
		}
		spread(ends, top, bottom, gap)
		for i, e := range ends {
			if e.at < top-1e-9 || e.at > bottom+1e-9 || i > 0 && (e.at < ends[i-1].at+gap-1e-9 || e.y < ends[i-1].y) {
				t.Fatalf("names at %+v", ends)
			}
		}
		alone := true
		for i := 1; i < len(ends); i++ {
			alone = alone && ends[i].y-ends[i-1].y >= gap
		}
		if alone && slices.ContainsFunc(ends, func(e end) bool { return math.Abs(e.at-e.y) > 1e-9 }) {
			t.Fatalf("names that have room were moved: %+v", ends)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, x := range []struct {
		s    scale
		want []float64
	}{
		{scale{from: 0, to: 1}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{scale{from: 0, to: 7}, []float64{0, 1, 2, 3, 4, 5, 6, 7}},
		{scale{from: 0.31, to: 0.42}, []float64{0.32, 0.34, 0.36, 0.38, 0.40, 0.42}},
		{scale{from: 0.15, to: 30, log: true}, []float64{0.2, 0.5, 1, 2, 5, 10, 20}},
		{scale{from: 0.01, to: 300, log: true}, nil},
	} {
		got := x.s.ticks()
		if x.want == nil {
			if len(got) < 3 || len(got) > 10 {
				t.Errorf("%+v: %v", x.s, got)
			}
			continue
		}
		if d := cmp.Diff(x.want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
			t.Errorf("%+v: %s", x.s, d)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.05: "0.05", 1000: "1000", 20000: "20k", 2.5e6: "2.5M", 3e9: "3G"} {
		if got := tickName(v); got != want {
			t.Errorf("tick %v is %q, want %q", v, got, want)
		}
	}
}

func TestScale(t *testing.T) {
	s := scale{from: 1, to: 100, a: 10, b: 30, log: true}
	for v, want := range map[float64]float64{1: 10, 10: 20, 100: 30, 0: 10, -5: 10, 1e9: 30} {
		if got := s.of(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
	if got := (scale{from: 5, to: 5, a: 10, b: 30}).of(5); got != 20 {
		t.Errorf("the only value is at %v", got)
	}
}

func TestThinKeepsPeaks(t *testing.T) {
	in := make([]sim.Sample, 777)
	in[400].InFlight, in[776].Waiting = 55, 7
	out := thin(in)
	most, waiting := 0, 0
	for _, s := range out {
		most, waiting = max(most, s.InFlight), max(waiting, s.Waiting)
	}
	if len(out) != maxSamples || most != 55 || waiting != 7 {
		t.Errorf("%d samples with at most %d and %d", len(out), most, waiting)
	}
	if got := thin(in[:3]); len(got) != 3 {
		t.Errorf("%d samples of 3", len(got))
	}
}

func TestSeedList(t *testing.T) {
	for want, in := range map[string][]uint64{"": nil, "7": {7}, "1, 2": {1, 2}, "1 to 5": {1, 2, 3, 4, 5},
		"1 to 3, 9, 4": {1, 2, 3, 9, 4}} {
		if got := seedList(in); got != want {
			t.Errorf("%v is %q, want %q", in, got, want)
		}
	}
}
