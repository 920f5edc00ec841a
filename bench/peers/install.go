package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// wheels are the packages of the peers.
var wheels = []string{"sglang-router", "smg", "rolter"}

// environment is the folder of the peers.
type environment struct {
	bin      string            // folder of programs
	versions map[string]string // of the wheels that are there
	missing  map[string]error  // why the others are not
}

// findPython returns a Python 3.11.
func findPython(ctx context.Context, name string) (string, error) {
	const want = "Python 3.11"
	told := name != ""
	if !told {
		name = "python3.11"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if !told {
			return "", fmt.Errorf("%s was not found on PATH: install it, or name one with PEERS_PYTHON=/path/to/python3.11",
				want)
		}
		return "", fmt.Errorf("no Python: %w", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), want+".") {
		return "", fmt.Errorf("%s is not %s: it says %q (%v)", path, want, bytes.TrimSpace(out), err)
	}
	return path, nil
}

// install makes the environment, if it is missing, and installs the wheels. A
// wheel that is not available does not keep the others from being measured.
func install(ctx context.Context, venv, python string) (*environment, error) {
	venv, err := filepath.Abs(venv)
	if err != nil {
		return nil, err
	}
	e := &environment{bin: filepath.Join(venv, "bin"), versions: make(map[string]string), missing: make(map[string]error)}
	py := filepath.Join(e.bin, "python")
	if _, err := os.Stat(py); errors.Is(err, os.ErrNotExist) {
		base, err := findPython(ctx, python)
		if err != nil {
			return nil, err
		}
		say("making %s", venv)
		if out, err := exec.CommandContext(ctx, base, "-m", "venv", venv).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making %s: %w\n%s", venv, err, out)
		}
	}
	for _, name := range wheels {
		v, err := version(ctx, py, name)
		if err != nil {
			say("installing %s", name)
			pip, cancel := context.WithTimeout(ctx, 3*time.Minute)
			out, perr := exec.CommandContext(pip, py, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
				"--only-binary", ":all:", name).CombinedOutput()
			cancel()
			if perr != nil {
				e.missing[name] = fmt.Errorf("pip install %s: %w: %s", name, perr, lastLine(out))
				continue
			}
			if v, err = version(ctx, py, name); err != nil {
				e.missing[name] = err
				continue
			}
		}
		e.versions[name] = v
	}
	return e, ctx.Err()
}

// version returns the version of an installed wheel.
func version(ctx context.Context, py, name string) (string, error) {
	out, err := exec.CommandContext(ctx, py, "-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))",
		name).Output()
	if err != nil {
		return "", fmt.Errorf("%s is not installed: %w", name, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// lastLine returns the last line that says something.
func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}
