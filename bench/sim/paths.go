package sim

import (
	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

// paths is what a gateway of Sharing.Paths knows.
type paths struct {
	own  *trie.Trie // the prompts that it sent itself
	news []path     // since it published last
}

// path is a prompt that was sent to a replica. What is on the wire is its hash: so only a gateway that has the text may
// read it.
type path struct {
	prompt router.Prompt
	target string
}

// itself is the only target of own.
const itself = "itself"

func newPaths() (*paths, error) {
	t, err := trie.New(trie.Config{})
	return &paths{own: t}, err
}

// sent notes what gateway g sends.
func (f *fleet) sent(g int, p router.Prompt, target string) {
	if s := f.gates[g].paths; s != nil && p.Text != "" {
		s.own.Insert(p.Model, p.Text, itself)
		s.news = append(s.news, path{p, target})
	}
}

// gossip hands the others what gateway g has sent since it did so last.
func (f *fleet) gossip(g int) {
	s := f.gates[g].paths
	for k, other := range f.gates {
		for _, p := range s.news {
			if k == g || f.cfg.Share.Loss > 0 && f.losses.Float64() < f.cfg.Share.Loss {
				continue
			}
			known := other.paths.own.Match(p.prompt.Model, p.prompt.Text, []string{itself}, nil)
			if known[0] < len(p.prompt.Text) {
				continue // it does not know the hash
			}
			d := router.Decision{Prompt: p.prompt, Target: router.Target{ID: p.target}}
			other.strategy.Record(d, router.Outcome{Stage: router.Sent})
		}
	}
	s.news = nil
}
