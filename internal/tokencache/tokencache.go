// Package tokencache is shared by strategies that match token ids by an index of
// the engines' own events: it combines the index, the blocks presumed beyond it,
// and a trie's estimate for targets without a trusted stream.
package tokencache

import (
	"cmp"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/kvindex"
)

// Config has the parts of a Cache.
type Config struct {
	// Index has the blocks that the targets hold; nil: there is none, and Look
	// never finds a trusted target.
	Index *kvindex.Index
	// PresumeFor is how long a sent prompt counts as resident. 0 means
	// DefaultPresumeFor, less not at all; at most a minute.
	PresumeFor time.Duration
	// BlockSize is the unit to which presumptions are rounded down, in tokens.
	// 0 means DefaultBlockSize.
	BlockSize int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// The defaults of Config.
const (
	DefaultPresumeFor = 2 * time.Second
	DefaultBlockSize  = 16
)

// Cache reports how many leading tokens of a prompt each target holds. Its
// methods are safe for concurrent use.
type Cache struct {
	index    *kvindex.Index
	presumed *presumed
	block    int
	blocks   sync.Map // of the sizes that differ from block, by target
	now      func() time.Time
	text     *textcache.Cache
}

// New returns a Cache with the trie of text. The error is a *router.ConfigError
// for each field that is not allowed, joined.
func New(c Config, text *textcache.Cache) (*Cache, error) {
	keep := cmp.Or(c.PresumeFor, DefaultPresumeFor)
	x := &Cache{index: c.Index, block: cmp.Or(c.BlockSize, DefaultBlockSize), now: c.Now, text: text}
	var bad configerr.List
	bad.Check(keep <= time.Minute, "PresumeFor", keep, "at most a minute")
	bad.Check(x.block > 0, "BlockSize", x.block, "at least 1")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if x.now == nil {
		x.now = time.Now
	}
	if c.Index == nil {
		keep = -1 // nothing would ask
	}
	var err error
	x.presumed, err = newPresumed(keep)
	return x, err
}

// Targets is the memory of one Pick, and the data of each offered target, by its
// index.
type Targets struct {
	Index []int // tokens, as the index says; -1: not to be trusted
	Held  []int // tokens in total
	// Trusted is how many of the Ready targets are.
	Trusted int

	presumed []int
	recent   []int // sent by other gateways, in bytes of the trie
}

// Look fills t for a prompt p, and reports whether any Ready target can be
// trusted; t has nothing else if none can. IDs of r are those of the targets.
//
// A trusted target holds the blocks of the index, or the presumed ones, if they are
// more. If guess is set, the trie estimates the others, by the prompt's key k: the
// share of the text that they were sent before, as tokens, or, if there are only
// tokens, these. Without guess they hold 0. The last token has to be computed
// everywhere.
func (c *Cache) Look(p *router.Prompt, k *textcache.Key, guess bool, targets []router.Target, r *textcache.Targets,
	t *Targets) bool {
	if c.index == nil || len(p.Tokens) == 0 {
		return false
	}
	t.Index = c.index.Match(*p, r.IDs, t.Index)
	t.Trusted = 0
	untrusted := false
	for i, n := range t.Index {
		if n < 0 {
			untrusted = true
		} else if targets[i].State == router.Ready {
			t.Trusted++
		}
	}
	if t.Trusted == 0 {
		return false
	}
	presumed := c.presumed.match(p, r.IDs, c.now(), t.presumed)
	if presumed != nil {
		t.presumed = presumed
	}
	presumed = c.presumePeers(p, k, r.IDs, presumed, t)
	guess = guess && untrusted
	if guess {
		c.text.Look(k, targets, r)
	}
	most := len(p.Tokens) - 1
	t.Held = append(t.Held[:0], t.Index...)
	for i, n := range t.Index {
		switch {
		case n >= 0 && presumed != nil:
			if presumed[i] > n {
				block := c.blockOf(r.IDs[i])
				n = max(n, min(presumed[i], most)/block*block-c.index.Recomputed(r.IDs[i]))
			}
		case n < 0 && !guess:
			n = 0
		case n < 0:
			n = min(tokensOf(k, r.Cached[i], len(p.Tokens)), most)
		}
		t.Held[i] = n
	}
	return true
}

// presumePeers raises presumed to the prompts that other gateways have just sent. It may be nil, and nil is returned if
// there are none.
func (c *Cache) presumePeers(p *router.Prompt, k *textcache.Key, ids []string, presumed []int, t *Targets) []int {
	if c.presumed.keep < 0 {
		return presumed
	}
	recent := c.text.Recent(k, ids, c.presumed.keep, t.recent)
	if recent == nil {
		return presumed
	}
	t.recent = recent
	for i, n := range recent {
		if n == 0 {
			continue
		}
		if presumed == nil {
			t.presumed = append(t.presumed[:0], make([]int, len(ids))...)
			presumed = t.presumed
		}
		presumed[i] = max(presumed[i], tokensOf(k, n, len(p.Tokens)))
	}
	return presumed
}

// tokensOf turns n bytes of the trie into tokens of a prompt that has size.
func tokensOf(k *textcache.Key, n, size int) int {
	if k.Unit() == router.Tokens || n == 0 {
		return k.Units(n)
	}
	return int(float64(size) * (float64(n) / float64(k.Size())))
}

// Sent presumes p's tokens at the target; nil if it does not.
func (c *Cache) Sent(p *router.Prompt, id string) *Presumption {
	if c.index == nil || len(p.Tokens) == 0 { // nothing to presume, so no need of the time
		return nil
	}
	return c.presumed.add(p, id, c.now())
}

// blockOf returns the size of a target's blocks, in tokens, as far as it is known:
// the index itself would have to be locked for it.
func (c *Cache) blockOf(id string) int {
	if n, ok := c.blocks.Load(id); ok {
		return n.(int)
	}
	return c.block
}

// Ended reports the end of a request. Its presumption is dropped as soon as the
// target's own events have reported all its blocks, or must have: from then on
// they are more accurate, for the target may evict the blocks at any time. e may
// be nil.
func (c *Cache) Ended(p *router.Prompt, id string, e *Presumption) {
	if e == nil {
		return
	}
	if n := c.index.BlockSize(id); n > 0 && n != c.blockOf(id) {
		c.blocks.Store(id, n)
	}
	var one [1]int
	block := c.blockOf(id)
	whole := (len(p.Tokens)-1)/block*block - c.index.Recomputed(id)
	if c.index.Match(*p, []string{id}, one[:0])[0] >= whole {
		c.presumed.drop(e)
		return
	}
	c.presumed.end(e, c.now())
}

// Indexed returns the tokens that the index alone says the target i of t holds, those among them that
// the target computes again included; 0 if it does not decide.
func (c *Cache) Indexed(id string, i int, t *Targets) int {
	n := t.Index[i]
	if n <= 0 || t.Held[i] != n {
		return 0
	}
	return n + c.index.Recomputed(id)
}

// Report passes on the numbers that the engine reported of a request for which Indexed was held.
func (c *Cache) Report(id string, held int, o *router.Outcome) {
	if held > 0 && o.Stage == router.Finished {
		c.index.Report(id, held, o.CachedTokens)
	}
}

// Drop removes the presumption of a failed request. e may be nil.
func (c *Cache) Drop(e *Presumption) { c.presumed.drop(e) }

// Forget drops all that is presumed of a target. The index is left alone.
func (c *Cache) Forget(id string) {
	c.presumed.forget(id)
	c.blocks.Delete(id)
}

// Presumed returns how many prompts are presumed, those taken back among them.
func (c *Cache) Presumed() int { return c.presumed.count(c.now()) }
