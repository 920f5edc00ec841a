// Package textcache is shared by strategies that match text: a trie, and the
// bookkeeping that keeps it consistent with Record.
package textcache

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/forgetlog"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/scopekey"
	"github.com/warmroute/router/internal/sharers"
	"github.com/warmroute/router/trie"
)

// Cache records how much of a prompt each target has been sent. Its methods are
// safe for concurrent use.
type Cache struct {
	trie *trie.Trie

	mu      sync.RWMutex // for writing in Forget: each Record is before it or after it
	byHand  ledger
	forgets forgetlog.Log

	learned learned

	offered atomic.Pointer[[]string] // the IDs that Prepare matches
	recent  recent

	peers peering.Node // the other gateways; nil: none
	times times        // of inserts, with peers
}

// New returns a Cache over t.
func New(t *trie.Trie) *Cache { return &Cache{trie: t} }

// Open returns shared, or, if that is nil, a new trie within the bounds, which must
// be 0 otherwise. They are the fields of that name of trie.Config. The error is a
// *router.ConfigError for each field that is not allowed, joined.
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

// Key identifies a prompt in the trie.
type Key struct {
	scope, text string // scope as short as scopekey has it: it is hashed once a request
	unit        router.Unit
	chain       peering.Chain // of text, once it is known; with peers
}

// TokenSize is how many bytes of the trie a token is.
const TokenSize = int(unsafe.Sizeof(uint32(0)))

// KeyOf returns the key of p: its text, or, if it has none, its tokens as bytes
// in a separate scope. Only the latter and a Scope that is not Model itself
// allocate.
func KeyOf(p *router.Prompt) Key {
	if p.Text != "" || len(p.Tokens) == 0 {
		return Key{scope: scopekey.Of(p.Scope()), text: p.Text}
	}
	// No copy: the caller leaves Tokens alone until the request has ended, and
	// the trie copies what it keeps. Their order of bytes is this machine's, which
	// is as good as any inside one process.
	// no Scope begins so
	return Key{scope: scopekey.Of("\x00t" + p.Scope()), text: TokenBytes(p.Tokens), unit: router.Tokens}
}

// TokenBytes returns the memory of tokens, without a copy, as the bytes that stand for them in a trie.
func TokenBytes(tokens []uint32) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), TokenSize*len(tokens))
}

// Size returns the whole prompt's length in bytes of the trie.
func (k *Key) Size() int { return len(k.text) }

// Units turns n bytes of the trie into the unit of decisions.
func (k *Key) Units(n int) int {
	if k.unit == router.Tokens {
		return n / TokenSize
	}
	return n
}

// Unit is the unit of decisions.
func (k *Key) Unit() router.Unit { return k.unit }

// Targets is the memory of one Pick: the data of each offered target, by its
// index.
type Targets struct {
	IDs    []string
	Cached []int // leading bytes of the prompt that it has been sent, of whole tokens only
	Warmed []int // prompts recorded for it, after LookWarmed

	prepared  prepared
	at, moved []int           // scratch
	warmed    bool            // Warmed is that of IDs
	matched   bool            // shared is known
	shared    int             // leading bytes of the prompt that many prompts share
	elsewhere []peering.Gauge // scratch
	recorded  int             // the sum of Warmed, with peers

	Poured []Glass // scratch of callers of Pour
}

// Offer makes t that of targets, of which nothing is known yet.
func (t *Targets) Offer(targets []router.Target) {
	t.warmed, t.matched = false, false
	t.IDs = t.IDs[:0]
	for i := range targets {
		t.IDs = append(t.IDs, targets[i].ID)
	}
}

// Look fills t, but for Warmed, for a prompt with key k. If t was prepared for the
// prompt, it is not matched again unless it must be.
func (c *Cache) Look(k *Key, targets []router.Target, t *Targets) {
	t.Offer(targets)
	if t.prepared.ids == nil || !c.reuse(t) {
		if t.prepared.is {
			c.learn(t)
		}
		t.Cached, t.shared = c.match(k, t.IDs, t.Cached)
		t.matched = true
	}
	if t.prepared.is {
		k.chain = t.prepared.key.chain
	}
	t.Release()
	t.wholeTokens(k)
}

// wholeTokens leaves no part of a token in t.Cached.
func (t *Targets) wholeTokens(k *Key) {
	if k.unit == router.Tokens {
		for i, n := range t.Cached {
			t.Cached[i] = n - n%TokenSize
		}
	}
}

