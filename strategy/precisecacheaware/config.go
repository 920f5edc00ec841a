package precisecacheaware

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// The values of Config.Fallback.
const (
	FallbackLeastLoad = "least_load" // the least loaded target
	FallbackText      = "text"       // cache_aware's rules, by the prompts sent before
)

// Config is how the strategy works. The zero Config is the documented default;
// without an Index all it does is its Fallback.
type Config struct {
	// Index has the blocks that the targets hold. The caller that feeds it owns
	// it, and several strategies may read one. nil: there is none, so the Fallback
	// makes each Pick.
	Index *kvindex.Index
	// Fallback decides for a prompt without Tokens, and for any prompt if no Ready
	// target's stream can be trusted: FallbackLeastLoad, which "" means too, or
	// FallbackText. Set FallbackText if prompts have Text, also with a token source of the
	// program's own, which is not seen here: it has no ids for some prompts, and by load
	// alone the turns of a conversation do not stay at one target. Package config sets it
	// for routes with a token source. If FallbackStrategy is set, it is that strategy's name in
	// Reasons: up to 40 of the characters a to z, 0 to 9 and _; "" means "other".
	Fallback string
	// FallbackStrategy decides instead of Fallback; nil: Fallback does. It records
	// every request, so that it knows the sent prompts when it has to decide: with its
	// own Memo if it decided the request, without a Memo otherwise. The caller owns
	// it. If it is no router.Explainer, its candidates have no scores.
	FallbackStrategy router.Strategy
	// WorthRequests and WorthShare say how many requests more than the least loaded
	// target has a target that holds the whole prompt is worth waiting for: the
	// greater of WorthRequests and WorthShare times the least load. A target that
	// holds a part is worth that part of it. 0 means 8 and 1.
	WorthRequests, WorthShare float64
	// PrefillWeight is the cost of a token that waits at a target for prefill
	// (router.Load.Prefill), against one of the prompt that is not cached there.
	// Without it long cold prompts gather at targets with few short warm ones, as
	// both are one request. 0 means 0.5; negative: nothing.
	PrefillWeight float64
	// HeldShare is the share of the prompt, above 0 and up to 1, from which the
	// part that a target holds counts in addition to its load. Less, such as the
	// opening of a chat template that all prompts share, only breaks ties, after
	// the number of recorded prompts, so that different prompts do not all follow
	// the first to an idle fleet. 0 means 0.1.
	HeldShare float64
	// PresumeFor is how long the blocks of a prompt count as resident at the target
	// that it was sent to, before an event reports them. It ends earlier when the
	// request has ended and the engine's events have reported it, or 200 ms after the
	// end. 0 means 2 s; negative: not at all. At most a minute. The 4,096 latest
	// prompts, and 32 MiB of them, are presumed.
	PresumeFor time.Duration
	// BlockSize is the block size in tokens, to a multiple of which presumptions
	// are rounded down until a target's own is known. 0 means 16.
	BlockSize int
	// MaxNodes and MaxBytes bound the record of sent prompts, as in
	// trie.Config. 0 means 1,000,000 nodes of one target and 512 MiB for all.
	MaxNodes, MaxBytes int
	// Trie is the record of sent prompts, if it is to be shared; nil: a new one
	// within MaxNodes and MaxBytes, which must be 0 otherwise. A new one stays
	// empty if nothing would read it: without an Index and FallbackText.
	Trie *trie.Trie
	// Share is this gateway's part in a fleet of gateways: what the others sent counts,
	// too. nil: nothing is shared.
	Share router.Peers
	// Mismatch is called by Record for a request with another number of cached
	// tokens, as the engine reported, than its events had predicted (d.Cached);
	// nil: no call. It must not block and must not call the Strategy.
	Mismatch func(id string, predicted, reported int)
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
	// Now is the clock of presumptions; nil means time.Now. It is safe for
	// concurrent use.
	Now func() time.Time
}

// WithDefaults returns c with the default in place of each field that is zero and
// has one, but for Trie, which New makes.
func (c Config) WithDefaults() Config {
	if c.FallbackStrategy == nil {
		c.Fallback = cmp.Or(c.Fallback, FallbackLeastLoad)
	}
	c.Fallback = cmp.Or(c.Fallback, "other")
	c.WorthRequests = cmp.Or(c.WorthRequests, 8)
	c.WorthShare = cmp.Or(c.WorthShare, 1)
	c.PrefillWeight = cmp.Or(c.PrefillWeight, 0.5)
	c.HeldShare = cmp.Or(c.HeldShare, 0.1)
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
	bad := configerr.List{Package: "precisecacheaware"}
	if c.FallbackStrategy == nil {
		bad.Check(c.Fallback == FallbackLeastLoad || c.Fallback == FallbackText, "Fallback", c.Fallback,
			`"least_load" or "text"`)
	} else {
		odd := strings.ContainsFunc(c.Fallback, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_", r)
		})
		bad.Check(!odd && len(c.Fallback) <= 40, "Fallback", c.Fallback, "up to 40 of the characters a to z, 0 to 9 and _")
	}
	// Finite, or a long queue would not be long enough.
	bad.Check(c.WorthRequests > 0 && c.WorthRequests <= math.MaxFloat32, "WorthRequests", c.WorthRequests,
		"a positive number")
	bad.Check(c.WorthShare > 0 && c.WorthShare <= math.MaxFloat32, "WorthShare", c.WorthShare, "a positive number")
	bad.Check(c.PrefillWeight <= math.MaxFloat32, "PrefillWeight", c.PrefillWeight, "a number") // not NaN either
	bad.Check(c.HeldShare > 0 && c.HeldShare <= 1, "HeldShare", c.HeldShare, "above 0 and at most 1")
	c.Trie, err = textcache.Open(c.Trie, c.MaxNodes, c.MaxBytes)
	bad.Add(err)
	text = textcache.New(c.Trie)
	text.Join(c.Share)
	tokens, err = tokencache.New(tokencache.Config{
		Index: c.Index, PresumeFor: c.PresumeFor, BlockSize: c.BlockSize, Now: c.Now,
	}, text)
	bad.Add(err)
	return text, tokens, bad.Err()
}
