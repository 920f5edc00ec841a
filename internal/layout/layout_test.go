package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/warmroute/router"

type pkg struct {
	ImportPath                string
	Imports                   []string
	Deps                      []string
	TestImports, XTestImports []string
	DepsErrors                []struct{ Err string }
	Standard                  bool
}

// list returns the packages of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	fields := "-json=ImportPath,Imports,TestImports,XTestImports,Deps,DepsErrors,Standard"
	cmd := exec.Command("go", "list", fields, module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			t.Fatalf("%v: %s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.DepsErrors {
			t.Errorf("%s: %s", p.ImportPath, e.Err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages are listed", len(all))
	}
	return all
}

// rule says which of the module's own packages those that fit pattern may import,
// in addition to the root. Packages that no rule allows (config, examples) are
// forbidden.
type rule struct {
	pattern string
	may     []string
}

// rules are tried in order; the first with a matching pattern decides.
var rules = []rule{
	{".", []string{"internal/peering"}},
	{"trie", []string{"internal/idmemo", "internal/prefix", "internal/scopekey", "internal/sharers"}},
	{"prompt", []string{"membudget", "internal/errclass", "internal/jsonscan", "internal/sse"}},
	{"prompt/tokenmemo", []string{"membudget", "prompt", "internal/configerr", "internal/jsonscan", "internal/sse"}},
	{"prompt/tokenize", []string{"membudget", "prompt/tokenmemo", "egress", "internal/configerr", "internal/jsonscan",
		"internal/errclass", "internal/rendezvous"}},
	{"egress", nil},
	{"kvindex", []string{"internal/configerr", "internal/idmemo"}},
	{"kvindex/zmqsub", []string{"kvindex", "membudget", "egress", "internal/errclass", "internal/configerr",
		"internal/zmtp"}},
	{"lmcache", []string{"egress", "internal/errclass", "internal/configerr", "internal/samples"}},
	{"loadview", []string{"internal/errclass", "adapters", "egress", "internal/configerr", "internal/peering",
		"loadview/enginepage"}},
	{"loadview/enginepage", []string{"internal/samples"}},
	{"admission", []string{"internal/configerr"}},
	{"adapters", []string{"internal/configerr", "internal/peering", "internal/rendezvous"}},
	{"share", []string{"internal/configerr", "internal/peering", "internal/sharing"}},
	{"share/bustest", []string{"share"}},
	{"internal/sharing", []string{"internal/idmemo", "internal/peering"}},
	{"membudget", []string{"internal/configerr"}},
	{"httpproxy", []string{"membudget", "prompt", "internal/errclass", "internal/configerr"}},
	{"disagg", []string{"membudget", "prompt", "internal/errclass", "internal/configerr", "internal/jsonscan",
		"internal/reqbody"}},
	{"debugui", []string{"adapters", "admission", "disagg", "kvindex", "loadview", "membudget", "observe", "prompt",
		"share"}},
	{"docs", nil}, // tests alone
	{"routertest", nil},
	{"vllmtest", []string{"kvindex", "internal/ports", "internal/zmtp"}},
	{"strategy", []string{"internal/rendezvous"}},
	{"strategy/*", []string{
		"adapters", "trie", "kvindex", "lmcache", "strategy", "strategy/cacheaware", "strategy/leastload",
		"strategy/random",
		"internal/configerr", "internal/forgetlog", "internal/idmemo", "internal/rendezvous", "internal/textcache",
		"internal/tokencache", "internal/peering",
	}},
	{"config/file", []string{"adapters", "admission", "egress", "internal/nearest", "internal/tlsfiles", "kvindex",
		"lmcache", "loadview", "membudget", "share", "strategy/*", "trie"}},
	{"config", []string{"adapters", "admission", "config/file", "egress", "kvindex", "lmcache", "loadview",
		"strategy/pipeline", "trie"}},
	{"internal/configerr", []string{"trie"}},
	{"contentcoding", []string{"internal/configerr"}},
	{"internal/reqbody", []string{"membudget", "internal/configerr", "internal/jsonscan"}},
	{"internal/textcache", []string{"internal/configerr", "internal/forgetlog", "internal/prefix", "strategy",
		"internal/peering", "internal/scopekey", "internal/sharers", "trie"}},
	{"internal/evictions", []string{"trie"}},
	{"internal/kvtest", []string{"kvindex"}},
	{"observe", []string{"share"}},
	{"observe/streams", []string{"kvindex/zmqsub"}},
	{"internal/tokencache", []string{"internal/configerr", "internal/textcache", "kvindex", "trie"}},
	{"internal/errclass", []string{"egress"}},
	{"internal/*", nil},
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		rel := relative(p.ImportPath)
		if top, _, _ := strings.Cut(rel, "/"); top == "examples" {
			continue // they may import everything
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return fits(r.pattern, rel) })
		if i < 0 {
			t.Errorf("%s: no rule says what it may import", rel)
			continue
		}
		for _, imp := range p.Imports {
			to := relative(imp)
			if to == "" || to == "." {
				continue // another module's, or the vocabulary
			}
			if !slices.ContainsFunc(rules[i].may, func(pattern string) bool { return fits(pattern, to) }) {
				t.Errorf("%s imports %s", rel, to)
			}
		}
	}
}

