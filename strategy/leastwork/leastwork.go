// Package leastwork sends each prompt to the target where it means the least
// work, all told: what waits there for prefill, what of the prompt is not cached
// there, and the context that the requests in flight there hold.
package leastwork

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/pick"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "least_work"

// Config is how the strategy works. The zero Config is the documented default.
type Config struct {
	// MissWeight is what one token that is not cached at a target costs, beside
	// one that waits there for prefill already. It is above 1 because a miss does
	// more than take its own prefill: it evicts somebody else's blocks, and it
	// splits the conversation for its later turns. 0 means 5.
	MissWeight float64
	// ContextWeight is what one token of context costs that a request in flight
	// holds, beside one that waits for prefill: each step of decoding reads it, and
	// the memory it takes caches nothing. 0 means 0.2.
	ContextWeight float64
	// RequestTokens is what a request costs, in tokens that wait for prefill, as
	// long as the length of none that is in flight is known. 0 means 2048.
	RequestTokens float64
	// Agree lets gateways that share nothing choose alike. A prompt of which no Ready
	// target holds a tenth then goes to one of those that cost at most this share
	// more than the least, the one that a hash of the prompt's beginning says. What
	// one gateway has warmed the others find, where they would have warmed it again
	// elsewhere. With several gateways 0.25 wins much where long beginnings come
	// back (shared system prompts, documents), and loses up to a tenth where they do
	// not, or come in bursts (bench/RESULTS.md); with one gateway it only costs. 0,
	// the default, leaves it to the least cost. At most 1.
	Agree float64
	// MaxNodes and MaxBytes bound what is remembered, as in trie.Config. 0 means
	// 1,000,000 nodes of one target and 512 MiB of text for all.
	MaxNodes, MaxBytes int
	// Trie is what is remembered, where it is to be shared; nil: a new one within
	// MaxNodes and MaxBytes, which must be 0 otherwise.
	Trie *trie.Trie
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

func (c *Config) check() error {
	for _, f := range []struct {
		name string
		v    *float64
		def  float64
	}{
		{"MissWeight", &c.MissWeight, 5},
		{"ContextWeight", &c.ContextWeight, 0.2},
		{"RequestTokens", &c.RequestTokens, 2048},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if !(*f.v > 0 && *f.v <= math.MaxFloat32) {
			return fmt.Errorf("leastwork: %s is %v; it must be a positive number", f.name, *f.v)
		}
	}
	if !(c.Agree >= 0 && c.Agree <= 1) {
		return fmt.Errorf("leastwork: Agree is %v; it must be 0 to 1", c.Agree)
	}
	if c.Trie != nil && (c.MaxNodes != 0 || c.MaxBytes != 0) {
		return fmt.Errorf("leastwork: Trie is given, so MaxNodes and MaxBytes are its own and must be 0")
	}
	return nil
}

// Strategy picks the Ready target of the least cost, in tokens for each unit of
// Weight:
//
//	cost = (Prefill + MissWeight x uncached + ContextWeight x context) / Weight
//
// uncached is what of the prompt the target has not been sent before; four bytes
// of text count as a token. context is what the requests in flight and queued
// there hold: the mean length of those that this Strategy sent there (or, for the
// queued ones and where it sent none, anywhere) times their number. As long as no
// length is known, a request costs RequestTokens. A target of unknown load has
// the mean work of the others. Equal costs have equal chances; what counts as equal
// for a cold prompt is Config.Agree's to say.
//
// There is no threshold: a hot prefix spills by itself when the queue at its
// target costs more than computing it anew, and a slow target, which keeps its
// requests longer, is given fewer. The constants were chosen on simulated fleets.
// From 2 to 8 for the first, with a second that is a thirtieth to a twentieth of
// it, the results differ by less than 2% there; on traces that were set aside
// smaller second ones do a little better (bench/RESULTS.md).
//
// A prompt is recorded when it is sent, so the next Pick sees it, and taken back
// where the request fails before its first token. A Strategy is safe for
// concurrent use.
type Strategy struct {
	cfg     Config
	cache   *textcache.Cache
	trie    *trie.Trie
	holds   holds
	scratch sync.Pool // of *room
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
)

// New returns a Strategy that has seen nothing yet. The error names the field
// that is off.
func New(c Config) (*Strategy, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	t := c.Trie
	if t == nil {
		var err error
		if t, err = trie.New(trie.Config{MaxNodes: c.MaxNodes, MaxBytes: c.MaxBytes}); err != nil {
			return nil, fmt.Errorf("leastwork: %w", err)
		}
	}
	c.Rand = pick.Rand(c.Rand)
	s := &Strategy{cfg: c, cache: textcache.New(t), trie: t}
	s.scratch.New = func() any { return new(room) }
	return s, nil
}

// Stats returns the size of what is remembered.
func (s *Strategy) Stats() trie.Stats { return s.trie.Stats() }

// room is what a Pick needs of memory.
type room struct {
	textcache.Targets
	found
}

// view is what one look at the targets tells.
type view struct {
	*room
	key     textcache.Key
	ready   int
	best    int     // the most that a Ready target holds, in bytes
	request float64 // what a request costs whose target says no better
	mean    float64 // work of a Ready target whose load is known, for each unit of Weight
}

func (s *Strategy) look(p *router.Prompt, targets []router.Target, r *room) view {
	v := view{room: r, key: textcache.KeyOf(p), request: s.cfg.RequestTokens}
	s.cache.Look(&v.key, targets, &r.Targets)
	s.holds.find(r.IDs, &r.found)
	var requests, tokens int64
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		v.ready++
		v.best = max(v.best, r.Cached[i])
		if h := r.holds[i]; h != nil {
			requests += h.requests.Load()
			tokens += h.tokens.Load()
		}
	}
	if requests > 0 && tokens > 0 {
		v.request = s.cfg.ContextWeight * float64(tokens) / float64(requests)
	}
	var sum pick.Sum
	known := 0
	for i := range targets {
		if t := &targets[i]; t.State == router.Ready && t.Load.Known {
			known++
			sum.Add(s.work(&v, t, i))
		}
	}
	if known > 0 {
		v.mean = sum.Float() / float64(known)
	}
	return v
}

