package trie

import (
	"github.com/warmroute/router/internal/prefix"
	"github.com/warmroute/router/internal/scopekey"
)

// Shared returns the length of the longest beginning of text that at least n
// recorded prompts in scope have, whoever holds them; 0 if there is none. n counts as
// at most 1,024. What a forgotten target held counts until it is swept. The time that
// it takes grows with n and with the nodes along text.
func (t *Trie) Shared(scope, text string, n int) int {
	scope = scopekey.Of(scope)
	c := counter{t: t, want: min(n, 1024)}
	t.mu.RLock()
	defer t.mu.RUnlock()
	// Down to the last node that has any of text; a part of its run may do.
	last, depth, part := t.roots[scope], 0, 0
	for last != 0 && depth < len(text) {
		kid := t.child(last, text[depth])
		if kid == 0 {
			break
		}
		nd := t.nodes.at(kid)
		part = prefix.Common(t.run(nd), text[depth:])
		depth, last = depth+part, kid
		if part < int(nd.size) {
			break
		}
	}
	// Upwards, what is below was counted before.
	below := uint32(0)
	for depth > 0 {
		nd := t.nodes.at(last)
		c.count += int(nd.ends)
		c.kids(nd, below)
		if c.count >= c.want {
			return depth
		}
		depth -= part
		last, below = nd.parent, last
		part = int(t.nodes.at(last).size)
	}
	return 0
}

// counter counts prompts until it has as many as are wanted.
type counter struct {
	t           *Trie
	count, want int
}

// kids counts the prompts that end below nd, but for those of its child skip.
func (c *counter) kids(nd *node, skip uint32) {
	for k := nd.kid; k != 0 && c.count < c.want; {
		kid := c.t.nodes.at(k)
		if k != skip {
			c.count += int(kid.ends)
			c.kids(kid, 0)
		}
		k = kid.right
	}
}
