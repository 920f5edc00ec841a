package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/bench/sim"
)

// node is an element of a page.
type node struct {
	name     string
	attrs    map[string]string
	children []*node
	text     string // of it and all below
}

// parse reads a page, which closes what it opens. It fails the test otherwise.
func parse(t *testing.T, page []byte) *node {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "input"}, xml.HTMLEntity
	root := &node{}
	stack, texts := []*node{root}, []*strings.Builder{{}}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			n := &node{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				n.attrs[a.Name.Local] = a.Value
			}
			top := stack[len(stack)-1]
			top.children = append(top.children, n)
			stack, texts = append(stack, n), append(texts, &strings.Builder{})
		case xml.EndElement:
			n := stack[len(stack)-1]
			n.text = texts[len(stack)-1].String()
			stack, texts = stack[:len(stack)-1], texts[:len(stack)-1]
			texts[len(texts)-1].WriteString(n.text)
		case xml.CharData:
			texts[len(texts)-1].Write(x)
		}
	}
	if len(stack) != 1 {
		t.Fatalf("<%s> is not closed", stack[len(stack)-1].name)
	}
	root.text = texts[0].String()
	return root
}

func (n *node) all(name string) (out []*node) {
	for _, c := range n.children {
		if c.name == name || name == "" {
			out = append(out, c)
		}
		out = append(out, c.all(name)...)
	}
	return out
}

func render(t *testing.T, s *sim.Study) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestStructure(t *testing.T) {
	s := usual()
	s.gateways = []int{1, 4}
	root := parse(t, render(t, s.make()))
	var got []string
	for _, n := range root.all("") {
		switch n.name {
		case "h1", "h2", "h3", "summary", "svg":
			text := strings.TrimSpace(n.text)
			if n.name == "svg" {
				if n.attrs["aria-hidden"] == "true" {
					continue
				}
				text = strings.Fields(n.attrs["class"])[0] + " " + n.all("title")[0].text
			}
			got = append(got, n.name+" "+text)
		}
	}
	section := func(name string) []string {
		out := []string{"h2 " + name, "h3 Over load"}
		both := func(title string) { out = append(out, "svg wide "+title, "svg narrow "+title) }
		both("Mean TTFT over load")
		both("p99 of TTFT over load")
		both("Hit share over load")
		both("Balance over load: computed tokens, max/mean")
		out = append(out, "h3 Over replicas, at 1.5×")
		both("Requests of each replica")
		both("Computed prompt tokens of each replica")
		out = append(out, "h3 In flight over time, at 1.5×")
		for _, p := range s.policies {
			out = append(out, "svg small In flight over time: "+p)
		}
		out = append(out, "h3 Several gateways, at 1.5×")
		both("Mean TTFT over gateways")
		both("Hit share over gateways")
		out = append(out, "h3 All results")
		for _, g := range []string{"1 gateway", "4 gateways"} {
			for _, r := range []string{"1×", "1.5×", "2×"} {
				out = append(out, fmt.Sprintf("summary %s at %s, %s", name, r, g))
			}
		}
		return out
	}
	want := []string{"h1 Routing policies compared", "h2 Summary", "summary The words"}
	want = append(want, section("chat")...)
	want = append(want, section("code")...)
	want = append(want, "h2 Policies", "h2 How to make it again")
	// The greatest load is shown where a policy keeps up there.
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], ", at 1.5×", ", at 2×")
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

var number = regexp.MustCompile(`-?\d+(\.\d+)?`)

