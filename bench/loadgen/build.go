package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Gateway is the import path of the gateway's program, a module of its own.
const Gateway = "github.com/warmroute/router/cmd/warmroute"

// Build builds the program with an import path of this module, or Gateway, at path.
// tags are build tags, separated by commas. Without any it is built without C. The
// working directory is the repository's root or a folder in it.
func Build(ctx context.Context, path, program, tags string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	cgo := "0"
	if tags != "" {
		cgo = "1"
	}
	dir := "bench"
	if program == Gateway {
		dir, program = filepath.Join("cmd", "warmroute"), "."
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", path, program)
	if cmd.Dir, err = module(dir); err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, bytes.TrimSpace(out))
	}
	return nil
}

// module returns the folder of a module of the repository.
func module(dir string) (string, error) {
	up, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	for ; ; up = filepath.Dir(up) {
		at := filepath.Join(up, dir)
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if up == filepath.Dir(up) {
			return "", fmt.Errorf("loadgen: %s is not in this folder or one above it: run it in a clone of the repository", dir)
		}
	}
}