// work is what targets[i], whose load is known, has to do, for each unit of
// Weight.
func (s *Strategy) work(v *view, t *router.Target, i int) float64 {
	request := v.request
	if h := v.holds[i]; h != nil {
		// Read one after the other, the two may be of different instants, which is
		// as good as either.
		if n, tokens := h.requests.Load(), h.tokens.Load(); n > 0 && tokens > 0 {
			request = s.cfg.ContextWeight * float64(tokens) / float64(n)
		}
	}
	load := float64(max(t.Load.Prefill, 0)) + request*float64(max(t.Load.InFlight, 0)) + v.request*float64(max(t.Load.Queued, 0))
	return load / pick.Weight(t)
}

// cost is what the prompt costs at targets[i].
func (s *Strategy) cost(v *view, targets []router.Target, i int) float64 {
	t := &targets[i]
	work := v.mean
	if t.Load.Known {
		work = s.work(v, t, i)
	}
	uncached := float64(v.key.Size()-v.Cached[i]) / 4 // bytes of the trie, four to a token
	return work + s.cfg.MissWeight*uncached/pick.Weight(t)
}

// Pick chooses a target. It draws one random number a call where a target is
// Ready, and allocates the Memo alone.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	r := s.scratch.Get().(*room)
	defer s.scratch.Put(r)
	v := s.look(&p, targets, r)
	if v.ready == 0 {
		return router.Decision{}, pick.NoTarget(targets)
	}
	tie := pick.Tie{Seed: s.cfg.Rand()}
	level := s.level(&v, targets)
	if level > 0 {
		tie.Seed = leading(&p, v.best)
	}
	least := math.Inf(1)
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		switch c := max(s.cost(&v, targets, i), level); {
		case c < least:
			least = c
			tie.Better(i)
		case c == least:
			tie.Equal(i, targets)
		}
	}
	i := tie.Best()
	return router.Decision{
		Prompt: p,
		Target: targets[i],
		Cached: v.key.Units(v.Cached[i]),
		Length: v.key.Units(v.key.Size()),
		Unit:   v.key.Unit(),
		Reason: v.reason(i),
		Memo:   &memo{text: *textcache.NewMemo(v.key), tokens: int64(v.key.Size() / 4)},
	}, nil
}

// cold says that no Ready target holds a tenth of the prompt.
func (v *view) cold() bool { return 10*v.best < v.key.Size() }

// reason is why targets[i] was chosen. What less than a tenth of the prompt says
// is not worth a name.
func (v *view) reason(i int) router.Reason {
	switch {
	case v.ready == 1:
		return router.ReasonOnly
	case v.key.Size() == 0:
		return router.ReasonEmpty
	case v.cold():
		return router.ReasonCold
	case v.Cached[i] < v.best:
		return router.ReasonSpill
	}
	return router.ReasonWarm
}

// memo is what a Decision carries from Pick to Record.
type memo struct {
	text   textcache.Memo
	tokens int64 // of the prompt
	hold   *hold // while the request is counted there
	sent   bool
}

// Record learns what the target was sent, what it holds meanwhile, and what of it
// came to nothing.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, _ := d.Memo.(*memo)
	if m == nil { // made by hand: counted by the fleet alone
		s.cache.Record(&d, nil, &o)
		return
	}
	s.cache.Record(&d, &m.text, &o)
	switch {
	case o.Stage == router.Sent && !m.sent:
		m.sent = true
		if m.tokens > 0 {
			m.hold = s.holds.add(d.Target.ID, m.tokens)
		}
	case o.Stage.Final() && m.hold != nil:
		m.hold.end(m.tokens)
		m.hold = nil
	}
}

// Forget forgets what the target was sent and holds.
func (s *Strategy) Forget(id string) {
	s.cache.Forget(id)
	s.holds.forget(id)
}
