package file

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
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
