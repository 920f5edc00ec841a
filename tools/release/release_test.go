package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := output(exec.Command("git", append([]string{"-C", dir, "-c", "commit.gpgsign=false", "-c",
		"tag.gpgsign=false"}, args...)...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// copyTree returns a copy of the repository's files as they are now, committed or
// not.
func copyTree(t *testing.T) tree {
	t.Helper()
	const root = "../.."
	dir := t.TempDir()
	for name := range strings.SplitSeq(git(t, root, "ls-files", "-co", "--exclude-standard", "-z"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) || name == "" {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree{dir: dir}
}

// TestFetch fetches each module of this tree as a user would, builds it and
// installs its programs.
func TestFetch(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds every module")
	}
	const version = "v0.1.0"
	tr := copyTree(t)
	dirs, err := tr.modules()
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 10 || dirs[0] != "." || slices.Contains(dirs, "tools") {
		t.Fatalf("the modules are %q", dirs)
	}
	if err := tr.set(dirs, version); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := verify(t.Context(), &out, tr.dir, version); err != nil {
		t.Error(err)
	}
	t.Log("\n" + out.String())
	for _, program := range []string{".@v0.1.0: fetched, built, 0 programs",
		"router/bench@v0.1.0: fetched, built, 0 programs"} {
		if strings.Contains(out.String(), program) {
			t.Errorf("no program was installed: %s", program)
		}
	}
}

// sample is a clone with a root's module, two that need it, and one that needs it and one of those.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"CHANGELOG.md":       "# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-12-01)\n",
		"go.mod":             "module " + project + "\n\ngo 1.25.0\n",
		"root.go":            "package router\n\nconst Yes = true\n",
		"nested/sub/main.go": "package main\n\nimport \"" + project + "\"\n\nfunc main() { println(router.Yes) }\n",
		"nested/sub/go.mod": "module " + project + "/nested/sub\n\ngo 1.25.0\n\nrequire " + project + " v0.0.9\n\nreplace " +
			project + " => ../..\n",
		"nested/vlib/lib.go": "package vlib\n\nimport \"" + project + "\"\n\nconst Yes = router.Yes\n",
		"nested/vlib/go.mod": "module " + project + "/nested/vlib\n\ngo 1.25.0\n\nrequire " + project +
			" v0.0.9\n\nreplace " + project + " => ../..\n",
		"nested/user/main.go": "package main\n\nimport \"" + project +
			"/nested/vlib\"\n\nfunc main() { println(vlib.Yes) }\n",
		"nested/user/go.mod": "module " + project + "/nested/user\n\ngo 1.25.0\n\nrequire (\n\t" + project +
			" v0.0.9\n\t" + project + "/nested/vlib v0.0.9\n)\n\nreplace (\n\t" + project + " => ../..\n\t" + project +
			"/nested/vlib => ../vlib\n)\n",
		"tools/go.mod": "module " + project + "/tools\n\ngo 1.25.0\n",
	} {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q", "-b", "main")
	for k, v := range map[string]string{"user.name": "t", "user.email": "t@example.com", "commit.gpgsign": "false",
		"tag.gpgsign": "false"} {
		git(t, dir, "config", k, v)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "first")
	return dir
}

func TestRelease(t *testing.T) {
	dir := sample(t)
	before := git(t, dir, "rev-parse", "HEAD")
	var out strings.Builder
	r := releaser{out: &out, root: dir, branch: "main", verify: verify}
	if err := r.run(t.Context(), "v0.1.0", true); err != nil || git(t, dir, "rev-parse", "HEAD") != before {
		t.Fatalf("-n: %v", err)
	}
	if err := r.run(t.Context(), "v0.1.0", false); err != nil {
		t.Fatal(err)
	}
	if got := git(t, dir, "tag", "--list"); got != "nested/sub/v0.1.0\nnested/user/v0.1.0\nnested/vlib/v0.1.0\nv0.1.0" {
		t.Errorf("tags %q", got)
	}
	if got := git(t, dir, "log",
		"--format=%s"); got != "go.mod: the nested modules use the tree again\nRelease v0.1.0\nfirst" {
		t.Errorf("log %q", got)
	}
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("left behind: %s", got)
	}
	if got := git(t, dir, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("left behind: %s", got)
	}
	at := git(t, dir, "show", "nested/sub/v0.1.0:nested/sub/go.mod")
	if strings.Contains(at, "replace") || !strings.Contains(at, project+" v0.1.0") {
		t.Errorf("at the tag: %s", at)
	}
	now := git(t, dir, "show", "HEAD:nested/sub/go.mod")
	if !strings.Contains(now, "=> ../..") || !strings.Contains(now, project+" v0.1.0") {
		t.Errorf("after it: %s", now)
	}
	if sum := git(t, dir, "show", "nested/sub/v0.1.0:nested/sub/go.sum"); strings.Count(sum, project+" v0.1.0") != 2 {
		t.Errorf("go.sum at the tag: %s", sum)
	}
	user := git(t, dir, "show", "nested/user/v0.1.0:nested/user/go.mod")
	if strings.Contains(user, "replace") || strings.Count(user, "v0.1.0") != 2 {
		t.Errorf("one that needs two, at the tag: %s", user)
	}
	sum := git(t, dir, "show", "nested/user/v0.1.0:nested/user/go.sum")
	if strings.Count(sum, "v0.1.0") != 4 {
		t.Errorf("its go.sum at the tag: %s", sum)
	}
	user = git(t, dir, "show", "HEAD:nested/user/go.mod")
	if !strings.Contains(user, "/nested/vlib => ../../nested/vlib") {
		t.Errorf("after it: %s", user)
	}
	push := "git push --atomic origin main v0.1.0 nested/sub/v0.1.0 nested/user/v0.1.0 nested/vlib/v0.1.0"
	if !strings.Contains(out.String(), push) {
		t.Errorf("it does not say how to publish: %s", out.String())
	}
	err := r.run(t.Context(), "v0.1.0", false)
	if err == nil || !strings.Contains(err.Error(), "there is a tag") {
		t.Errorf("twice: %v", err)
	}
}

// TestReleaseFails: a version that cannot be used leaves the clone as it was.
func TestReleaseFails(t *testing.T) {
	dir := sample(t)
	before := git(t, dir, "rev-parse", "HEAD")
	broken := errors.New("broken")
	r := releaser{out: io.Discard, root: dir, branch: "main",
		verify: func(context.Context, io.Writer, string, string) error { return broken }}
	for _, c := range []struct{ version, says string }{
		{"v0.1.0", "nothing was tagged"},
		{"0.1.0", "no version"},
		{"", "no version"},
		{"v0.1", "no version"},
		{"v2.0.0", "paths"},
		{"v0.2.0", "CHANGELOG.md has no section"},
	} {
		if err := r.run(t.Context(), c.version, false); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.version, err, c.says)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "root.go"), []byte("package router\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), "v0.1.0", false); err == nil || !strings.Contains(err.Error(), "not clean") {
		t.Errorf("not clean: %v", err)
	}
	git(t, dir, "checkout", "-q", ".")
	git(t, dir, "checkout", "-q", "-b", "other")
	if err := r.run(t.Context(), "v0.1.0", false); err == nil || !strings.Contains(err.Error(), "branch is other") {
		t.Errorf("another branch: %v", err)
	}
	if git(t, dir, "rev-parse", "main") != before || git(t, dir, "tag", "--list") != "" ||
		strings.Contains(git(t, dir, "worktree", "list"), "\n") {
		t.Error("something was left behind")
	}
}

// TestBroken: verify sees a module that nobody could fetch.
func TestBroken(t *testing.T) {
	dir := sample(t)
	tr := tree{dir: dir}
	// As in the tree: the root's version is none that the proxy has.
	err := verify(t.Context(), io.Discard, dir, "v0.1.0")
	if err == nil || !strings.Contains(err.Error(), project+"/nested/sub") || strings.Contains(err.Error(), project+":") {
		t.Errorf("a version that does not exist: %v", err)
	}
	all := []string{".", "nested/sub", "nested/user", "nested/vlib"}
	if err := tr.set(all, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	if err := tr.replace(all); err != nil {
		t.Fatal(err)
	}
	err = verify(t.Context(), io.Discard, dir, "v0.1.0")
	if err == nil || !strings.Contains(err.Error(), "replace") {
		t.Errorf("a program with a replace directive: %v", err)
	}
}
