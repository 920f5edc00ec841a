// Package textcache is what strategies that match text share: a trie, and the
// bookkeeping that keeps it true to what Record tells.
package textcache

import (
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

// Cache knows which targets have been sent how much of a prompt's text. Its
// methods are safe for concurrent use.
type Cache struct {
	trie    *trie.Trie
	byHand  ledger
	forgets atomic.Uint64
}

// New returns a Cache over t.
func New(t *trie.Trie) *Cache { return &Cache{trie: t} }

// Key is what stands for a prompt in the trie. The zero Key is an empty prompt's.
type Key struct {
	scope, text string
	unit        router.Unit
}

// KeyOf returns the key of p: its text, or, where it has none, its tokens as
// bytes in a scope of their own, four for each.
func KeyOf(p *router.Prompt) Key {
	if p.Text != "" || len(p.Tokens) == 0 {
		return Key{scope: p.Scope(), text: p.Text}
	}
	// No copy: the caller leaves Tokens alone until the request has ended, and
	// the trie copies what it keeps. Their order of bytes is this machine's, which
	// is as good as any inside one process.
	bytes := unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(p.Tokens))), 4*len(p.Tokens))
	return Key{scope: "\x00t" + p.Scope(), text: bytes, unit: router.Tokens} // no Scope begins so
}

// Size returns the whole prompt's length in bytes of the trie.
func (k *Key) Size() int { return len(k.text) }

// Units turns n bytes of the trie into the unit of decisions.
func (k *Key) Units(n int) int {
	if k.unit == router.Tokens {
		return n / 4
	}
	return n
}

// Unit is the unit of decisions.
func (k *Key) Unit() router.Unit { return k.unit }

// Match returns how many leading bytes of k each of ids has been sent.
func (c *Cache) Match(k *Key, ids []string, cached []int) []int {
	return c.trie.Match(k.scope, k.text, ids, cached)
}

// Warmed returns how many prompts are recorded for each of ids.
func (c *Cache) Warmed(ids []string, n []int) []int { return c.trie.Warmed(ids, n) }

// Memo is what a Decision carries from Pick to Record. One goroutine at a time
// uses it.
type Memo struct {
	key     Key
	forgets uint64 // when it was sent
	stage   stage
}

type stage uint8

const (
	picked stage = iota
	sent
	token // the first one was seen
	ended
)

// NewMemo returns a memo for a prompt with key k.
func NewMemo(k Key) *Memo { return &Memo{key: k} }

// Record learns from what became of d, whose Memo is m; nil for a decision made
// by hand. Each stage counts once, and only after Sent.
func (c *Cache) Record(d *router.Decision, m *Memo, o *router.Outcome) {
	if m == nil {
		c.recordByHand(d, o)
		return
	}
	switch {
	case o.Stage == router.Sent && m.stage == picked:
		m.stage, m.forgets = sent, c.forgets.Load()
		c.trie.Insert(m.key.scope, m.key.text, d.Target.ID)
	case o.Stage == router.FirstToken && m.stage == sent:
		m.stage = token
	case o.Stage.Final() && (m.stage == sent || m.stage == token):
		seen := m.stage == token
		m.stage = ended
		if m.forgets == c.forgets.Load() { // else what was added may be gone, and what is there another's
			c.settle(&m.key, d.Target.ID, seen, o)
		}
	}
}

// settle learns from the end of a request that was recorded as sent.
func (c *Cache) settle(k *Key, id string, token bool, o *router.Outcome) {
	token = token || o.OutputTokens > 0 || o.Reply != ""
	switch {
	case o.Stage == router.Failed && !token:
		c.trie.Remove(k.scope, k.text, id)
	case o.Reply != "" && k.unit == router.Bytes && k.text != "":
		// The longer text first: what both share never leaves.
		c.trie.Insert(k.scope, k.text+o.Reply, id)
		c.trie.Remove(k.scope, k.text, id)
	}
}

// recordByHand tells which requests are under way by what they are, as there is
// no memo to tell it.
func (c *Cache) recordByHand(d *router.Decision, o *router.Outcome) {
	if o.Stage == 0 {
		return
	}
	k := KeyOf(&d.Prompt)
	h := xxhash.New()
	for _, s := range [...]string{d.Target.ID, "\x00", k.scope, "\x00", k.text} {
		_, _ = h.WriteString(s) // never fails
	}
	switch {
	case o.Stage == router.Sent:
		c.byHand.add(h.Sum64())
		c.trie.Insert(k.scope, k.text, d.Target.ID)
	case o.Stage == router.FirstToken:
		c.byHand.token(h.Sum64())
	case o.Stage.Final():
		if known, token := c.byHand.end(h.Sum64()); known {
			c.settle(&k, d.Target.ID, token, o)
		}
	}
}

// Forget forgets what id was sent.
func (c *Cache) Forget(id string) {
	c.forgets.Add(1)
	c.byHand.clear()
	c.trie.Forget(id)
}

// Targets is room for one Pick: what is known of each offered target, by its
// index.
type Targets struct {
	IDs            []string
	Cached, Warmed []int
}

// Look fills t, but for Warmed, for a prompt with key k.
func (c *Cache) Look(k *Key, targets []router.Target, t *Targets) {
	t.IDs = t.IDs[:0]
	for i := range targets {
		t.IDs = append(t.IDs, targets[i].ID)
	}
	t.Cached = c.Match(k, t.IDs, t.Cached)
}
