package layout

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unshown are entry points that no runnable example can show, each with the
// reason.
var unshown = map[string]string{
	"bustest.Run":          "takes a *testing.T; the package comment has a test that calls it",
	"routertest.Run":       "takes a *testing.T; the package comment has a test that calls it",
	"routertest.Benchmark": "takes a *testing.B",
}

// TestExamples checks that every public package has a runnable example, with
// output that is compared, of each function and of each type that has methods.
func TestExamples(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}\t{{.Name}}\t{{.Dir}}", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	n, used := 0, map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		path, name, dir := f[0], f[1], f[2]
		inside := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		top, _, _ := strings.Cut(inside, "/")
		if name == "main" || slices.Contains([]string{"internal", "examples", "docs"}, top) ||
			strings.Contains(path, "/internal/") {
			continue
		}
		n++
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		var files, tests []*ast.File
		for _, file := range names {
			a, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				tests = append(tests, a)
			} else if a.Name.Name == name {
				files = append(files, a)
			}
		}
		for _, m := range missing(t, fset, path, files, tests) {
			key := name + "." + m
			used[key] = true
			if unshown[key] == "" {
				t.Errorf("%s: %s is in no example with an output", path, m)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d packages were looked at", n)
	}
	for key := range unshown {
		if !used[key] {
			t.Errorf("%s has an example; it need not be left out", key)
		}
	}
}

// missing returns what no runnable example of the package shows: functions that none
// refers to, and types with methods of which none names the type, makes one or calls
// a method that only this type has.
func missing(t *testing.T, fset *token.FileSet, path string, files, tests []*ast.File) []string {
	t.Helper()
	p, err := doc.NewFromFiles(fset, files, path)
	if err != nil {
		t.Fatal(err)
	}
	of, called, titles := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range doc.Examples(tests...) {
		if e.Output == "" && !e.EmptyOutput {
			continue // compiled and not run
		}
		title, _, _ := strings.Cut(e.Name, "_")
		titles[title] = true
		ast.Inspect(e.Code, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				called[s.Sel.Name] = true
				if x, ok := s.X.(*ast.Ident); ok && x.Name == p.Name {
					of[s.Sel.Name] = true
				}
			}
			return true
		})
	}
	var miss []string
	fn := func(f *doc.Func) bool {
		if !of[f.Name] {
			miss = append(miss, f.Name)
		}
		return of[f.Name]
	}
	for _, f := range p.Funcs {
		fn(f)
	}
	owners := map[string]int{}
	for _, ty := range p.Types {
		for _, m := range ty.Methods {
			owners[m.Name]++
		}
	}
	for _, ty := range p.Types {
		shown := of[ty.Name] || titles[ty.Name]
		for _, f := range ty.Funcs {
			shown = fn(f) || shown
		}
		methods := 0
		for _, m := range ty.Methods {
			if slices.Contains([]string{"Error", "Is", "Unwrap", "String"}, m.Name) {
				continue // what the standard library calls
			}
			methods++
			shown = shown || owners[m.Name] == 1 && called[m.Name]
		}
		if methods > 0 && !shown {
			miss = append(miss, ty.Name)
		}
	}
	slices.Sort(miss)
	return miss
}

// TestMissing shows that the rule finds what it is there for.
func TestMissing(t *testing.T) {
	const source = `package p
type Shown struct{}; func New() *Shown { return nil }; func (*Shown) Do() {}
type Called struct{}; func (*Called) Once() {}
type Titled struct{}; func (Titled) Do() {}
type Silent struct{}; func (Silent) Do() {}
type Plain struct{}; func (Plain) String() string { return "" }
func Ran() {}
func Compiled() {}
func Nobody() {}
func internal() {}
`
	const examples = `package p_test
func Example() { x := p.New(); x.Field.Once(); p.Ran(); other.Nobody()
	// Output: 1
}
func ExampleTitled_Do() {
	// Output:
}
func ExampleCompiled() { p.Compiled(); var s p.Silent }
`
	fset := token.NewFileSet()
	parse := func(name, src string) []*ast.File {
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return []*ast.File{f}
	}
	got := missing(t, fset, "example.org/p", parse("p.go", source), parse("p_test.go", examples))
	if d := cmp.Diff([]string{"Compiled", "Nobody", "Silent"}, got); d != "" {
		t.Error(d)
	}
}
