package prometheus_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// names are what the collector exports.
func names(t *testing.T) map[string]exported {
	t.Helper()
	all := make(map[string]exported)
	for name, f := range serve(t, everything(t)).families() {
		e := exported{kind: strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			e.labels = append(e.labels, l.GetName())
		}
		slices.Sort(e.labels)
		if e.kind == "histogram" {
			e.kind = "counter"
			all[name+"_sum"], all[name+"_count"] = e, e
			e.labels = append(slices.Clone(e.labels), "le")
			slices.Sort(e.labels)
			name += "_bucket"
		}
		all[name] = e
	}
	return all
}

// family returns the name of a series' metric.
func family(name string, all map[string]exported) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base := strings.TrimSuffix(name, suffix)
		if _, ok := all[base+"_bucket"]; ok && base != name {
			return base
		}
	}
	return name
}

var mention = regexp.MustCompile(`{{ *(?:\$labels\.)?([a-z_]+) *}}`)

// mentions checks that a text names labels that the value has.
func mentions(t *testing.T, where, text string, labels []string) {
	t.Helper()
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(labels, m[1]) {
			t.Errorf("%s: %q, but the labels are %v", where, m[0], labels)
		}
	}
	if strings.Count(text, "{{") != len(mention.FindAllString(text, -1)) {
		t.Errorf("%s: %q is not understood", where, text)
	}
}

// Every name, label and word of the dashboard is one that the collector has, and
// there is no metric that it does not show.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	all, used := names(t), make(map[string]bool)
	exprs, ids := 0, make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, q := range p.Targets {
			exprs++
			labels, err := read(q.Expr, all, used)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, q.Expr, err)
				continue
			}
			mentions(t, p.Title, q.LegendFormat, labels)
		}
	}
	// No expression is anywhere else.
	if n := bytes.Count(data, []byte(`"expr"`)); n != exprs || n < 50 {
		t.Errorf("%d expressions were read of %d", exprs, n)
	}
	query := regexp.MustCompile(`^label_values\(([a-z_]+), ([a-z]+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := query.FindStringSubmatch(v.Query)
		if m == nil || m[2] != v.Name || !slices.Contains(all[m[1]].labels, m[2]) {
			t.Errorf("variable %s: %q", v.Name, v.Query)
		}
	}
	shown := make(map[string]bool)
	for name := range used {
		shown[family(name, all)] = true
	}
	for name := range all {
		if !shown[family(name, all)] {
			t.Errorf("%s is not shown", name)
		}
	}
}

func TestAlerts(t *testing.T) {
	data, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	all, used, seen := names(t), make(map[string]bool), make(map[string]bool)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Alert == "" {
				t.Errorf("%q is there twice, or has no name", r.Alert)
			}
			seen[r.Alert] = true
			labels, err := read(r.Expr, all, used)
			if err != nil {
				t.Errorf("%s: %s: %v", r.Alert, r.Expr, err)
				continue
			}
			if !strings.ContainsAny(r.Expr, "<>") {
				t.Errorf("%s compares nothing", r.Alert)
			}
			if _, err := time.ParseDuration(r.For); err != nil && r.For != "" {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) ||
				r.Annotations["summary"] == "" {
				t.Errorf("%s: %v %v", r.Alert, r.Labels, r.Annotations)
			}
			for k, a := range r.Annotations {
				mentions(t, r.Alert+"'s "+k, a, labels)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}

// The README's table has each metric with its kind and labels, and no other.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	row := regexp.MustCompile("(?m)^\\| `(warmroute_[a-z_]+)` \\| ([a-z]+) \\| ([a-z, ]+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(data), -1) {
		got = append(got, fmt.Sprint(m[1], " ", m[2], " ", m[3]))
	}
	var want []string
	for name, f := range serve(t, everything(t)).families() {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		want = append(want, fmt.Sprint(name, " ", strings.ToLower(f.GetType().String()), " ", strings.Join(labels, ", ")))
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("the README lacks %s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the README has %d metrics, there are %d", len(got), len(want))
	}
}
