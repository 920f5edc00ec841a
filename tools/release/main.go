// Command release makes the tags of a version: the root's module first, then each
// nested one, all at the same version.
//
//	release [-n] VERSION
//
// It runs at the root of a clean clone, on the branch main. It makes a commit in
// which each nested module requires the root's at VERSION without a replace
// directive, so that its programs can be installed; the tags name that commit. The
// next commit puts the replace directives back. Before anything of it reaches the
// branch, each module is fetched, built and installed from a file proxy of that
// commit, without the network. It pushes nothing, and prints the command that does.
//
// With -n it checks the version and the clone, and changes nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	dry := flag.Bool("n", false, "check the version and the clone, and change nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := releaser{out: os.Stdout, root: ".", branch: "main", verify: verify}
	if err := r.run(ctx, flag.Arg(0), *dry); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type releaser struct {
	out    io.Writer
	root   string // of the clone
	branch string
	// verify reports whether the modules of the tree at dir can be fetched at the
	// version, built and installed.
	verify func(ctx context.Context, out io.Writer, dir, version string) error
}

func (r *releaser) run(ctx context.Context, version string, dry bool) error {
	if err := r.check(ctx, version); err != nil {
		return err
	}
	if dry {
		fmt.Fprintf(r.out, "%s can be released\n", version)
		return nil
	}
	parent, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	work := filepath.Join(parent, "tree")
	if _, err := r.git(ctx, r.root, "worktree", "add", "--detach", work, "HEAD"); err != nil {
		return err
	}
	defer r.git(context.WithoutCancel(ctx), r.root, "worktree", "remove", "--force", work)

	tree := tree{dir: work}
	dirs, err := tree.modules()
	if err != nil {
		return err
	}
	if err := tree.set(dirs, version); err != nil {
		return err
	}
	released, err := r.commit(ctx, work, "Release "+version,
		"Each nested module requires the root's at this version, without its replace directive, so that\nits programs can "+
			"be installed. The next commit puts the directives back.")
	if err != nil {
		return err
	}
	if err := r.verify(ctx, r.out, work, version); err != nil {
		return fmt.Errorf("the modules cannot be used from a proxy, nothing was tagged: %w", err)
	}
	if err := tree.replace(dirs); err != nil {
		return err
	}
	after, err := r.commit(ctx, work, "go.mod: the nested modules use the tree again", "")
	if err != nil {
		return err
	}
	if _, err := r.git(ctx, r.root, "merge", "--ff-only", after); err != nil {
		return err
	}
	tags := make([]string, len(dirs))
	for i, dir := range dirs {
		tags[i] = tag(dir, version)
		if _, err := r.git(ctx, r.root, "tag", "-a", "-m", "Release "+version, tags[i], released); err != nil {
			return err
		}
		fmt.Fprintln(r.out, "tagged", tags[i])
	}
	fmt.Fprintf(r.out, "\nTo publish all of it at once:\n\n    git push --atomic origin %s %s\n", r.branch,
		strings.Join(tags, " "))
	return nil
}

// tag returns the name of a module's tag.
func tag(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// check reports every reason why the version cannot be released.
func (r *releaser) check(ctx context.Context, version string) error {
	if semver.Canonical(version) != version || semver.Build(version) != "" || version == "" {
		return fmt.Errorf("%q is no version like v0.1.0", version)
	}
	if m := semver.Major(version); m != "v0" && m != "v1" {
		return fmt.Errorf("%s: the modules' paths are those of v0 and v1", version)
	}
	var errs []error
	status, err := r.git(ctx, r.root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		errs = append(errs, fmt.Errorf("the clone is not clean:\n%s", status))
	}
	branch, err := r.git(ctx, r.root, "rev-parse", "--abbrev-ref", "HEAD")
	if err != nil {
		return err
	}
	if branch != r.branch {
		errs = append(errs, fmt.Errorf("the branch is %s, not %s", branch, r.branch))
	}
	tags, err := r.git(ctx, r.root, "tag", "--list")
	if err != nil {
		return err
	}
	for _, t := range strings.Fields(tags) {
		if v := t[strings.LastIndex(t, "/")+1:]; semver.IsValid(v) && semver.Compare(v, version) >= 0 {
			errs = append(errs, fmt.Errorf("there is a tag %s already", t))
		}
	}
	log, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(strings.TrimPrefix(version, "v")) + `( |$)`).Match(log) {
		errs = append(errs, fmt.Errorf("CHANGELOG.md has no section \"## %s\"", strings.TrimPrefix(version, "v")))
	}
	return errors.Join(errs...)
}

// commit commits everything in the work tree and returns the commit.
func (r *releaser) commit(ctx context.Context, work, subject, body string) (string, error) {
	if _, err := r.git(ctx, work, "add", "--all"); err != nil {
		return "", err
	}
	args := []string{"commit", "--quiet", "-m", subject}
	if body != "" {
		args = append(args, "-m", body)
	}
	if _, err := r.git(ctx, work, args...); err != nil {
		return "", err
	}
	return r.git(ctx, work, "rev-parse", "HEAD")
}

func (r *releaser) git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...))
	return strings.TrimSpace(string(out)), err
}

// output is Cmd.Output with the end of standard error in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
