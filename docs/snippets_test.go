package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// around makes a file of a page's lines for one of the nested modules.
var around = map[string]string{
	"examples/grpcbalancer": `package snippet

import (
	"context"

	"google.golang.org/grpc"

	"github.com/warmroute/router"
	"github.com/warmroute/router/examples/grpcbalancer"
	"github.com/warmroute/router/loadview"

	"google.golang.org/grpc/balancer"
)

func snippet(ctx context.Context, strategy router.Strategy, fleet *loadview.View, credentials grpc.DialOption, p router.Prompt) (*grpc.ClientConn, context.Context, error) {
	BLOCK
	return conn, ctx, err
}
`,
	"examples/scorer": `package snippet

import (
	"context"

	"github.com/warmroute/router"
	"github.com/warmroute/router/examples/scorer"
	"github.com/warmroute/router/strategy/leastwork"
)

func snippet(ctx context.Context, endpoints []router.Target, prompt router.Prompt, endpoint router.Target, text string) ([]float64, error) {
	BLOCK
	return scores, err
}
`,
}

// TestSnippets compiles, inside the module that they are for, the lines of which no
// file there has all.
func TestSnippets(t *testing.T) {
	for _, b := range blocks(t, "go") {
		module, ok := strings.CutPrefix(b.mark, "in=")
		if !ok {
			continue
		}
		if around[module] == "" {
			t.Errorf("%s:%d: nothing is known of %s", b.page, b.line, module)
			continue
		}
		root, err := filepath.Abs(filepath.Join("..", filepath.FromSlash(module)))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file, overlay := filepath.Join(dir, "snippet.go"), filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(file, []byte(strings.Replace(around[module], "BLOCK", b.text, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "snippet", "snippet.go"): file}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(overlay, j, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-overlay", overlay, "./snippet")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s:%d: %v\n%s", b.page, b.line, err, out)
		}
	}
}
