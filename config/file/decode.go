package file

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A decoder reads a source into structs and collects every problem.
type decoder struct {
	*source
	strategies map[string]Strategy
	problems   []Problem
	warnings   []Problem
	bad        map[string]bool // keys with a problem, as displayed
	hints      int
}

// maxHints bounds how often the nearest name is looked for.
const maxHints = 100

func (d *decoder) hint(name string, known []string) string {
	if d.hints++; d.hints > maxHints {
		return "see above"
	}
	return suggest(name, known)
}

func (d *decoder) add(p *Problem) {
	d.problems = append(d.problems, *p)
	d.bad[p.Key] = true
}

// at returns the place of a path, or of the nearest table around it that has one.
func (d *decoder) at(path string) place {
	for path != "" {
		if p, ok := d.places[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, "\x00\x01"))]
	}
	return place{}
}

// mustBe adds the problem that value, which stands at path, is not allowed.
func (d *decoder) mustBe(path string, value any, allowed string) {
	p := d.problem(d.at(path).value, display(path), fmt.Sprintf("is %v; it must be %s", value, allowed))
	p.Value, p.Allowed = value, allowed
	d.add(p)
}

// wrongType adds the problem that the value in, which stands at path, has another type
// than it must have.
func (d *decoder) wrongType(path string, in any, allowed string) {
	p := d.problem(d.at(path).value, display(path), fmt.Sprintf("is %s; it must be %s", kindOf(in), allowed))
	switch in.(type) {
	case bool, int64, float64: // none of them is a secret
		p.Value = in
	}
	p.Allowed = allowed
	d.add(p)
}

// unknown adds the problem that a name which stands at path is not one of known.
func (d *decoder) unknown(path, name string, known []string) {
	p := d.problem(d.at(path).value, display(path), fmt.Sprintf("%q is not known; %s", name, d.hint(name, known)))
	p.Value, p.Allowed = name, oneOf(known)
	d.add(p)
}

// fail adds a problem with value, which stands at path and is nil if it may be a
// secret, that no "it must be …" can describe.
func (d *decoder) fail(path string, value any, format string, args ...any) {
	p := d.problem(d.at(path).value, display(path), fmt.Sprintf(format, args...))
	p.Value = value
	d.add(p)
}

// failKey adds a problem with the key at path.
func (d *decoder) failKey(path, format string, args ...any) {
	d.add(d.problem(d.at(path).key, display(path), fmt.Sprintf(format, args...)))
}

// failTable adds a problem of the table at path that does not make its keys bad: others
// may be missing too.
func (d *decoder) failTable(path, format string, args ...any) {
	d.problems = append(d.problems, *d.problem(d.at(path).key, display(path), fmt.Sprintf(format, args...)))
}

func (d *decoder) warn(path, format string, args ...any) {
	d.warnings = append(d.warnings, *d.problem(d.at(path).key, display(path), fmt.Sprintf(format, args...)))
}

