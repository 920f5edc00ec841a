package trie

import (
	"github.com/warmroute/router/internal/scopekey"
	"github.com/warmroute/router/internal/sharers"
)

// MatchShared is Match that also returns how many leading bytes of text at least n recorded prompts in scope
// begin with, whichever targets they are recorded for. A forgotten target's prompts count until they are swept.
// Without ids it returns only that, and takes less time. It is for this module's strategies: no other can name the
// type of n.
func (t *Trie) MatchShared(scope, text string, ids []string, cached []int, n sharers.Count) ([]int, int) {
	cached = sized(cached, len(ids))
	clear(cached)
	scope = scopekey.Of(scope)
	t.mu.RLock()
	defer t.mu.RUnlock()
	root := t.roots[scope]
	if root == 0 {
		return cached, 0
	}
	if len(ids) == 0 {
		return cached, t.match(root, text, nil, nil, n.Prompts)
	}
	r := t.resolve(ids)
	shared := t.match(root, text, r.index, cached, n.Prompts)
	r.spread(cached)
	return cached, shared
}
