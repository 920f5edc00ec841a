package file

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/trie"
)

// Every strategy of the list keeps the laws, as it is made of a silent file.
func TestConformance(t *testing.T) {
	for name, s := range Strategies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			routertest.Run(t, func(rand func() uint64) router.Strategy {
				cfg := s.Config()
				s.Defaults(cfg)
				err := s.Share(cfg, &Shared{
					Rand: rand,
					Trie: func(nodes, bytes int) (*trie.Trie, error) {
						return trie.New(trie.Config{MaxNodes: nodes, MaxBytes: bytes})
					},
					Sessions: pipeline.NewSessions,
				})
				if err != nil {
					t.Fatal(err)
				}
				made, err := s.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				return made
			}, routertest.Options{})
		})
	}
}

// TestEveryStrategyIsEverywhere names the places that a new package of strategy/ has to
// be added to.
func TestEveryStrategyIsEverywhere(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	dirs, err := filepath.Glob(filepath.Join(root, "strategy", "*", "conformance_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^const Name = "([a-z_]+)"$`)
	listed, found := Strategies(), 0
	for _, dir := range dirs {
		pkg := filepath.Base(filepath.Dir(dir))
		sources, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		for _, source := range sources {
			data, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if m := named.FindSubmatch(data); m != nil {
				name = string(m[1])
			}
		}
		if name == "" {
			t.Errorf("strategy/%s has no constant Name", pkg)
			continue
		}
		found++
		if listed[name].New == nil {
			t.Errorf("%s is not in file.Strategies", name)
		}
		for path, want := range map[string]string{
			"README.md":                  "`" + name + "`",
			"DESIGN.md":                  pkg + "/",
			"bench/policies.go":          pkg + ".Name",
			"config/router.example.toml": name,
		} {
			if path == "bench/policies.go" && name == lmcacheaware.Name {
				continue // the simulated engines have no LMCache
			}
			if !strings.Contains(read(path), want) {
				t.Errorf("%s: %s does not have %s", name, path, want)
			}
		}
		if examples, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*example_test.go")); err != nil ||
			len(examples) == 0 {
			t.Errorf("%s has no example", name)
		}
	}
	if found != len(listed) {
		t.Errorf("%d packages of strategy/ with a conformance test, and %d strategies in the list", found, len(listed))
	}
}