func fits(pattern, rel string) bool {
	ok, err := path.Match(pattern, rel)
	return ok && err == nil
}

// relative returns the path inside the module: "." for its root, "" for a path
// outside of it.
func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	rel, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rel
}

func TestStandardLibraryOnly(t *testing.T) {
	for _, p := range list(t) {
		if rel := relative(p.ImportPath); rel == "." || rel == "trie" || rel == "routertest" {
			for _, d := range p.Deps {
				if relative(d) == "" && strings.Contains(strings.Split(d, "/")[0], ".") {
					t.Errorf("%s depends on %s", rel, d)
				}
			}
		}
	}
}

// TestKeptOut names what an importer of a package must never download or build
// because of it.
func TestKeptOut(t *testing.T) {
	out := map[string][]string{
		".":                {"klauspost"},
		"prompt":           {"go.uber.org/zap", "zmq", "klauspost"},
		"loadview":         {"zmq", "prometheus", "protobuf", "klauspost"},
		"strategy/*":       {"go.uber.org/zap", "zmq", "net/http", "klauspost"},
		"adapters":         {"go.uber.org/zap", "zmq", "net/http", "klauspost"},
		"share":            {"go.uber.org/zap", "zmq", "net/http", "klauspost", "nats", "redis"},
		"config":           {"zmq", "klauspost"},
		"config/*":         {"zmq", "klauspost"},
		"internal/reqbody": {"klauspost"},
	}
	for _, p := range list(t) {
		for pattern, names := range out {
			if !fits(pattern, relative(p.ImportPath)) {
				continue
			}
			for _, d := range p.Deps {
				for _, name := range names {
					if strings.Contains(d, name) {
						t.Errorf("%s depends on %s", relative(p.ImportPath), d)
					}
				}
			}
		}
	}
}

// TestShortSums bounds the modules in an importer's go.sum: it lists those that the
// tests of the imported packages need, too. lmcacheaware is tested with a poller of
// lmcache, which its users import.
func TestShortSums(t *testing.T) {
	patterns := []string{".", "trie", "prompt", "loadview", "strategy", "strategy/*"}
	modules := []string{"github.com/cespare/xxhash/v2", "github.com/google/go-cmp"}
	all := list(t)
	deps := make(map[string][]string)
	for _, p := range all {
		deps[p.ImportPath] = p.Deps
	}
	for _, p := range all {
		rel := relative(p.ImportPath)
		checked := slices.ContainsFunc(patterns, func(pattern string) bool { return fits(pattern, rel) })
		if !checked || rel == "strategy/lmcacheaware" {
			continue
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for _, d := range append(slices.Clone(deps[imp]), imp) {
				known := func(m string) bool { return d == m || strings.HasPrefix(d, m+"/") }
				if strings.Contains(strings.Split(d, "/")[0], ".") && !known(module) && !slices.ContainsFunc(modules, known) {
					t.Errorf("%s or its test needs %s, by %s", rel, d, imp)
				}
			}
		}
	}
}

// TestPureGo shows that no package needs C, unless the tag libzmq asks for it.
func TestPureGo(t *testing.T) {
	t.Setenv("CGO_ENABLED", "1")
	needC := func(tags string) []string {
		format := `{{if and (not .Standard) .CgoFiles}}{{.ImportPath}}{{end}}`
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, "-f", format, module+"/...").Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return strings.Fields(string(out))
	}
	if got := needC(""); len(got) > 0 {
		t.Errorf("these need C: %v", got)
	}
	if got := needC("libzmq"); !slices.Equal(got, []string{"github.com/pebbe/zmq4"}) {
		t.Errorf("with the tag libzmq these need C: %v", got)
	}
}
