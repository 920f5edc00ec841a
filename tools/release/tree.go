package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// project is the module path of the root's module, and the beginning of all others.
const project = "github.com/warmroute/router"

// tree is a copy of the repository's files, without those that git ignores.
type tree struct{ dir string }

// modules returns the folders of the modules that are released, in the order of
// their tags: "." for the root's, which the others require, then those by name.
// The module of tools is for work in the tree alone.
func (t tree) modules() ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(t.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if d.Name() == "go.mod" && !d.IsDir() {
			rel, err := filepath.Rel(t.dir, filepath.Dir(p))
			if rel != "tools" {
				dirs = append(dirs, filepath.ToSlash(rel))
			}
			return err
		}
		return nil
	})
	slices.Sort(dirs) // "." is before every letter
	if err == nil && (len(dirs) == 0 || dirs[0] != ".") {
		err = fmt.Errorf("%s: no go.mod", t.dir)
	}
	return dirs, err
}

// path returns the module path of a folder.
func (t tree) path(dir string) string { return path.Join(project, dir) }

func (t tree) file(dir, name string) string {
	return filepath.Join(t.dir, filepath.FromSlash(dir), name)
}

// set makes the nested modules require the root's module at the version, and each other if they do, without
// replace directives, and writes their sums into their go.sum.
func (t tree) set(dirs []string, version string) error {
	sums := map[string][]string{} // of the modules that others need, by folder
	for todo := slices.Clone(dirs); len(todo) > 0; {
		var left []string
		for _, dir := range todo {
			needs, err := t.needs(dir, dirs)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(needs, func(d string) bool { return sums[d] == nil }) {
				left = append(left, dir)
				continue
			}
			if err := t.setOne(dir, needs, version, sums); err != nil {
				return err
			}
			if sums[dir], err = t.sums(dir, version); err != nil {
				return err
			}
		}
		if len(left) == len(todo) {
			return fmt.Errorf("modules that require each other: %v", left)
		}
		todo = left
	}
	return nil
}

// needs returns the folders of the project's modules that the one in dir requires.
func (t tree) needs(dir string, dirs []string) ([]string, error) {
	name := t.file(dir, "go.mod")
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, b, nil)
	if err != nil {
		return nil, err
	}
	var needs []string
	for _, r := range f.Require {
		for _, d := range dirs {
			if r.Mod.Path == t.path(d) {
				needs = append(needs, d)
			}
		}
	}
	if dir != "." && !slices.Contains(needs, ".") {
		needs = append(needs, ".")
	}
	return needs, nil
}

func (t tree) setOne(dir string, needs []string, version string, sums map[string][]string) error {
	if dir == "." {
		return nil
	}
	err := t.edit(dir, func(f *modfile.File) error {
		for _, d := range needs {
			if err := f.DropReplace(t.path(d), ""); err != nil {
				return err
			}
			if err := f.AddRequire(t.path(d), version); err != nil {
				return err
			}
		}
		f.Cleanup()
		for _, r := range f.Replace {
			return fmt.Errorf("%s: a replace of %s would keep its programs from being installed", dir, r.Old.Path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var all []string
	for _, d := range needs {
		all = append(all, sums[d]...)
	}
	return t.addSums(dir, all)
}

// replace makes the nested modules use the tree's modules again. They keep requiring
// the version that was set.
func (t tree) replace(dirs []string) error {
	for _, dir := range dirs[1:] {
		needs, err := t.needs(dir, dirs)
		if err != nil {
			return err
		}
		up := strings.TrimSuffix(strings.Repeat("../", strings.Count(dir, "/")+1), "/")
		err = t.edit(dir, func(f *modfile.File) error {
			for _, d := range needs {
				if err := f.AddReplace(t.path(d), "", path.Join(up, d), ""); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := t.addSums(dir, nil); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) edit(dir string, change func(*modfile.File) error) error {
	name := t.file(dir, "go.mod")
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := modfile.Parse(name, b, nil)
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	f.Cleanup()
	if b, err = f.Format(); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}

// sums returns the lines that go.sum has for the module in a folder.
func (t tree) sums(dir, version string) ([]string, error) {
	tmp, err := os.CreateTemp("", "module*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := t.pack(tmp, dir, module.Version{Path: t.path(dir), Version: version}); err != nil {
		return nil, err
	}
	all, err := dirhash.HashZip(tmp.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := goModHash(t.file(dir, "go.mod"))
	return []string{
		fmt.Sprintf("%s %s %s\n", t.path(dir), version, all),
		fmt.Sprintf("%s %s/go.mod %s\n", t.path(dir), version, mod),
	}, err
}

// pack writes the zip of the module in a folder. It is zip.CreateFromDir without
// the file .git of a linked work tree.
func (t tree) pack(w io.Writer, dir string, v module.Version) error {
	root := filepath.Join(t.dir, filepath.FromSlash(dir))
	checked, err := zip.CheckDir(root)
	if err != nil {
		return err
	}
	if err := checked.Err(); err != nil {
		return err
	}
	var files []zip.File
	for _, name := range checked.Valid {
		if rel, err := filepath.Rel(root, name); err != nil {
			return err
		} else if rel != ".git" {
			files = append(files, file{path: filepath.ToSlash(rel), name: name})
		}
	}
	return zip.Create(w, v, files)
}

// file is a zip.File on disk.
type file struct{ path, name string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }

// addSums replaces the lines of a module's go.sum for the project's modules.
func (t tree) addSums(dir string, sums []string) error {
	name := t.file(dir, "go.sum")
	b, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var kept []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, project+" ") && !strings.HasPrefix(line, project+"/") {
			kept = append(kept, line)
		}
	}
	kept = append(kept, sums...)
	slices.Sort(kept)
	return os.WriteFile(name, []byte(strings.Join(kept, "")), 0o644)
}

// goModHash is the hash of a go.mod as go.sum has it.
func goModHash(name string) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	})
}
