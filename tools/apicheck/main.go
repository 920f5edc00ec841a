// Command apicheck compares the exported API of modules with the last tag of the
// clone, by apidiff, and fails if a change breaks users of the tag:
//
//	apicheck -apidiff PATH [-accepted FILE] MODULE_DIR...
//
// Module directories are relative to the root of the clone, in which it is run. If
// there is no tag it says so and succeeds; a module that the tag does not have is new
// and passes. Packages that a module has for itself are left out: internal and
// examples.
//
// A change that is meant is accepted by its line, as it is printed here, in the file:
// until the next tag, for lines that no longer say what is so fail too.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	c := checker{out: os.Stdout, root: "."}
	flag.StringVar(&c.program, "apidiff", "apidiff", "`path` of apidiff")
	flag.StringVar(&c.accepted, "accepted", "", "`file` of accepted changes, one a line")
	flag.Parse()
	if err := c.run(context.Background(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "apicheck:", err)
		os.Exit(1)
	}
}

type checker struct {
	out                     io.Writer
	root, program, accepted string
}

func (c *checker) run(ctx context.Context, modules []string) (err error) {
	tag, err := c.lastTag(ctx)
	if err != nil {
		return err
	}
	accepted, err := c.readAccepted()
	if err != nil {
		return err
	}
	if tag == "" {
		fmt.Fprintln(c.out, "skipped: apidiff: the clone has no tag to compare with")
		return nil
	}
	dir, err := os.MkdirTemp("", "apicheck-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	old := filepath.Join(dir, "tree")
	if err := c.extract(ctx, tag, old); err != nil {
		return err
	}
	var broken []string
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(old, m, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.out, "apidiff %s: new since %s\n", m, tag)
			continue
		}
		changes, err := c.compare(ctx, filepath.Join(old, m), filepath.Join(c.root, m), filepath.Join(dir, "old"))
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		fmt.Fprintf(c.out, "apidiff %s: %d incompatible changes since %s\n", m, len(changes), tag)
		for _, line := range changes {
			line = path.Clean(filepath.ToSlash(m)) + ": " + line
			if i := slices.Index(accepted, line); i >= 0 {
				accepted = slices.Delete(accepted, i, i+1)
				fmt.Fprintln(c.out, "accepted:", line)
				continue
			}
			broken = append(broken, line)
		}
	}
	switch {
	case broken != nil:
		return fmt.Errorf("these changes break users of %s:\n%s", tag, strings.Join(broken, "\n"))
	case len(accepted) > 0:
		return fmt.Errorf("accepted, but not so (any more):\n%s", strings.Join(accepted, "\n"))
	}
	return nil
}

// lastTag returns the nearest tag of the root module, "" if there is none.
func (c *checker) lastTag(ctx context.Context) (string, error) {
	tags, err := c.git(ctx, "tag", "--list", "v[0-9]*", "--merged", "HEAD")
	if err != nil || len(bytes.TrimSpace(tags)) == 0 {
		return "", err
	}
	tag, err := c.git(ctx, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
	return strings.TrimSpace(string(tag)), err
}

func (c *checker) git(ctx context.Context, args ...string) ([]byte, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", c.root}, args...)...))
}

// output is Cmd.Output with the standard error in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var e *exec.ExitError
	if errors.As(err, &e) {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(e.Stderr))
	}
	return out, err
}

func (c *checker) readAccepted() ([]string, error) {
	if c.accepted == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.accepted)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// extract writes the Go files of a tag, and the files that build them, below dir.
func (c *checker) extract(ctx context.Context, tag, dir string) error {
	b, err := c.git(ctx, "archive", "--format=tar", tag)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.WriteFile(h.Name, text, 0o644); err != nil {
			return err
		}
	}
}

// compare returns the incompatible changes from the module in old to that in now.
func (c *checker) compare(ctx context.Context, old, now, export string) ([]string, error) {
	run := func(dir string, args ...string) ([]byte, error) {
		program, err := filepath.Abs(c.program)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		return output(cmd)
	}
	mod, err := exec.CommandContext(ctx, "go", "-C", now, "list", "-m").Output()
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(string(mod))
	if _, err := run(old, "-m", "-w", export, name); err != nil {
		return nil, err
	}
	out, err := run(now, "-m", "-incompatible", export, name)
	if err != nil {
		return nil, err
	}
	var changes []string
	for line := range strings.Lines(string(out)) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if ok && !private(line) {
			changes = append(changes, line)
		}
	}
	return changes, nil
}

// private reports whether a change is of a package that is not for users.
func private(line string) bool {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "package "), "./")
	return strings.HasPrefix(line, "examples/")
}
