package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// proxy is a program that does nothing with a request but send it on: what Go's own
// HTTP server, client and TLS take of the size of any gateway.
const proxy = `package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	u, err := url.Parse(os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe("localhost:8080", httputil.NewSingleHostReverseProxy(u)))
}
`

// The library adds less than maxAdded bytes to a program that is a gateway
// already, symbols and debug information included. Prometheus' text format with
// protobuf would add ten times as much.
const maxAdded = 1_600_000

func TestSize(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the bound is for linux/amd64")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module proxy\n\ngo 1.25\n", "main.go": proxy} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bare, ours := build(t, dir), build(t, ".")
	t.Logf("%s: %d bytes, %d of them ours; a bare reverse proxy of net/http has %d", runtime.Version(), ours,
		ours-bare, bare)
	if ours-bare > maxAdded {
		t.Errorf("the library adds %d bytes, more than %d", ours-bare, maxAdded)
	}
}

// build returns the size of the program in dir.
func build(t *testing.T, dir string) int64 {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