// LookWarmed fills t.Warmed for the targets of the last Look or Offer, unless it is filled.
func (c *Cache) LookWarmed(t *Targets) {
	if !t.warmed {
		t.Warmed, t.warmed = c.trie.Warmed(t.IDs, t.Warmed), true
		c.addRecorded(t)
	}
}

// lookShared sets t.shared for a prompt with key k, unless it is known.
func (c *Cache) lookShared(k *Key, t *Targets) {
	if !t.matched {
		_, t.shared = c.match(k, nil, nil)
		t.matched = true
	}
}

func (c *Cache) match(k *Key, ids []string, cached []int) ([]int, int) {
	cached, shared := c.trie.MatchShared(k.scope, k.text, ids, cached, sharers.Count{Prompts: many})
	if c.peers != nil {
		shared = max(shared, c.peers.Match(c.chainOf(k), ids, cached, many))
	}
	return cached, shared
}

// Memo is the data that a Decision carries from Pick to Record. One goroutine
// at a time uses it.
type Memo struct {
	router.Progress
	key  Key
	mark uint64 // Cache.forgets when it was sent
	past belief
}

// NewMemo returns a memo for a prompt with key k.
func NewMemo(k Key) *Memo { return &Memo{key: k} }

// Record learns from the outcome of d. Sent records the prompt on the target; a
// failure before the first token removes it, and a reply extends it, unless Forget
// was called in between. Each stage counts once, and only after Sent. m is d's
// Memo; nil for a decision made by hand, which is identified by its prompt and
// target. Record returns the stage that counted, 0 if none did or m is nil.
func (c *Cache) Record(d *router.Decision, m *Memo, o *router.Outcome) router.Stage {
	if m == nil {
		c.recordByHand(d, o)
		return 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	stage := m.Next(*o)
	switch {
	case stage == router.Sent:
		m.mark = c.forgets.Mark()
		m.past = c.insert(&m.key, d.Target.ID)
	case stage == router.FirstToken:
		c.learned.computed(&m.past)
	case stage.Final() && !c.forgets.Forgotten(d.Target.ID, m.mark):
		c.settle(&m.key, d.Target.ID, m.TakenBack(), m.SawToken(), &m.past, o)
	}
	return stage
}

func (c *Cache) recordByHand(d *router.Decision, o *router.Outcome) {
	if o.Stage != router.Sent && o.Stage != router.FirstToken && !o.Stage.Final() {
		return
	}
	k := KeyOf(&d.Prompt)
	h := hash(&k, d.Target.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	past := c.byHand.past(h)
	ended, token := c.byHand.record(h, d.Target.ID, o.Stage)
	switch {
	case o.Stage == router.Sent:
		past = c.insert(&k, d.Target.ID)
		c.learned.ended(&past) // its end may not be found
		c.byHand.at(h).past = past
	case o.Stage == router.FirstToken:
		c.learned.computed(&past)
	case ended:
		token = token || o.SawToken()
		c.settle(&k, d.Target.ID, o.Stage == router.Failed && !token, token, &past, o)
	}
}

func (c *Cache) insert(k *Key, id string) belief {
	c.makeRoom(id, k.Size())
	past := c.learned.sent(c.trie.InsertPast(k.scope, k.text, id), id, k.Size())
	c.recent.add(k, id)
	c.publish(k, id, &past)
	return past
}

// settle learns from the end of a request that was recorded as sent.
func (c *Cache) settle(k *Key, id string, takenBack, token bool, past *belief, o *router.Outcome) {
	if token || o.Stage == router.Finished {
		c.learned.computed(past)
		c.correct(k, id, *past, o)
	}
	c.learned.ended(past)
	switch {
	case takenBack:
		c.trie.Remove(k.scope, k.text, id)
		c.recent.lose()
		c.takeBack(id, past)
	case o.Reply != "" && k.unit == router.Bytes && k.text != "":
		c.trie.Extend(k.scope, k.text, o.Reply, id)
		c.extend(k, id, past, o.Reply)
	}
}

// Forget drops the prompts that id was sent.
func (c *Cache) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets.Forget(id)
	c.byHand.forget(id)
	c.trie.Forget(id)
	c.learned.forget(id)
	c.recent.lose()
	c.offered.Store(nil) // it may be gone
}
