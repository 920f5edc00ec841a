package prometheus_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A strict reader of the part of PromQL that the dashboard and the alerts use:
// whatever it does not know is an error. Prometheus' own parser would bring some
// hundred modules along.

// exported is one name on the page.
type exported struct {
	kind   string // counter or gauge; a histogram's series are counters
	labels []string
}

// words are the values that a label may be compared with.
var words = map[string][]string{
	"state":      {"ready", "unhealthy", "cooling", "tripped", "draining", "cold", "partial", "live", "resyncing", "down"},
	"result":     {"ok", "failed"},
	"outcome":    {"finished", "failed", "canceled"},
	"reason":     {"warm", "cold", "spill"},
	"percentile": {"50", "99"},
	"cause":      {"too_long", "too_many", "too_large"},
}

var (
	lexeme     = regexp.MustCompile(`^(?:[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+|"[^"\\]*"|\[[^\]]*\]|=~|!~|!=|[-+*/<>=(){},])`)
	duration   = regexp.MustCompile(`^\[(?:[0-9]+[smhd]|\$__rate_interval)\]$`)
	aggregates = []string{"sum", "min", "max", "avg"}
	rates      = []string{"rate", "increase"}
)

type reader struct {
	known map[string]exported
	lex   []string
	used  map[string]bool // metrics
}

// read checks an expression and returns the labels of its value.
func read(expr string, known map[string]exported, used map[string]bool) (labels []string, err error) {
	r := &reader{known: known, used: used}
	for rest := strings.TrimSpace(expr); rest != ""; rest = strings.TrimSpace(rest) {
		l := lexeme.FindString(rest)
		if l == "" {
			return nil, fmt.Errorf("%q is not understood", rest)
		}
		r.lex = append(r.lex, l)
		rest = rest[len(l):]
	}
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%v, before %q", e, r.lex)
		}
	}()
	labels = r.operations()
	if len(r.lex) > 0 {
		return nil, fmt.Errorf("%q is too much", r.lex)
	}
	return labels, nil
}

func (r *reader) peek() string {
	if len(r.lex) == 0 {
		return ""
	}
	return r.lex[0]
}

func (r *reader) next() string {
	l := r.peek()
	if l == "" {
		panic(errors.New("it ends too soon"))
	}
	r.lex = r.lex[1:]
	return l
}

func (r *reader) want(l string) {
	if got := r.next(); got != l {
		panic(fmt.Errorf("%q, want %q", got, l))
	}
}

// operations reads values with operators between. Both sides must have equal labels,
// unless one is a number or the operator says which to ignore.
func (r *reader) operations() []string {
	left := r.value(false)
	for slices.Contains([]string{"+", "-", "*", "/", "<", ">"}, r.peek()) {
		r.next()
		ignored := []string(nil)
		if r.peek() == "ignoring" {
			r.next()
			ignored = r.list()
			r.want("group_left")
			if extra := r.list(); len(extra) > 0 {
				panic(fmt.Errorf("group_left of %v", extra))
			}
		}
		right := r.value(false)
		if left == nil || right == nil { // a number
			if left == nil {
				left = right
			}
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(left), func(l string) bool { return slices.Contains(ignored, l) })
		if !slices.Equal(rest, right) || len(rest)+len(ignored) != len(left) {
			panic(fmt.Errorf("labels %v meet %v", left, right))
		}
	}
	return left
}

// list reads labels in parentheses, in order.
func (r *reader) list() []string {
	ls := []string{}
	r.want("(")
	for r.peek() != ")" {
		ls = append(ls, r.next())
		if r.peek() == "," {
			r.next()
		}
	}
	r.next()
	slices.Sort(ls)
	return ls
}

// value reads one value and returns its labels; nil for a number. inRate says that it
// is within a function that takes a range.
func (r *reader) value(inRate bool) []string {
	l := r.next()
	switch {
	case l[0] >= '0' && l[0] <= '9':
		return nil
	case l == "(":
		ls := r.operations()
		r.want(")")
		return ls
	case slices.Contains(aggregates, l):
		r.want("by")
		by := r.list()
		r.want("(")
		of := r.operations()
		r.want(")")
		for _, b := range by {
			if !slices.Contains(of, b) {
				panic(fmt.Errorf("by %s, which is none of %v", b, of))
			}
		}
		return by
	case slices.Contains(rates, l):
		r.want("(")
		ls := r.value(true)
		r.want(")")
		return ls
	case l == "histogram_quantile":
		r.want("(")
		if r.value(false) != nil {
			panic(errors.New("a quantile that is no number"))
		}
		r.want(",")
		ls := r.operations()
		r.want(")")
		i := slices.Index(ls, "le")
		if i < 0 {
			panic(errors.New("a quantile of a metric without le"))
		}
		return slices.Delete(slices.Clone(ls), i, i+1)
	}
	return r.metric(l, inRate)
}

func (r *reader) metric(name string, inRate bool) []string {
	m, ok := r.known[name]
	if !ok {
		panic(fmt.Errorf("no metric is called %s", name))
	}
	r.used[name] = true
	if r.peek() == "{" {
		r.next()
		for r.peek() != "}" {
			r.matcher(name, m)
			if r.peek() == "," {
				r.next()
			}
		}
		r.next()
	}
	if ranged := strings.HasPrefix(r.peek(), "["); ranged != inRate || inRate != (m.kind == "counter") {
		panic(fmt.Errorf("%s is a %s; range: %v, within a rate: %v", name, m.kind, ranged, inRate))
	}
	if inRate && !duration.MatchString(r.next()) {
		panic(fmt.Errorf("%s has a range that is none", name))
	}
	return m.labels
}

func (r *reader) matcher(name string, m exported) {
	label := r.next()
	if !slices.Contains(m.labels, label) {
		panic(fmt.Errorf("%s has no label %s", name, label))
	}
	op, value := r.next(), strings.Trim(r.next(), `"`)
	if op != "=" && op != "=~" {
		panic(fmt.Errorf("%s%s", label, op))
	}
	if value == "$"+label && op == "=~" {
		return // a variable of the dashboard
	}
	for v := range strings.SplitSeq(value, "|") {
		if !slices.Contains(words[label], v) {
			panic(fmt.Errorf("%s is never %q", label, v))
		}
	}
}

func TestReaderIsStrict(t *testing.T) {
	known := map[string]exported{
		"c_total":  {"counter", []string{"route", "state"}},
		"g":        {"gauge", []string{"route"}},
		"h_bucket": {"counter", []string{"le", "route"}},
	}
	for _, good := range []string{
		`sum by (route) (rate(c_total{state="ready"}[5m])) / sum by (route) (g)`, `3 * g + 1 > 2`,
		`histogram_quantile(0.9, sum by (le, route) (rate(h_bucket[5m])))`,
	} {
		if _, err := read(good, known, map[string]bool{}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "x_total", "rate(c_total)", "rate(g[5m])", "c_total", "g[5m]", "sum by (state) (g)", `g{state="ready"}`,
		`g{route="x"}`, `g{route=~"$fleet"}`,
		`sum by (route) (rate(c_total{state="redy"}[5m]))`, "g / sum by (route, state) (rate(c_total[5m]))", "sum(g)",
		"g g", "(g", "g)", "rate(c_total[5x])",
		"histogram_quantile(0.9, sum by (route) (rate(h_bucket[5m])))", "delta(g[5m])", "g and g", "g $",
	} {
		if _, err := read(bad, known, map[string]bool{}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