// display writes a path as people do.
func display(path string) string {
	var b strings.Builder
	for len(path) > 0 {
		step, rest := path[1:], ""
		if i := strings.IndexAny(step, "\x00\x01"); i >= 0 {
			step, rest = step[:i], step[i:]
		}
		switch {
		case path[0] == '\x01':
			b.WriteString("[" + step + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			if len(step) > 64 {
				step = step[:64] + "..."
			}
			if step == "" || strings.ContainsFunc(step, func(r rune) bool { return !bare(r) }) {
				step = strconv.Quote(step)
			}
			b.WriteString(step)
		}
		path = rest
	}
	return b.String()
}

func bare(r rune) bool {
	return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// table reads a table into the struct v.
func (d *decoder) table(path string, in map[string]any, v reflect.Value) {
	if f, ok := v.Addr().Interface().(defaulter); ok {
		f.defaults()
	}
	fs := fields(v.Type())
	if v.Type() == reflect.TypeFor[File]() { // the defaults of tables that are not there
		for _, f := range fs {
			if f, ok := v.Field(f.index).Addr().Interface().(defaulter); ok {
				f.defaults()
			}
		}
	}
	route, _ := v.Addr().Interface().(*Route)
	for _, key := range slices.Sorted(maps.Keys(in)) {
		at := child(path, key)
		i := slices.IndexFunc(fs, func(f field) bool { return f.key == key })
		switch {
		case i >= 0:
			before := len(d.problems)
			d.value(at, in[key], v.Field(fs[i].index))
			if len(d.problems) == before {
				d.bounds(at, v.Field(fs[i].index), fs[i].tag)
			}
		case route != nil && d.strategies[key].New != nil:
			d.settings(at, key, in[key], route)
		default:
			known := make([]string, 0, len(fs))
			for _, f := range fs {
				known = append(known, f.key)
			}
			if route != nil {
				known = slices.AppendSeq(known, maps.Keys(d.strategies))
			}
			hint := d.hint(key, known)
			switch key {
			case "api_key", "token", "headers", "authorization", "password":
				if slices.Contains(known, "headers_env") {
					hint = "secrets come from environment variables, which api_key_env and headers_env name"
				}
			}
			if len(known) == 0 {
				hint = "nothing can be set here"
			}
			d.failKey(at, "unknown key; %s", hint)
		}
	}
}

// settings reads a table [routes.NAME].
func (d *decoder) settings(path, name string, in any, r *Route) {
	t, ok := in.(map[string]any)
	if !ok {
		d.wrongType(path, in, "a table")
		return
	}
	m := d.strategies[name]
	if m.Config == nil {
		if len(t) > 0 {
			d.failKey(path, "%s has no settings", name)
		}
		return
	}
	cfg := m.Config()
	d.table(path, t, reflect.ValueOf(cfg).Elem())
	if r.Settings == nil {
		r.Settings = make(map[string]any)
	}
	r.Settings[name] = cfg
}

func kindOf(in any) string {
	switch in.(type) {
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a number with a fraction"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a date or a time"
}

var durationType = reflect.TypeFor[time.Duration]()

// value reads in into v.
func (d *decoder) value(path string, in any, v reflect.Value) {
	wrong := func(want string) { d.wrongType(path, in, want) }
	switch k := v.Kind(); {
	case v.Type() == durationType:
		d.duration(path, in, v)
	case k == reflect.Bool:
		if b, ok := in.(bool); ok {
			v.SetBool(b)
		} else {
			wrong("true or false")
		}
	case k == reflect.String:
		if s, ok := in.(string); ok {
			v.SetString(s)
		} else {
			wrong("a string")
		}
	case v.CanInt():
		if n, ok := in.(int64); !ok {
			wrong("an integer")
		} else if v.OverflowInt(n) {
			d.fail(path, n, "is %d, which is too much", n)
		} else {
			v.SetInt(n)
		}
	case v.CanUint():
		if n, ok := in.(int64); !ok {
			wrong("an integer")
		} else if n < 0 || v.OverflowUint(uint64(n)) {
			d.fail(path, n, "is %d; it must not be negative or too much", n)
		} else {
			v.SetUint(uint64(n))
		}
	case v.CanFloat():
		switch n := in.(type) {
		case int64:
			v.SetFloat(float64(n))
		case float64:
			if math.IsNaN(n) {
				d.fail(path, n, "is not a number")
				return
			}
			v.SetFloat(n)
		default:
			wrong("a number")
		}
	case k == reflect.Pointer:
		if t, ok := in.(map[string]any); ok {
			v.Set(reflect.New(v.Type().Elem()))
			d.table(path, t, v.Elem())
		} else {
			wrong("a table")
		}
	case k == reflect.Struct:
		if t, ok := in.(map[string]any); ok {
			d.table(path, t, v)
		} else {
			wrong("a table")
		}
	case k == reflect.Map:
		t, ok := in.(map[string]any)
		if !ok {
			wrong("a table of strings")
			return
		}
		if len(t) == 0 {
			return // as if it were not there
		}
		v.Set(reflect.MakeMapWithSize(v.Type(), len(t)))
		for _, key := range slices.Sorted(maps.Keys(t)) {
			s := reflect.New(v.Type().Elem()).Elem()
			d.value(child(path, key), t[key], s)
			v.SetMapIndex(reflect.ValueOf(key), s)
		}
	case k == reflect.Slice:
		a, ok := in.([]any)
		if !ok {
			if v.Type().Elem().Kind() == reflect.Struct {
				wrong("an array of tables, each under [[" + display(path) + "]]")
			} else {
				wrong("an array")
			}
			return
		}
		if len(a) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(a), len(a)))
		for i := range a {
			d.value(elem(path, i), a[i], v.Index(i))
		}
	}
}

// duration reads seconds, or Go's own form of a duration.
func (d *decoder) duration(path string, in any, v reflect.Value) {
	secs := 0.0
	switch n := in.(type) {
	case int64:
		secs = float64(n)
	case float64:
		secs = n
	case string:
		t, err := time.ParseDuration(n)
		if err != nil {
			d.fail(path, n, "%q is not a duration, such as \"300s\" or \"250ms\"", n)
			return
		}
		v.SetInt(int64(t))
		return
	default:
		d.wrongType(path, in, "a number of seconds, or a string such as \"300s\"")
		return
	}
	if !(math.Abs(secs) <= 1e9) {
		d.mustBe(path, secs, "a number of seconds, at most 1e9")
		return
	}
	v.SetInt(int64(secs * float64(time.Second)))
}

// bounds checks v against the min and max of its tag.
func (d *decoder) bounds(path string, v reflect.Value, tag reflect.StructTag) {
	low, high := tag.Get("min"), tag.Get("max")
	if low == "" {
		return
	}
	lo, err := strconv.ParseFloat(low, 64)
	hi, err2 := strconv.ParseFloat(high, 64)
	var n float64
	switch {
	case v.CanInt():
		n = float64(v.Int())
	case v.CanFloat():
		n = v.Float()
	}
	if err == nil && err2 == nil && !(lo <= n && n <= hi) {
		d.mustBe(path, v.Interface(), low+" to "+high)
	}
}
