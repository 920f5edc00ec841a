package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "contrib", "prometheus", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(data); err != nil {
		t.Fatal(err)
	}
	// The check is one: each of these fails.
	for _, change := range [][2]string{
		{`"schemaVersion"`, `"schemaVersions"`},
		{`"showLegend": true`, `"showLegend": "yes"`},
		{`"reduceOptions"`, `"reduce"`},
		{`"calcs": []`, `"calc": []`},
		{`"expr"`, `"expression"`},
		{`"current": {`, `"currently": {`},
	} {
		bad := strings.Replace(string(data), change[0], change[1], 1)
		if bad == string(data) {
			t.Errorf("no %s", change[0])
		} else if check([]byte(bad)) == nil {
			t.Errorf("%s instead of %s is no error", change[1], change[0])
		}
	}
}
