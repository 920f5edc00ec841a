package layout

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// nestedRule says for the nested modules in folders that fit pattern which packages
// of the project they may import, tests included, besides those of their own and
// the public ones of the root's module.
type nestedRule struct {
	pattern string
	may     []string // of the root's module, or of another one
	nested  []string // other nested modules, which it requires
	alone   bool     // imports nothing of the project
	newer   bool     // needs a newer Go than the library does
}

// nestedRules are tried in order; the first with a matching pattern decides. A
// version of contrib meets every later version of the root's module, so what it
// imports has to be public.
var nestedRules = []nestedRule{
	// Programs: released with a root, and buses, of the same version.
	{pattern: "bench", may: []string{"internal/*"}, nested: buses},
	{pattern: "cmd/warmroute", may: []string{"internal/*"}, nested: append([]string{"contrib/prometheus"}, buses...)},
	{pattern: "contrib/*"},
	{pattern: "debugui/browsertest"},
	{pattern: "examples/caddy", may: []string{"internal/statetest"}, newer: true}, // Caddy does; tests alone
	{pattern: "examples/*", may: []string{"internal/statetest"}},                  // tests alone
	{pattern: "internal/samples/expfmttest", may: []string{"internal/samples"}},   // never fetched
	{pattern: "tools", alone: true, newer: true},                                  // its tools do
}

// buses are the modules that carry what gateways share.
var buses = []string{"contrib/nats", "contrib/redis"}

type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct{ Old, New struct{ Path string } }
}

func readMod(t *testing.T, dir string) goMod {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// modules returns the folders of the repository's modules, "." for the root's.
func modules(t *testing.T) []string {
	t.Helper()
	const root = "../.."
	var all []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != root:
			return filepath.SkipDir
		case d.Name() == "go.mod":
			rel, err := filepath.Rel(root, filepath.Dir(p))
			all = append(all, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%d modules: %v", len(all), err)
	}
	return all
}

// imported returns the paths that the Go files of a module import, whatever their
// build constraints say.
func imported(t *testing.T, dir string, nested []string) []string {
	t.Helper()
	paths := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("../..", dir), func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel("../..", p)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || rel != dir && slices.Contains(nested, filepath.ToSlash(rel))):
			return filepath.SkipDir
		case filepath.Ext(p) != ".go":
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			paths[path] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]string, 0, len(paths))
	for p := range paths {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// TestNestedModules holds every nested module to its rule, and its go.mod to the
// form that the release and the root's importers rely on.
func TestNestedModules(t *testing.T) {
	all := modules(t)
	root := readMod(t, "../..")
	used := make([]bool, len(nestedRules))
	for _, dir := range all {
		if dir == "." {
			continue
		}
		i := slices.IndexFunc(nestedRules, func(r nestedRule) bool { return fits(r.pattern, dir) })
		if i < 0 {
			t.Errorf("%s: no rule says what it may import", dir)
			continue
		}
		rule := nestedRules[i]
		used[i] = true

		mod := readMod(t, filepath.Join("../..", dir))
		if want := module + "/" + dir; mod.Module.Path != want {
			t.Errorf("%s: the module is named %s, want %s", dir, mod.Module.Path, want)
		}
		if !rule.newer && mod.Go != root.Go {
			t.Errorf("%s: go %s, want the root's %s", dir, mod.Go, root.Go)
		}
		up := strings.TrimSuffix(strings.Repeat("../", strings.Count(dir, "/")+1), "/")
		want := map[string]string{} // the directives that it is to have
		for _, r := range mod.Require {
			to := relative(r.Path)
			switch {
			case to == "":
				continue
			case to == ".":
				want[r.Path] = up
			default:
				want[r.Path] = up + "/" + to
				if !slices.Contains(rule.nested, to) {
					t.Errorf("%s requires %s: its rule does not say so", dir, r.Path)
				}
			}
		}
		replaced := map[string]string{}
		for _, r := range mod.Replace {
			replaced[r.Old.Path] = r.New.Path
		}
		if !maps.Equal(replaced, want) || (want[module] == "") != rule.alone {
			t.Errorf("%s: its go.mod should require the root's module (%t), and replace %v and nothing else, not %v",
				dir, !rule.alone, want, replaced)
		}

		for _, path := range imported(t, dir, all) {
			to := relative(path)
			inside := to == dir || strings.HasPrefix(to, dir+"/")
			public := !strings.HasPrefix(to, "internal/") && !strings.HasPrefix(to, "examples/") &&
				!slices.ContainsFunc(all, func(m string) bool {
					return m != "." && (to == m || strings.HasPrefix(to, m+"/"))
				})
			may := slices.ContainsFunc(rule.may, func(pattern string) bool { return fits(pattern, to) }) ||
				slices.ContainsFunc(rule.nested, func(m string) bool { return to == m || strings.HasPrefix(to, m+"/") })
			if to != "" && !inside && (rule.alone || !public && !may) {
				t.Errorf("%s imports %s", dir, to)
			}
		}
	}
	for i, r := range nestedRules {
		if !used[i] {
			t.Errorf("no module fits the rule for %s", r.pattern)
		}
	}
}

// TestRootImportsNoNested: what the root's module imports of the project is in it.
func TestRootImportsNoNested(t *testing.T) {
	all := modules(t)
	for _, path := range imported(t, ".", all) {
		to := relative(path)
		for _, m := range all {
			if m != "." && (to == m || strings.HasPrefix(to, m+"/")) {
				t.Errorf("the root's module imports %s", to)
			}
		}
	}
	for _, r := range readMod(t, "../..").Require {
		if relative(r.Path) != "" || strings.Contains(r.Path, "progressbar") || strings.HasSuffix(r.Path, "x/term") {
			t.Errorf("the root's module requires %s", r.Path)
		}
	}
}
