package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`([a-z0-9/_]*)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestSecurityNamesTests finds the tests that SECURITY.md says hold its claims.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		files, err := filepath.Glob(filepath.Join("../..", m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			code, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(code), "\nfunc "+m[2]+"(")
		}
		if !found {
			t.Errorf("there is no test %s in %s", m[2], m[1])
		}
	}
}
