package docs_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goCommand matches a command that builds a package: the folder of -C, the verb,
// the package.
var goCommand = regexp.MustCompile(`\bgo(?: -C (\S+))? (run|build|install)((?: -[a-z]+(?:=\S+)?)*) (\.\S*|github\.com/warmroute/router\S*)`)

// commands returns the packages that the commands of the README and of the pages
// in docs build, by the folder in which they are run.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	all := pages(t)
	all["README.md"] = read(t, "README.md")
	found := map[string][]string{}
	for _, page := range all {
		for _, m := range goCommand.FindAllStringSubmatch(page, -1) {
			dir, pkg := filepath.Join("..", m[1]), strings.TrimRight(m[4], "`.,;:)")
			if pkg == "" { // the folder itself
				pkg = "."
			}
			pkg, _, _ = strings.Cut(pkg, "@")
			if in, ok := strings.CutPrefix(pkg, "github.com/warmroute/router/cmd/warmroute"); ok { // a module of its own
				dir, pkg = "../cmd/warmroute", "."+in
			}
			if !slices.Contains(found[dir], pkg) {
				found[dir] = append(found[dir], pkg)
			}
		}
	}
	return found
}

// TestBuilds: every command on a page builds from an empty build cache without a C
// compiler; and the reader of KV events builds with a C compiler and without
// libzmq. It compiles the standard library, so it is asked for.
func TestBuilds(t *testing.T) {
	found := commands(t)
	if !slices.Contains(found["../cmd/warmroute"], ".") || !slices.Contains(found[".."], "./examples/minimal") {
		t.Fatalf("the pages' commands are not found: %v", found)
	}
	if os.Getenv("WARMROUTE_BUILDS") == "" {
		t.Skip("set WARMROUTE_BUILDS=1, or use make check-builds")
	}
	t.Logf("to build: %v", found)
	cache := t.TempDir()
	build := func(t *testing.T, dir string, packages []string, env ...string) {
		t.Helper()
		cmd := exec.Command("go", append([]string{"build", "-o", t.TempDir() + string(filepath.Separator)}, packages...)...)
		cmd.Dir = dir
		for _, v := range os.Environ() {
			switch name, _, _ := strings.Cut(v, "="); name {
			case "GOCACHE", "GOFLAGS", "CC", "CXX", "CGO_ENABLED", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR":
			default:
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "GOCACHE="+cache, "PKG_CONFIG_LIBDIR="+filepath.Join(cache, "none"))
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("in %s: go build %s: %v\n%s", dir, strings.Join(packages, " "), err, out)
		}
	}
	t.Run("no C compiler", func(t *testing.T) {
		bare := t.TempDir()
		gobin, err := exec.LookPath("go")
		if err != nil {
			t.Fatal(err)
		}
		if gobin, err = filepath.EvalSymlinks(gobin); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(gobin, filepath.Join(bare, "go")); err != nil {
			t.Fatal(err)
		}
		for _, dir := range slices.Sorted(maps.Keys(found)) {
			build(t, dir, found[dir], "PATH="+bare)
		}
	})
	t.Run("a C compiler, no libzmq", func(t *testing.T) {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("there is no gcc here")
		}
		build(t, "../cmd/warmroute", []string{"."}, "CGO_ENABLED=1")
	})
}
