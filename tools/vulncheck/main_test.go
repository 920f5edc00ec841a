package main

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write makes the files of a tree, by path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func govulncheck(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "govulncheck")
	if out, err := exec.Command("go", "build", "-o", path,
		"golang.org/x/vuln/cmd/govulncheck").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// report says that a function of the standard library should not be called.
const report = `{"schema_version":"1.3.1","id":"GO-2000-0001","modified":"2000-01-01T00:00:00Z","published":"2000-01-01T00:00:00Z",
"summary":"Shouting","details":"It shouts.","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
"ecosystem_specific":{"imports":[{"path":"strings","symbols":["ToUpper"]}]}}],"database_specific":{"url":"https://example.com","review_status":"REVIEWED"}}`

// zipped serves a directory as the database is served: with .gz after each name.
func zipped(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutSuffix(r.URL.Path, ".gz")
		b, err := os.ReadFile(filepath.Join(dir, filepath.Clean(name)))
		if !ok || err != nil {
			http.NotFound(w, r)
			return
		}
		z := gzip.NewWriter(w)
		_, _ = z.Write(b)
		_ = z.Close()
	})
}

func TestFindsAndSkips(t *testing.T) {
	program := govulncheck(t)
	db := write(t, map[string]string{
		"index/db.json":        `{"modified":"2000-01-01T00:00:00Z"}`,
		"index/modules.json":   `[{"path":"stdlib","vulns":[{"id":"GO-2000-0001","modified":"2000-01-01T00:00:00Z"}]}]`,
		"index/vulns.json":     `[{"id":"GO-2000-0001","modified":"2000-01-01T00:00:00Z"}]`,
		"ID/GO-2000-0001.json": report,
	})
	modules := write(t, map[string]string{
		"bad/go.mod":   "module example.com/bad\n\ngo 1.26\n",
		"bad/main.go":  "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.ToUpper(\"a\")) }\n",
		"good/go.mod":  "module example.com/good\n\ngo 1.26\n",
		"good/main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.ToLower(\"A\")) }\n",
	})
	here := httptest.NewServer(zipped(db))
	defer here.Close()
	hung := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	defer hangs.Close()
	defer close(hung)
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()

	for _, c := range []struct {
		name, db, module string
		ok               bool
		says             string
	}{
		{"what is called", here.URL, "bad", false, "GO-2000-0001"},
		{"what is not called", here.URL, "good", true, "govulncheck "},
		{"a module that is none", here.URL, "nowhere", false, "govulncheck "},
		{"no database", "file://" + db + "/nowhere", "bad", true, "skipped: govulncheck: "},
		{"a database that hangs", hangs.URL, "bad", true, "skipped: govulncheck: "},
		{"a database that refuses", refuses.URL, "bad", true, "skipped: govulncheck: "},
	} {
		var out strings.Builder
		k := checker{out: &out, program: program, db: c.db, wait: 2 * time.Second, most: 3 * time.Minute}
		err := k.run(t.Context(), []string{filepath.Join(modules, c.module)})
		if (err == nil) != c.ok || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %v\n%s", c.name, err, out.String())
		}
	}
}