// wellMade checks what holds of every page.
func wellMade(t *testing.T, page []byte) *node {
	t.Helper()
	root := parse(t, page)
	ids := map[string]bool{}
	for _, n := range root.all("") {
		if id := n.attrs["id"]; id != "" {
			if ids[id] {
				t.Errorf("id %q is there twice", id)
			}
			ids[id] = true
		}
	}
	for _, n := range root.all("") {
		for _, id := range strings.Fields(n.attrs["aria-labelledby"]) {
			if !ids[id] {
				t.Errorf("<%s> is labelled by %q, which is not there", n.name, id)
			}
		}
		for k, v := range n.attrs {
			if strings.HasPrefix(k, "on") || k == "style" || k == "src" || k == "srcset" || k == "action" || k == "data" {
				t.Errorf("<%s> has the attribute %s=%q", n.name, k, v)
			}
			if k == "href" && (!strings.HasPrefix(v, "#") || !ids[v[1:]]) {
				t.Errorf("href=%q", v)
			}
			if k == "d" || k == "x" || k == "y" || k == "viewBox" {
				if strings.Contains(v, "NaN") || strings.Contains(v, "Inf") || v == "" || strings.Contains(v, "%!") {
					t.Fatalf("<%s> has %s=%q", n.name, k, v)
				}
			}
		}
		switch n.name {
		case "script", "link", "img", "iframe", "object", "embed", "form", "use", "image", "foreignObject", "base",
			"video", "a":
			if n.name != "a" || !strings.HasPrefix(n.attrs["href"], "#") {
				t.Errorf("there is a <%s>", n.name)
			}
		case "style":
			for _, bad := range []string{"url(", "@import", "http", "ZgotmplZ", "</"} {
				if strings.Contains(n.text, bad) {
					t.Errorf("the styles hold %q", bad)
				}
			}
		case "svg":
			if n.attrs["aria-hidden"] != "true" {
				inside(t, n)
			}
		case "table":
			if c := n.all("caption"); len(c) != 1 || strings.TrimSpace(c[0].text) == "" {
				t.Error("a table has no caption")
			}
			width := len(n.all("thead")[0].all("th"))
			for _, r := range n.all("tbody")[0].all("tr") {
				if len(r.children) != width || r.children[0].attrs["scope"] != "row" {
					t.Errorf("a row of %d cells in a table of %d columns: %s", len(r.children), width, r.text)
				}
			}
		}
		for _, bad := range []string{"ZgotmplZ", "%!", "NaN", "<nil>"} {
			if n.name == "body" && strings.Contains(n.text, bad) {
				t.Errorf("the page says %q", bad)
			}
		}
	}
	return root
}

// inside checks that a drawing has a title and a description, and that nothing of
// it lies outside.
func inside(t *testing.T, svg *node) {
	t.Helper()
	if len(svg.children) < 2 || svg.children[0].name != "title" || svg.children[0].text == "" ||
		svg.children[1].name != "desc" || svg.children[1].text == "" {
		t.Errorf("a drawing has no title or description: %v", svg.attrs)
	}
	var w, h float64
	if _, err := fmt.Sscanf(svg.attrs["viewBox"], "0 0 %g %g", &w, &h); err != nil {
		t.Fatal(err)
	}
	for _, n := range svg.all("") {
		if n.name == "text" {
			x, _ := strconv.ParseFloat(n.attrs["x"], 64)
			y, _ := strconv.ParseFloat(n.attrs["y"], 64)
			if x < 0 || x > w || y < 0 || y > h {
				t.Errorf("%q is at %v, %v of %v, %v", n.text, x, y, w, h)
			}
		}
		if d := n.attrs["d"]; d != "" && !strings.ContainsAny(d, "avhVH") {
			ns := number.FindAllString(d, -1)
			for i := range ns {
				v, _ := strconv.ParseFloat(ns[i], 64)
				if v < -2 || i%2 == 0 && v > w+2 || i%2 == 1 && v > h+2 {
					t.Errorf("%s leaves %v, %v", d, w, h)
					break
				}
			}
		}
	}
}

