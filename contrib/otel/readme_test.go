package otel_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows are the metrics as the README's table has them.
func rows(t *testing.T) []string {
	t.Helper()
	var all []string
	for name, s := range everything(t).series() {
		var keys []string
		for _, a := range s.points[0].set.ToSlice() {
			keys = append(keys, strings.TrimPrefix(string(a.Key), "warmroute."))
		}
		all = append(all, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", name, s.kind, strings.Join(keys, ", "), s.unit, s.help))
	}
	slices.Sort(all)
	return all
}

// The README's table has every metric as it is exported, and no other.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(?:warmroute|gen_ai)[^|]*\\| (?:counter|updowncounter|gauge|histogram) \\|.*$")
	got := row.FindAllString(string(data), -1)
	slices.Sort(got)
	want := rows(t)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("the README lacks %s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the README has %d metrics, there are %d", len(got), len(want))
	}
}
