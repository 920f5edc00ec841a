// Package textcache is what strategies that match text share: a trie, and the
// bookkeeping that keeps it true to what Record tells.
package textcache

import (
	"sync"
	"unsafe"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/trie"
)

// maxForgotten bounds the IDs of which the last Forget is remembered.
const maxForgotten = 4096

// Cache knows which targets have been sent how much of a prompt. Its methods are
// safe for concurrent use.
type Cache struct {
	trie *trie.Trie

	mu      sync.RWMutex // for writing in Forget: each Record is before it or after it
	byHand  ledger
	forgets uint64            // how often Forget was called
	last    map[string]uint64 // forgets after the last one of each ID
	floor   uint64            // forgets when last was emptied
}

// New returns a Cache over t.
func New(t *trie.Trie) *Cache { return &Cache{trie: t, last: make(map[string]uint64)} }

// Open returns shared, or, where that is nil, a new trie within the bounds, which
// must be 0 otherwise. They are the fields of that name of trie.Config. The error is
// a *router.ConfigError for each field that is not allowed, joined.
func Open(shared *trie.Trie, maxNodes, maxBytes int) (*trie.Trie, error) {
	var bad configerr.List
	if shared != nil {
		const none = "0 because Trie is given, which has its own bound"
		bad.Check(maxNodes == 0, "MaxNodes", maxNodes, none)
		bad.Check(maxBytes == 0, "MaxBytes", maxBytes, none)
		return shared, bad.Err()
	}
	t, err := trie.New(trie.Config{MaxNodes: maxNodes, MaxBytes: maxBytes})
	bad.Add(err)
	return t, bad.Err()
}

// WithDefaults puts the defaults of trie.Config in place of the zero bounds of a
// trie that Open will make, and changes nothing if there is one to share.
func WithDefaults(shared *trie.Trie, maxNodes, maxBytes *int) {
	if shared == nil {
		c := trie.Config{MaxNodes: *maxNodes, MaxBytes: *maxBytes}.WithDefaults()
		*maxNodes, *maxBytes = c.MaxNodes, c.MaxBytes
	}
}

// Key is what stands for a prompt in the trie.
type Key struct {
	scope, text string
	unit        router.Unit
}

const tokenSize = int(unsafe.Sizeof(uint32(0)))

// KeyOf returns the key of p: its text, or, where it has none, its tokens as
// bytes in a scope of their own. Only the latter and a Scope that is not Model
// itself are allocated for.
func KeyOf(p *router.Prompt) Key {
	if p.Text != "" || len(p.Tokens) == 0 {
		return Key{scope: p.Scope(), text: p.Text}
	}
	// No copy: the caller leaves Tokens alone until the request has ended, and
	// the trie copies what it keeps. Their order of bytes is this machine's, which
	// is as good as any inside one process.
	bytes := unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(p.Tokens))), tokenSize*len(p.Tokens))
	return Key{scope: "\x00t" + p.Scope(), text: bytes, unit: router.Tokens} // no Scope begins so
}

// Size returns the whole prompt's length in bytes of the trie.
func (k *Key) Size() int { return len(k.text) }

// Units turns n bytes of the trie into the unit of decisions.
func (k *Key) Units(n int) int {
	if k.unit == router.Tokens {
		return n / tokenSize
	}
	return n
}

// Unit is the unit of decisions.
func (k *Key) Unit() router.Unit { return k.unit }

// Targets is room for one Pick: what is known of each offered target, by its
// index.
type Targets struct {
	IDs    []string
	Cached []int // leading bytes of the prompt that it has been sent, of whole tokens only
	Warmed []int // prompts recorded for it
}

// Look fills t, but for Warmed, for a prompt with key k.
func (c *Cache) Look(k *Key, targets []router.Target, t *Targets) {
	t.IDs = t.IDs[:0]
	for i := range targets {
		t.IDs = append(t.IDs, targets[i].ID)
	}
	t.Cached = c.trie.Match(k.scope, k.text, t.IDs, t.Cached)
	if k.unit == router.Tokens {
		for i, n := range t.Cached {
			t.Cached[i] = n - n%tokenSize
		}
	}
}

// LookWarmed fills t.Warmed for the targets of the last Look.
func (c *Cache) LookWarmed(t *Targets) { t.Warmed = c.trie.Warmed(t.IDs, t.Warmed) }

// Memo is what a Decision carries from Pick to Record. One goroutine at a time
// uses it.
type Memo struct {
	key     Key
	forgets uint64 // Cache.forgets when it was sent
	stage   stage
}

// stage is how far a request has come, as Record was told.
type stage uint8

const (
	picked stage = iota
	sent
	token // the first one was seen
	ended
)

// NewMemo returns a memo for a prompt with key k.
func NewMemo(k Key) *Memo { return &Memo{key: k} }

// Record learns from what became of d. Sent records the prompt on the target; a
// failure before the first token takes that back, and a reply extends it, unless
// Forget came between. Each stage counts once, and only after Sent. m is d's Memo;
// nil for a decision made by hand, which is known by its prompt and target.
func (c *Cache) Record(d *router.Decision, m *Memo, o *router.Outcome) {
	if m == nil {
		c.recordByHand(d, o)
		return
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case o.Stage == router.Sent && m.stage == picked:
		m.stage, m.forgets = sent, c.forgets
		c.trie.Insert(m.key.scope, m.key.text, d.Target.ID)
	case o.Stage == router.FirstToken && m.stage == sent:
		m.stage = token
	case o.Stage.Final() && (m.stage == sent || m.stage == token):
		if !c.forgotten(d.Target.ID, m.forgets) {
			c.settle(&m.key, d.Target.ID, m.stage, o)
		}
		m.stage = ended
	}
}

func (c *Cache) recordByHand(d *router.Decision, o *router.Outcome) {
	if o.Stage != router.Sent && o.Stage != router.FirstToken && !o.Stage.Final() {
		return
	}
	k := KeyOf(&d.Prompt)
	h := hash(&k, d.Target.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.byHand.record(h, d.Target.ID, o.Stage)
	if o.Stage == router.Sent {
		c.trie.Insert(k.scope, k.text, d.Target.ID)
	} else if was != picked {
		c.settle(&k, d.Target.ID, was, o)
	}
}

// settle learns from the end of a request that was recorded as sent and had come
// to stage was.
func (c *Cache) settle(k *Key, id string, was stage, o *router.Outcome) {
	seen := was == token || o.OutputTokens > 0 || o.Reply != ""
	switch {
	case o.Stage == router.Failed && !seen:
		c.trie.Remove(k.scope, k.text, id)
	case o.Reply != "" && k.unit == router.Bytes && k.text != "":
		c.trie.Extend(k.scope, k.text, o.Reply, id)
	}
}

// Forget forgets what id was sent.
func (c *Cache) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	if len(c.last) >= maxForgotten {
		clear(c.last)
		c.floor = c.forgets
	}
	c.last[id] = c.forgets
	c.byHand.forget(id)
	c.trie.Forget(id)
}

// forgotten reports whether id was forgotten, or may have been, after the given
// number of calls: what was recorded then may be gone, and what is there another's.
func (c *Cache) forgotten(id string, since uint64) bool {
	return since < c.floor || c.last[id] > since
}
