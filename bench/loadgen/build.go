package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Gateway is the import path of the gateway's program.
const Gateway = "github.com/warmroute/router/examples/gateway"

// Build builds the program with an import path of this module, or Gateway, at path.
// tags are build tags, separated by commas. Without any it is built without C. The
// working directory is this module's folder, one in it, or the repository's root.
func Build(ctx context.Context, path, program, tags string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	cgo := "0"
	if tags != "" {
		cgo = "1"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", path, program)
	if _, err := os.Stat(filepath.Join("bench", "go.mod")); err == nil {
		cmd.Dir = "bench"
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