func TestOddStudies(t *testing.T) {
	for name, s := range odd() {
		t.Run(name, func(t *testing.T) { wellMade(t, render(t, s)) })
	}
	if err := Write(io.Discard, nil); err == nil {
		t.Error("a page of no study")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriterFails(t *testing.T) {
	if err := Write(broken{}, usual().make()); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Write returned %v", err)
	}
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{
		`<script>alert(1)</script>`, `</style><img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`,
		`' onmouseover='alert(1)`,
		`</title></svg><iframe src=//example.com>`, `javascript:alert(1)`, `{{.Command}}`, `&lt;b&gt;`, `]]>`, `<!-- `,
		`%s%d`, "",
	} {
		s := usual()
		s.workloads, s.policies = []string{name + "w", name}, []string{name + "p", "cache_aware", name}
		study := s.make()
		study.Command = name
		for i := range study.Workloads {
			study.Workloads[i].About, study.Workloads[i].Unit = name, name
		}
		for i := range study.Policies {
			study.Policies[i].About = name
		}
		study.Calibration.Name, study.Calibration.About = name+"c", name
		root := wellMade(t, render(t, study))
		if !strings.Contains(root.text, name+"w") || !strings.Contains(root.text, name+"p") {
			t.Errorf("the page does not show %q", name)
		}
	}
}

// fieldsOf are the values in the columns of a full table.
func fieldsOf(c *sim.Cell) []sim.Interval {
	return []sim.Interval{c.TTFT, c.P50, c.P90, c.P99, c.E2E, c.HitShare, c.IdealShare, c.PooledShare, c.MaxMean,
		c.MaxMeanTokens}
}

// same says that a printed number is v, to half of its last digit.
func same(printed string, v float64) bool {
	x, err := strconv.ParseFloat(printed, 64)
	_, decimals, _ := strings.Cut(printed, ".")
	return err == nil && math.Abs(x-v) <= 0.5001*math.Pow10(-len(decimals)) && len(decimals) > 0
}

func TestTablesTellTheStudy(t *testing.T) {
	f := usual()
	f.gateways = []int{1, 2}
	s := f.make()
	s.Cells[3].TTFT.Mean, s.Cells[3].Lost, s.Cells[3].Requests = 123.456, 1234, 1_234_567
	root := parse(t, render(t, s))
	seen := 0
	for _, details := range root.all("details") {
		title := details.all("summary")[0].text
		for _, row := range details.all("tr") {
			if len(row.children) != len(fullHead) || row.children[0].attrs["scope"] != "row" {
				continue
			}
			var c *sim.Cell
			for i := range s.Cells {
				x := &s.Cells[i]
				if title == fmt.Sprintf("%s at %v×, %s", x.Workload, x.Rate, count(x.Gateways, "gateway", "gateways")) &&
					row.children[0].text == x.Policy {
					c = x
				}
			}
			if c == nil {
				t.Errorf("%s: a row for %q", title, row.children[0].text)
				continue
			}
			seen++
			for i, v := range fieldsOf(c) {
				mean, half, ok := strings.Cut(row.children[1+i].text, " ±")
				if !same(mean, v.Mean) || ok != (v.Half != 0) || ok && !same(half, v.Half) {
					t.Errorf("%s, %s, %s: %q for %v", title, c.Policy, fullHead[1+i].S, row.children[1+i].text, v)
				}
			}
			if got := strings.ReplaceAll(row.children[11].text, ",", ""); got != strconv.Itoa(c.Requests) {
				t.Errorf("%s requests for %d", got, c.Requests)
			}
			if got := row.children[12].text; got != remarks(c) {
				t.Errorf("%q for %q", got, remarks(c))
			}
		}
	}
	if seen != len(s.Cells) {
		t.Errorf("%d rows for %d cells", seen, len(s.Cells))
	}
	if got, want := remarks(&s.Cells[3]), "1,234 lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPageIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	f := shape{workloads: []string{"a", "b"}, rates: []float64{1, 2, 3}, gateways: []int{1, 2}, seeds: 2, replicas: 1000,
		samples: 1000}
	for i := range 120 {
		f.policies = append(f.policies, fmt.Sprint(i, long))
	}
	s := f.make()
	s.Command = long
	for i := range s.Policies {
		s.Policies[i].About = long
	}
	page := render(t, s)
	wellMade(t, page)
	if len(page) > 4<<20 {
		t.Errorf("a page of %d bytes", len(page))
	}
	many := usual()
	many.workloads, many.samples, many.rates, many.gateways = nil, 3, nil, nil
	for i := range 45 {
		many.workloads = append(many.workloads, fmt.Sprint("w", i))
		many.rates = append(many.rates, float64(i+1))
		if i < 14 {
			many.gateways = append(many.gateways, i+1)
		}
	}
	many.policies, many.seeds, many.replicas = many.policies[:2], 1, 2
	page = render(t, many.make())
	if len(page) > 8<<20 {
		t.Errorf("a page of %d bytes", len(page))
	}
	if n := bytes.Count(page, []byte(`scope="row"`)); n > maxRows+maxWorkloads+maxRanked {
		t.Errorf("%d rows", n)
	}
	for _, say := range []string{"more workloads are left out", "loads are drawn", "numbers of gateways are left out",
		"tables are left out"} {
		if !bytes.Contains(page, []byte(say)) {
			t.Errorf("the page does not say that %s", say)
		}
	}
}
