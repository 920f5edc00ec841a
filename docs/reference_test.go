package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

var headerLiteral = regexp.MustCompile(`"([Xx]-(?:[Ww]armroute|[Rr]olter)-[A-Za-z-]+)"`)

// rowsOf returns the rows of the table below a heading of a page by their first cell.
func rowsOf(t *testing.T, page, heading string) map[string][]string {
	t.Helper()
	_, s, ok := strings.Cut(pages(t)[page], "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %s", page, heading)
	}
	s, _, _ = strings.Cut(s, "\n## ")
	all := map[string][]string{}
	for l := range strings.Lines(s) {
		if cells := strings.Split(strings.TrimSpace(l), "|"); len(cells) > 2 && strings.HasPrefix(cells[1], " `") {
			var row []string
			for _, c := range cells[2 : len(cells)-1] {
				row = append(row, strings.TrimSpace(c))
			}
			all[strings.Trim(cells[1], " `")] = row
		}
	}
	return all
}

// TestHeaders: the page has exactly the headers with names of ours that the gateway and package prompt have.
func TestHeaders(t *testing.T) {
	want := map[string]bool{prompt.TokenIDsHeader: true, prompt.TokenIDsHeaderAlias: true}
	sources, err := filepath.Glob("../cmd/warmroute/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range headerLiteral.FindAllStringSubmatch(string(b), -1) {
			want[strings.ToLower(m[1])] = true
		}
	}
	if len(want) < 7 {
		t.Fatalf("only %v were found", want)
	}
	got := slices.Sorted(maps.Keys(rowsOf(t, "reference.md", "Headers")))
	if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("the page has %v, the programs have %v", got, all)
	}
}

// TestReasons: the page has every reason of the library, with its text, and no other.
func TestReasons(t *testing.T) {
	rows := rowsOf(t, "reference.md", "Reasons")
	want := map[string]bool{}
	for _, r := range router.Reasons() {
		want[string(r.Reason)] = true
		chosen := map[bool]string{true: "yes", false: "no"}[r.Chosen]
		if row := rows[string(r.Reason)]; !slices.Equal(row, []string{"any", chosen, r.Text}) {
			t.Errorf("%s is %v, %q, not %q", r.Reason, r.Chosen, r.Text, row)
		}
	}
	err := filepath.WalkDir("../strategy", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(v.Names[0].Name, "Reason") || len(v.Values) != 1 {
				return true
			}
			if l, ok := v.Values[0].(*ast.BasicLit); ok {
				s, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Error(err)
				}
				want[s] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(rows))
	if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("the page has %v, the library has %v", got, all)
	}
}
