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

// TestBlame: each cell of SECURITY.md's table of parties names a test, or says why there is none.
func TestBlame(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| party |")
	if !found {
		t.Fatal("there is no table of parties")
	}
	rows := 0
	for i, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			if i == 0 || line != "" {
				t.Errorf("%d cells in %q", len(cells), line)
			}
			break
		}
		rows++
		for _, c := range cells[1:] {
			reason := strings.Contains(c, "not defended") ||
				strings.Contains(c, "trusted") || strings.HasPrefix(c, "nothing is sent")
			if !namedTest.MatchString(c) && !reason {
				t.Errorf("%s: a cell without a test or a reason: %q", cells[0], c)
			}
		}
	}
	if want := 9; rows != want {
		t.Errorf("%d parties, want %d", rows, want)
	}
}
