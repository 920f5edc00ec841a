package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clone is a tiny repository.
type clone struct {
	t   *testing.T
	dir string
}

func (c clone) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c clone) git(args ...string) {
	c.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", c.dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c",
		"commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func TestLastTag(t *testing.T) {
	program := filepath.Join(t.TempDir(), "apidiff")
	if out, err := exec.Command("go", "build", "-o", program,
		"golang.org/x/exp/cmd/apidiff").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := clone{t, t.TempDir()}
	accepted := filepath.Join(t.TempDir(), "accepted")
	check := func(what string, ok bool, says string) {
		t.Helper()
		var out strings.Builder
		k := checker{out: &out, root: c.dir, program: program, accepted: accepted}
		err := k.run(t.Context(), []string{".", "extra"})
		all := out.String()
		if err != nil {
			all += err.Error()
		}
		if (err == nil) != ok || !strings.Contains(all, says) {
			t.Errorf("%s: want success %v and %q: %s", what, ok, says, all)
		}
	}
	accept := func(text string) {
		if err := os.WriteFile(accepted, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	accept("# none\n")
	const example = "package example\n\nfunc F() {}\n"
	c.git("init", "-q")
	c.write("go.mod", "module example.com/m\n\ngo 1.26\n")
	c.write("m.go", "package m\n\nfunc F(int) {}\n")
	c.write("sub/s.go", "package sub\n\ntype T struct{ A, B int }\n")
	c.write("examples/example/e.go", example)
	c.write("internal/x/x.go", "package x\n\nfunc F() {}\n")
	c.git("add", ".")
	c.git("commit", "-qm", "first")
	check("no tag", true, "skipped: apidiff: ")

	c.git("tag", "v0.1.0")
	check("nothing changed", true, "0 incompatible changes since v0.1.0")

	c.write("m.go", "package m\n\nfunc F(int) {}\n\nfunc G() {}\n")
	c.write("examples/example/e.go", "package example\n")
	c.write("internal/x/x.go", "package x\n")
	c.write("extra/go.mod", "module example.com/m/extra\n\ngo 1.26\n")
	c.write("extra/e.go", "package extra\n")
	check("what users do not see", true, "extra: new since v0.1.0")

	c.write("m.go", "package m\n\nfunc F(string) {}\n")
	check("another parameter", false, ".: F: changed from func(int) to func(string)")

	accept("# meant\n.: F: changed from func(int) to func(string)\n")
	check("that is accepted", true, "accepted: .: F: ")

	c.write("sub/s.go", "package sub\n\ntype T struct{ A int }\n")
	check("one more, that is not", false, "T.B: removed")

	c.git("add", ".")
	c.git("commit", "-qm", "second")
	c.git("tag", "v0.2.0")
	check("accepted for the tag before", false, "not so (any more)")

	accept("")
	check("the next tag", true, "0 incompatible changes since v0.2.0")

	if err := os.RemoveAll(filepath.Join(c.dir, "sub")); err != nil {
		t.Fatal(err)
	}
	check("a package that is gone", false, "sub")

	c.write("m.go", "package m\n\nfunc F(")
	check("what does not compile", false, "")
}
