package leastwork

import (
	"cmp"
	"math"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Config is how the strategy works. The zero Config is the documented default.
type Config struct {
	// MissWeight is the cost of one token that is not cached at a target, against
	// one that already waits there for prefill. It is above 1 because a miss
	// costs more than its own prefill: it evicts the blocks of others, and it
	// splits the conversation for its later turns. 0 means 5.
	MissWeight float64
	// ContextWeight is the cost of one token of context of a request in flight,
	// against one that waits for prefill: each step of decoding reads it, and the
	// memory it takes caches nothing. 0 means 0.2.
	ContextWeight float64
	// RequestTokens is the cost of a request, in tokens that wait for prefill,
	// as long as the length of none in flight is known. 0 means 2048.
	RequestTokens float64
	// Agree lets gateways that share nothing choose the same target. If no Ready
	// target holds a tenth of a prompt, a hash of the prompt's beginning chooses
	// among the targets that cost at most this share more than the least. The other
	// gateways then find the prompts that one gateway has warmed, and do not warm
	// them again elsewhere. With several gateways 0.25 gains much if long beginnings
	// return (shared system prompts, documents), and loses up to a tenth if they do
	// not, or come in bursts (bench/RESULTS.md); with one gateway it only costs. 0,
	// the default, leaves it to the least cost. At most 1.
	Agree float64
	// Index has the blocks that the targets hold, by their engines' own events. The
	// caller that feeds it owns it, and several strategies may read one. With it,
	// the uncached part of a prompt with Tokens is exact at a target with a trusted
	// stream. nil: there is none, and only the sent prompts are known.
	Index *kvindex.Index
	// Adapters models which LoRA adapters the targets have loaded: for a prompt with an Adapter, its cost of a load is
	// added. A fleet that scrapes pages has the same one. nil: one of the Strategy's own, which sees the requests that
	// it sends.
	Adapters *adapters.Slots
	// PresumeFor is how long the blocks of a prompt count as resident at the target
	// that it was sent to, before an event reports them. It ends earlier when the
	// request has ended and the engine's events have reported it, or 200 ms after the
	// end. 0 means 2 s; negative: not at all. At most a minute. The 4,096 latest
	// prompts, and 32 MiB of them, are presumed.
	PresumeFor time.Duration
	// BlockSize is the block size in tokens, to a multiple of which presumptions
	// are rounded down until a target's own is known. 0 means 16.
	BlockSize int
	// MaxNodes and MaxBytes bound the record, as in trie.Config. 0 means
	// 1,000,000 nodes of one target and 512 MiB of text for all.
	MaxNodes, MaxBytes int
	// Trie is the record, if it is to be shared; nil: a new one within MaxNodes
	// and MaxBytes, which must be 0 otherwise.
	Trie *trie.Trie
	// Share is this gateway's part in a fleet of gateways: what the others sent, and
	// the context that they have in flight, count, too. nil: nothing is shared.
	Share router.Peers
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
	// Now is the clock of presumptions; nil means time.Now. It is safe for
	// concurrent use.
	Now func() time.Time
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one, but for Trie and Adapters, which New makes.
func (c Config) WithDefaults() Config {
	c.MissWeight = cmp.Or(c.MissWeight, 5)
	c.ContextWeight = cmp.Or(c.ContextWeight, 0.2)
	c.RequestTokens = cmp.Or(c.RequestTokens, 2048)
	c.PresumeFor = cmp.Or(c.PresumeFor, tokencache.DefaultPresumeFor)
	c.BlockSize = cmp.Or(c.BlockSize, tokencache.DefaultBlockSize)
	textcache.WithDefaults(c.Trie, &c.MaxNodes, &c.MaxBytes)
	c.Rand = strategy.Rand(c.Rand)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// open makes the Trie, unless there is one, and the caches that read it and the
// Index. It returns a *router.ConfigError for each field that is not allowed, joined.
func (c *Config) open() (text *textcache.Cache, tokens *tokencache.Cache, err error) {
	bad := configerr.List{Package: "leastwork"}
	positive := func(field string, v float64) {
		bad.Check(v > 0 && v <= math.MaxFloat32, field, v, "a positive number")
	}
	positive("MissWeight", c.MissWeight)
	positive("ContextWeight", c.ContextWeight)
	positive("RequestTokens", c.RequestTokens)
	bad.Check(c.Agree >= 0 && c.Agree <= 1, "Agree", c.Agree, "0 to 1")
	c.Trie, err = textcache.Open(c.Trie, c.MaxNodes, c.MaxBytes)
	bad.Add(err)
	text = textcache.New(c.Trie)
	text.Join(c.Share)
	tokens, err = tokencache.New(tokencache.Config{
		Index: c.Index, PresumeFor: c.PresumeFor, BlockSize: c.BlockSize, Now: c.Now,
	}, text)
	bad.Add(err)
	if c.Adapters == nil {
		c.Adapters, err = adapters.New(adapters.Config{Share: c.Share, Now: c.Now})
		bad.Add(err)
	}
	return text, tokens, bad.Err()
}
