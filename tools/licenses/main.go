// Command licenses lists the modules that are linked into the packages of this
// repository, with their licences, and fails if a licence is not permissive or not
// known. There are exceptions for examples, each with its reason:
//
//	licenses [-root DIR] [-write] -o LICENSES.md MODULE_DIR...
//
// It reads the licence files in the module cache, for the modules that `go list
// -deps` reports as linked, with C or without: no tests, no tools. Without -write
// it fails if the file differs from the list.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	out := flag.String("o", "LICENSES.md", "the `file`, in the root")
	root := flag.String("root", ".", "`directory` that the modules' are relative to")
	write := flag.Bool("write", false, "write the file instead of comparing with it")
	flag.Parse()
	if err := run(*root, *out, *write, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(root, name string, write bool, dirs []string) error {
	file := filepath.Join(root, name)
	found, err := collect(root, dirs)
	if err != nil {
		return err
	}
	text, err := page(found)
	if err != nil {
		return err
	}
	if write {
		return os.WriteFile(file, text, 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, text) {
		return fmt.Errorf("%s is not up to date; make licenses writes it", name)
	}
	return nil
}

// module is one linked module.
type module struct {
	Path, Dir string
	Main      bool
	Replace   *module
}

// linked is a module with the directories of ours that link it.
type linked struct {
	dir string
	by  []string
}

// collect returns the modules that those in dirs below root link, by path.
func collect(root string, dirs []string) (map[string]*linked, error) {
	found := map[string]*linked{}
	for _, dir := range dirs {
		for _, build := range []struct{ cgo, tags string }{{"1", "libzmq"}, {"0", ""}} {
			mods, err := deps(filepath.Join(root, dir), build.cgo, build.tags)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			for _, m := range mods {
				l := found[m.Path]
				if l == nil {
					l = &linked{dir: m.Dir}
					found[m.Path] = l
				}
				if by := path.Clean(filepath.ToSlash(dir)); !slices.Contains(l.by, by) {
					l.by = append(l.by, by)
				}
			}
		}
	}
	return found, nil
}

// deps lists the modules that the packages in dir need, without those in the tree
// itself.
func deps(dir, cgo, tags string) ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "-tags", tags, "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.Output()
	var e *exec.ExitError
	if errors.As(err, &e) {
		return nil, fmt.Errorf("go list: %w: %s", err, e.Stderr)
	} else if err != nil {
		return nil, err
	}
	var all []module
	seen := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := d.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		m := p.Module
		if m == nil || m.Main || seen[m.Path] {
			continue // the standard library's and our own packages, and what is known
		}
		if m.Replace != nil && strings.HasPrefix(m.Replace.Path, ".") {
			continue // our own, from a nested module
		}
		if m.Replace != nil {
			m.Dir = m.Replace.Dir
		}
		seen[m.Path] = true
		all = append(all, *m)
	}
}

// permissive are the licences that are let in, by SPDX identifier.
var permissive = map[string]bool{
	"0BSD": true, "Apache-2.0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "CC0-1.0": true,
	"ISC": true, "MIT": true, "MIT-0": true, "Unlicense": true, "Zlib": true, "BlueOak-1.0.0": true,
}

// exception lets in, into examples alone, a licence that would not be: which one it is,
// and why it may be there. No package that others import may link it.
type exception struct{ licence, why string }

var exceptions = map[string]exception{
	"github.com/AndreasBriese/bbloom": {"MIT",
		"comes with Caddy; MIT, with comment marks in it, and one file in the public domain"},
	"github.com/go-sql-driver/mysql": {"MPL-2.0", "comes with Caddy; not changed, and its source is where its path says"},
}

// allowed reports whether the module is an exception: the licence that was found, and
// examples alone that link it.
func (l *linked) allowed(name string, ids []string) (exception, bool) {
	e, ok := exceptions[name]
	for _, by := range l.by {
		ok = ok && strings.HasPrefix(by, "examples/")
	}
	return e, ok && strings.Join(ids, ", ") == e.licence
}

// wholly is the share of a file, in percent, that known licence texts have to make
// up; the rest is names, years and headings.
const wholly = 75

// licences returns the SPDX identifiers of the licences of the module in dir.
func licences(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	var unknown []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || strings.HasSuffix(name, ".GO") || !strings.HasPrefix(name, "LICEN") &&
			!strings.HasPrefix(name, "COPYING") && !strings.HasPrefix(name, "UNLICENSE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		cov := licensecheck.Scan(text)
		if cov.Percent < wholly {
			unknown = append(unknown, fmt.Sprintf("%s is %.0f %% known text", e.Name(), cov.Percent))
		}
		for _, m := range cov.Match {
			if !m.IsURL {
				ids[m.ID] = true
			}
		}
	}
	got := slices.Sorted(maps.Keys(ids))
	switch {
	case unknown != nil:
		return got, errors.New(strings.Join(unknown, ", "))
	case len(got) == 0:
		return nil, errors.New("no licence file")
	}
	for _, id := range got {
		if !permissive[id] {
			return got, fmt.Errorf("%s is not among the permissive licences", id)
		}
	}
	return got, nil
}

// page returns the file. The error names every module that may not be linked.
func page(found map[string]*linked) ([]byte, error) {
	var errs []error
	var notes string
	var b strings.Builder
	b.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		ids, err := licences(found[name].dir)
		if e, ok := found[name].allowed(name, ids); err != nil && ok {
			notes += fmt.Sprintf("- %s (%s): %s.\n", name, e.licence, e.why)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("%s (linked by %s): %w", name, strings.Join(found[name].by, ", "), err))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.Join(ids, ", "), strings.Join(found[name].by, ", "))
	}
	if notes != "" {
		b.WriteString("\nExceptions, which no package links that others import, but an example's program alone:\n\n" + notes)
	}
	b.WriteString(foot)
	return []byte(b.String()), errors.Join(errs...)
}

const head = `# Licences of linked modules

Warmroute itself is under the Apache License 2.0 ([LICENSE](LICENSE)). ` + "`make licenses`" + ` generates this list from the licence files of all
modules that are linked into a package of this repository, with the tag ` + "`libzmq`" + ` or without. ` + "`make check`" + ` fails if the list is not up to date, or if
a licence is unknown or not permissive. A dot stands for the main module, with the examples in it. An importer of a package
links only the modules that the package needs. Modules that only tests and tools need are not listed.

| module | licence (SPDX) | linked by |
|---|---|---|
`

const foot = `
Not a Go module: with the tag ` + "`" + `libzmq` + "`" + `, ` + "`" + `kvindex/zmqsub` + "`" + ` is linked to the system's libzmq, dynamically. libzmq is under the
Mozilla Public License 2.0 since 4.3.5, and was under the LGPL 3 with an exception for linking before. Without that tag there is
no libzmq.
`
