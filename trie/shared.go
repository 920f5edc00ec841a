package trie

import "github.com/warmroute/router/internal/scopekey"

// Shared estimates how many recorded prompts in scope begin with text, whatever
// target holds them, but at most n, which counts as at most 1,024. To cost little
// after a Match of the same text, it compares the first byte and the last 64 of each
// run alone. What a forgotten target held counts until it is swept. An empty text
// returns 0.
func (t *Trie) Shared(scope, text string, n int) int {
	scope = scopekey.Of(scope)
	c := counter{t: t, want: min(n, 1024)}
	t.mu.RLock()
	defer t.mu.RUnlock()
	last := t.roots[scope]
	for last != 0 && text != "" {
		if last = t.child(last, text[0]); last == 0 {
			return 0
		}
		run := t.run(t.nodes.at(last))
		k := min(len(run), len(text))
		if from := max(k-64, 0); run[from:k] != text[from:k] {
			return 0
		}
		if text = text[k:]; text == "" {
			c.below(last)
		}
	}
	return min(c.count, max(c.want, 0))
}

// counter counts prompts until it has as many as are wanted.
type counter struct {
	t           *Trie
	count, want int
}

// below counts the prompts that end at n or below it.
func (c *counter) below(n uint32) {
	nd := c.t.nodes.at(n)
	c.count += int(nd.ends)
	for k := nd.kid; k != 0 && c.count < c.want; k = c.t.nodes.at(k).right {
		c.below(k)
	}
}
