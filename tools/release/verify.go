package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// proxy writes a module proxy, as the go command reads it from a file URL, with the
// modules of the tree at one version.
func (t tree) proxy(dirs []string, version, out string) error {
	for _, dir := range dirs {
		escaped, err := module.EscapePath(t.path(dir))
		if err != nil {
			return err
		}
		at := filepath.Join(out, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		mod, err := os.ReadFile(t.file(dir, "go.mod"))
		if err != nil {
			return err
		}
		info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		v := module.Version{Path: t.path(dir), Version: version}
		if err := t.pack(&packed, dir, v); err != nil {
			return err
		}
		for name, b := range map[string][]byte{
			"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod, version + ".zip": packed.Bytes(),
		} {
			if err := os.WriteFile(filepath.Join(at, name), b, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify fetches each module of the tree at the version in a fresh module outside
// of the repository, builds all its packages and installs its programs. Modules of
// others come from this machine's module cache; the network is not used.
func verify(ctx context.Context, out io.Writer, dir, version string) error {
	tmp, err := os.MkdirTemp("", "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	t := tree{dir: dir}
	dirs, err := t.modules()
	if err != nil {
		return err
	}
	if err := t.proxy(dirs, version, filepath.Join(tmp, "proxy")); err != nil {
		return err
	}
	env, err := environment(ctx, tmp)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range dirs {
		start := time.Now()
		n, err := t.fetch(ctx, env, d, version, tmp)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.path(d), err))
			continue
		}
		fmt.Fprintf(out, "%s@%s: fetched, built, %d programs installed (%.1f s)\n", t.path(d), version, n,
			time.Since(start).Seconds())
	}
	return errors.Join(errs...)
}

// environment returns the settings of a user of the modules: a module cache of its
// own, and two proxies, of which neither is on the network.
func environment(ctx context.Context, tmp string) ([]string, error) {
	cache, err := output(exec.CommandContext(ctx, "go", "env", "GOMODCACHE"))
	if err != nil {
		return nil, err
	}
	downloaded := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	proxies := fmt.Sprintf("file://%s,file://%s,off", filepath.ToSlash(filepath.Join(tmp, "proxy")),
		filepath.ToSlash(downloaded))
	return append(os.Environ(),
		"GOPROXY="+proxies, "GONOPROXY=", "GOPRIVATE=", "GOSUMDB=off", "GOVCS=*:off", "GOTOOLCHAIN=local", "GOWORK=off",
		"GOMODCACHE="+filepath.Join(tmp, "mod"), "GOBIN="+filepath.Join(tmp, "bin"), "CGO_ENABLED=0",
		// Without paths the build cache serves every run, whatever tmp is.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	), nil
}

// fetch does the steps of a user with one module. It returns the number of programs.
func (t tree) fetch(ctx context.Context, env []string, dir, version, tmp string) (int, error) {
	fresh, err := os.MkdirTemp(tmp, "fresh")
	if err != nil {
		return 0, err
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = fresh, env
		return output(cmd)
	}
	path := t.path(dir)
	if _, err := run("mod", "init", "example.org/fresh"); err != nil {
		return 0, err
	}
	if _, err := run("get", path+"/...@"+version); err != nil {
		return 0, err
	}
	if _, err := run("build", path+"/..."); err != nil {
		return 0, err
	}
	list, err := run("list", "-f", "{{if and (eq .Name \"main\") (eq .Module.Path \""+path+"\")}}{{.ImportPath}}{{end}}",
		path+"/...")
	if err != nil {
		return 0, err
	}
	programs := strings.Fields(string(list))
	for _, p := range programs {
		if _, err := run("install", p+"@"+version); err != nil {
			return 0, err
		}
		if _, err := os.Stat(filepath.Join(tmp, "bin", filepath.Base(p))); err != nil {
			return 0, fmt.Errorf("%s was not installed: %w", p, err)
		}
	}
	return len(programs), nil
}
