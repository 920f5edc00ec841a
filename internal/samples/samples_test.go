package samples

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Sample{
		`a 1`:                              {Name: "a", Value: 1},
		"\ta {} \t1 1795987490605":         {Name: "a", Value: 1},
		`a:b_total{c="d",e="f",} 2.5e3`:    {Name: "a:b_total", Labels: []Label{{"c", "d"}, {"e", "f"}}, Value: 2500},
		`a{b="x\"y\\z\n"} -Inf`:            {Name: "a", Labels: []Label{{"b", "x\"y\\z\n"}}, Value: math.Inf(-1)},
		`a NaN`:                            {Name: "a", Value: math.NaN()},
		`{"a.b", "c d"="é"} +Inf`:          {Name: "a.b", Labels: []Label{{"c d", "é"}}, Value: math.Inf(1)},
		`a_bucket{le="1"} 3 # {id="x"} .5`: {Name: "a_bucket", Labels: []Label{{"le", "1"}}, Value: 3},
		`a 1 1.5 # {} 2 1.25`:              {Name: "a", Value: 1},
		`a 1 `:                             {Name: "a", Value: 1},
	} {
		got, ok, err := Parse(line)
		if err != nil || !ok {
			t.Errorf("%q: %v, %v", line, ok, err)
		} else if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
	for _, line := range []string{"", "  ", "# EOF", "#", "# TYPE a gauge"} {
		if s, ok, err := Parse(line); ok || err != nil {
			t.Errorf("%q: %+v, %v", line, s, err)
		}
	}
	for _, line := range []string{
		"a", "a ", "a x", "a 0x1", "a 1_0", "a 1e999", "1a 1", "a{b} 1", "a{b=c} 1", `a{b="c} 1`, `a{b="c"`, `a{b="\x"} 1`,
		`a{b="c",b="d"} 1`, `{} 1`,
		`{""} 1`, `{"a","b"} 1`, `{b="c"} 1`, `a{__name__="b"} 1`, "a{b=\"\xff\"} 1", `a 1 x`, `a 1 2 3`, `a 1 NaN`,
		`a 1 # x`, `a 1 # {} x`, `a 1 # {"b"} 1`, `a 1 # {} 1 2 3`,
	} {
		if s, ok, err := Parse(line); ok || err == nil {
			t.Errorf("%q: %+v", line, s)
		}
	}
}

func all([]byte) bool { return true }

func TestRead(t *testing.T) {
	page := "# HELP a A.\n# TYPE a gauge\na 1\r\nb{{{ 2\n\n  a{x=\"y\"} 3\n{\"a\",z=\"\"} 4\nlong{x=\"" +
		strings.Repeat("y", 200) + "\"} 5\na 6"
	want := []Sample{{Name: "a", Value: 1}, {Name: "a", Labels: []Label{{"x", "y"}}, Value: 3},
		{Name: "a", Labels: []Label{{"z", ""}}, Value: 4}, {Name: "a", Value: 6}}
	for how, body := range map[string]io.Reader{
		"at once": strings.NewReader(page), "in bytes": iotest.OneByteReader(strings.NewReader(page)),
		"in halves": iotest.HalfReader(strings.NewReader(page)),
	} {
		r := Reader{MaxLine: 64}
		got, first, err := r.Read(body, Page{MaxBytes: 1 << 20, MaxWanted: 1 << 20,
			Wanted: func(name []byte) bool { return string(name) == "a" }})
		if err != nil || first != '#' {
			t.Errorf("%s: %q, %v", how, first, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader
		p    Page
		want error
	}{
		"a long page": {strings.NewReader(strings.Repeat("#\n", 51)), Page{MaxBytes: 100, MaxWanted: 100, Wanted: all},
			ErrPage},
		"many samples": {strings.NewReader(strings.Repeat("a 1\n", 51)), Page{MaxBytes: 1000, MaxWanted: 100, Wanted: all},
			ErrWanted},
		"nothing comes": {silent{}, Page{MaxBytes: 100, MaxWanted: 100, Wanted: all}, io.ErrNoProgress},
		"it breaks off": {iotest.ErrReader(io.ErrClosedPipe), Page{MaxBytes: 100, MaxWanted: 100, Wanted: all},
			io.ErrClosedPipe},
	} {
		if s, _, err := new(Reader).Read(c.body, c.p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	var labels strings.Builder
	for i := range MaxLabels + 1 {
		_, _ = fmt.Fprintf(&labels, "l%d=\"\",", i)
	}
	if _, _, err := Parse("a{" + labels.String() + "} 1"); err == nil {
		t.Error("a sample with too many labels passed")
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// Twice the page takes about twice the time, whatever is in it.
func TestLinear(t *testing.T) {
	for _, unit := range []string{`a{b="`, `\\`, `{"a"`, `a{b="c",`, `"`, `{`, "a 1\n", `a{b="\n`, ` `, `a 1 # {`} {
		took := func(n int) time.Duration {
			s := strings.Repeat(unit, n/len(unit))
			best := time.Duration(math.MaxInt64)
			for range 3 {
				begin := time.Now()
				_, _, _ = new(Reader).Read(strings.NewReader(s), Page{MaxBytes: 1 << 24, MaxWanted: 1 << 24, Wanted: all})
				best = min(best, time.Since(begin))
			}
			return best
		}
		small, large := took(1<<18), took(1<<21)
		if large > 200*small+time.Second { // 8 times as much; the machine may be busy
			t.Errorf("%q: %v for 256 KiB, %v for 2 MiB", unit, small, large)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"a 1\n", "{\"a\"} 1\n# EOF", "a{b=\"\\\"\"} NaN 1 # {} 1", "{\"a\": 1}", "\"a",
		"a{b=\"c\",\"d\"=\"e\"} 0"} {
		f.Add([]byte(s), uint8(16))
	}
	f.Fuzz(func(t *testing.T, b []byte, line uint8) {
		r := Reader{MaxLine: int(line)}
		got, _, err := r.Read(strings.NewReader(string(b)), Page{MaxBytes: 1 << 16, MaxWanted: 1 << 16, Wanted: all})
		if err != nil && got != nil {
			t.Errorf("samples beside %v", err)
		}
		for _, s := range got {
			if s.Name == "" || len(s.Labels) > MaxLabels {
				t.Errorf("%+v", s)
			}
		}
	})
}
