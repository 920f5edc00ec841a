// Package shareddata finds the traces and recordings that tests read from next
// to the checkout. They are never a part of it.
package shareddata

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of the file or folder of this name. It skips the test,
// naming the path, if there is none.
func Path(t testing.TB, name string) string {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		// A nested module's go.mod begins with a longer path.
		b, err := os.ReadFile(filepath.Join(root, "go.mod"))
		if err == nil && bytes.HasPrefix(b, []byte("module github.com/warmroute/router\n")) {
			break
		}
		up := filepath.Dir(root)
		if up == root {
			t.Skip("no module root above the test, so no ../shared/data")
		}
		root = up
	}
	path := filepath.Join(root, "..", "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s next to the checkout: %v", filepath.Join("..", "shared", "data", name), err)
	}
	return path
}
