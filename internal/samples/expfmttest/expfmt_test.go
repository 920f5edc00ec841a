package expfmttest

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warmroute/router/internal/samples"
)

// theirs reads text with expfmt. ok is false if expfmt refuses it or panics.
func theirs(text string) (out []string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	p := expfmt.NewTextParser(model.UTF8Validation)
	fs, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, false
	}
	for name, f := range fs {
		for _, m := range f.GetMetric() {
			out = append(out, theirSample(name, m))
		}
	}
	slices.Sort(out)
	return out, true
}

func theirSample(name string, m *dto.Metric) string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return show(name, labels, m.GetUntyped().GetValue())
}

func ourSample(s samples.Sample) string {
	labels := map[string]string{}
	for _, l := range s.Labels {
		labels[l.Name] = l.Value
	}
	return show(s.Name, labels, s.Value)
}

func show(name string, labels map[string]string, v float64) string {
	out := fmt.Sprintf("%q %x", name, math.Float64bits(v))
	if math.IsNaN(v) {
		out = fmt.Sprintf("%q NaN", name)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out += fmt.Sprintf(" %q=%q", k, labels[k])
	}
	return out
}

// glued is a quote that follows the beginning of a name at once. expfmt joins both
// to one name; neither format allows it, and samples does not either.
var glued = regexp.MustCompile(`(^|[{,])[ \t]*[A-Za-z_:][A-Za-z0-9_:]*"`)

// checkLine holds one line to expfmt: where expfmt reads it, samples reads the
// same, and where samples reads it, expfmt reads the same up to the value. (expfmt
// knows neither exemplars nor fractions of a timestamp.)
func checkLine(t *testing.T, line string) {
	t.Helper()
	if strings.Contains(line, "\n") {
		return
	}
	s, ok, err := samples.Parse(line)
	want, wantOK := theirs(line + "\n")
	if wantOK && err != nil && glued.MatchString(line) {
		return
	}
	if wantOK && len(want) == 1 && strings.Count(line, "=") <= samples.MaxLabels {
		if !ok || err != nil || ourSample(s) != want[0] {
			t.Errorf("%q: %s, %v, %v; expfmt reads %s", line, ourSample(s), ok, err, want[0])
		}
	}
	if !ok || err != nil {
		return
	}
	_, rest, _, _ := samples.Head(line)
	head := strings.TrimSuffix(line, rest)
	want, wantOK = theirs(head + "\n")
	if !wantOK || len(want) != 1 || ourSample(s) != want[0] {
		t.Errorf("%q: %s; expfmt reads %v, %v", line, ourSample(s), want, wantOK)
	}
}

// pages returns every recorded page by its name: the ones in the repository, and
// those next to the checkout if they are there.
func pages(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, glob := range []string{
		"../../../loadview/enginepage/testdata/*.txt", "../../../loadview/enginepage/testdata/recorded/*/metrics_*.txt",
		"../../../loadview/enginepage/testdata/recorded/*/*/metrics_*.txt",
		"../../../lmcache/testdata/recorded/metrics_*.txt",
		"../../../../shared/data/*/metrics_*.txt", "../../../../shared/data/*/*/metrics_*.txt",
	} {
		files, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[f] = string(b)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

// untyped drops the comments: without types expfmt makes one sample of each line.
func untyped(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestPages(t *testing.T) {
	for name, page := range pages(t) {
		want, ok := theirs(untyped(page))
		if !ok || len(want) < 2 {
			t.Errorf("%s: expfmt reads %d samples, %v", name, len(want), ok)
			continue
		}
		for _, form := range []string{page, strings.ReplaceAll(page, "\n", "\r\n"), strings.TrimSuffix(page, "\n")} {
			var r samples.Reader
			all, _, err := r.Read(strings.NewReader(form), samples.Page{
				MaxBytes: 1 << 22, MaxWanted: 1 << 22, Wanted: func([]byte) bool { return true },
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := make([]string, len(all))
			for i, s := range all {
				got[i] = ourSample(s)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d samples, expfmt reads %d others", name, len(got), len(want))
			}
		}
	}
}

var lines = []string{
	`a 1`, `a{} 1`, `a{}1`, ` a 1`, "\ta\t{\tb\t=\t\"c\"\t,\td=\"e\"\t}\t1", `a{b="c",} 1`, `a{b="c",,} 1`, `a{,} 1`,
	`a {b="c"} 2`,
	`a NaN`, `a nan`, `a +Inf`, `a -Inf`, `a Infinity`, `a 1e999`, `a 0x1p4`, `a 0x10`, `a 1_0`, `a .5`, `a 5.`, `a -0`,
	`a 1e-400`, `a +1`,
	`a 1 2`, `a 1 -2`, `a 1 +2`, `a 1 2 3`, `a 1 x`, `a 1 `, `a 1 2 `, `a 1 2.5`, `a 1 99999999999999999999`,
	`a{b="\""} 1`, `a{b="\\"} 1`, `a{b="\n"} 1`, `a{b="\t"} 1`, `a{b="\`, `a{b="c`, `a{b="c"`, `a{b=c} 1`, `a{b} 1`,
	`a{b=} 1`, `a{b="c" d="e"} 1`,
	`a{b="c",b="d"} 1`, `a{__name__="b"} 1`, `a{"__name__"="b"} 1`, `a{1b="c"} 1`, `a{b:c="d"} 1`, `a:b 1`, `:a 1`,
	`1a 1`, `a-b 1`, `é 1`, `a{b="é"} 1`,
	"a{b=\"\xff\"} 1", `{"a"} 1`, `{"a.b"} 1`, `{"a.b",c="d"} 1`, `{"a.b","c.d"="e"} 1`, `{a} 1`, `{a,b="c"} 1`,
	`{b="c","a"} 1`, `{b="c","a",d="e"} 1`,
	`{"a","b"} 1`, `{} 1`, `{,} 1`, `{""} 1`, `{"a" } 1`, `{ "a" , } 1`, `{"a\"b"} 1`, `{"a\nb"} 1`, `{"a\x"} 1`,
	`"a" 1`, `"a"{b="c"} 1`, `"a.b" 1`, `"a`, `"`, `{`, `}`, `{"`,
	`a{""="b"} 1`, `a{"b"="c"} 1`, `a`, `a `, `a{}`, `a{b="c"}`, `a{b="c"} `, `# HELP a b`, `#`, `# EOF`, ``, ` `,
	`a 1 # {} 2`, `a 1 # {b="c"} 2 3.5`, `a{b="c"} 1 1.5 # {d="e"} 2`, `a 1 # 2`, `a 1 # {b="c"}`, `a 1 # {"b"} 2`,
	`a 1 # {b="c"} x`, `a 1 # {b="c"} 2 3 4`, `a 1# {} 2`,
	"a\r 1", "a 1\r", "a{b=\"c\rd\"} 1", "a\x001",
}

func TestLines(t *testing.T) {
	for _, line := range lines {
		checkLine(t, line)
	}
}

func FuzzLine(f *testing.F) {
	for _, line := range lines {
		f.Add(line)
	}
	for _, page := range pages(f) {
		for i, line := range strings.Split(page, "\n") {
			if i%7 == 0 {
				f.Add(line)
			}
		}
	}
	f.Fuzz(checkLine)
}
