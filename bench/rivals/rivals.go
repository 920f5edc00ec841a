// Package rivals holds routing policies that others have published, each as a
// router.Strategy to be compared with the library's own. All code is written
// here, from their documentation and sources: each Config names the formula, the
// defaults and their source, and marks assumptions as "assumed".
//
// They have the data of a deployment without engine events: the fleet's load, and
// their own record of sent prompts. Four bytes of text count as a token. If the
// original counts its own process's requests in flight, Load.InFlight is read and
// Load.Queued is not; if it reads the engine's own numbers, both are. None of the
// originals has weights: if weights differ, each count is divided by Weight / the
// smallest Ready Weight, which with equal weights is the published formula to the
// letter. A target of unknown load counts at the mean of the others. Ties are
// drawn at random, also if an original takes the first of its list.
//
// Only prompts are remembered, not the replies to them, as in the originals.
// Timers (eviction by age, scrape intervals) are left out: a record is bounded by
// its size.
package rivals

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Common is a part of every Config. Its zero value is the default.
type Common struct {
	// MaxNodes and MaxBytes bound the remembered prompts, as in trie.Config. 0
	// means 1,000,000 nodes of one target and 512 MiB for all.
	MaxNodes, MaxBytes int
	// Rand breaks ties. It is safe for concurrent use; nil means the global
	// source of math/rand/v2.
	Rand func() uint64
}

// policy is the rule of one rival.
type policy interface {
	// choose returns the index of one of v.ready, which are two or more, and why;
	// "" leaves the reason to the share that the target holds.
	choose(v *view) (int, router.Reason)
}

// tracker follows the requests in flight. Its methods are called in this order,
// each at most once for one memo, token not always.
type tracker interface {
	sent(d *router.Decision, m *memo)
	token(d *router.Decision, m *memo)
	ended(d *router.Decision, m *memo)
}

// Strategy is a published policy. It records a prompt for a target when it is
// sent there, and removes it if the request fails before its first token. It is
// safe for concurrent use.
type Strategy struct {
	policy policy
	track  tracker // nil: nobody asks
	cache  *textcache.Cache
	rand   func() uint64
	room   sync.Pool // of *view
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
)

func newStrategy(c Common, p policy, t tracker) (*Strategy, error) {
	tr, err := trie.New(trie.Config{MaxNodes: c.MaxNodes, MaxBytes: c.MaxBytes})
	if err != nil {
		return nil, fmt.Errorf("rivals: %w", err)
	}
	s := &Strategy{policy: p, track: t, cache: textcache.New(tr), rand: strategy.Rand(c.Rand)}
	s.room.New = func() any { return new(view) }
	return s, nil
}

// Pick chooses a target by the rival's rule. It draws one random number a call
// if a target is Ready.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	v := s.room.Get().(*view)
	defer func() {
		v.targets, v.prompt = nil, router.Prompt{}
		s.room.Put(v)
	}()
	v.look(s.cache, p, targets)
	if len(v.ready) == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	v.seed = s.rand()
	i, reason := v.ready[0], router.Reason("")
	if len(v.ready) > 1 {
		i, reason = s.policy.choose(v)
	}
	if reason == "" {
		reason = v.reason(i)
	}
	return router.Decision{
		Prompt: p,
		Target: targets[i],
		Cached: v.key.Units(v.Cached[i]),
		Length: v.key.Units(v.key.Size()),
		Unit:   v.key.Unit(),
		Reason: reason,
		Memo:   &memo{key: v.key, prompt: textcache.NewMemo(v.key)},
	}, nil
}

// memo is the data that a Decision carries from Pick to Record.
type memo struct {
	key    textcache.Key
	prompt *textcache.Memo
	flight *textcache.Memo // the tracker's own
	stage  router.Stage    // the last one that the tracker received; any final one: Finished
}

// Record learns the prompt that the target was sent, and removes it if the
// request failed. Of a decision made by hand only the prompt is recorded.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	if o.Reply != "" { // not remembered, but it shows that there were tokens
		o.Reply, o.OutputTokens = "", max(o.OutputTokens, 1)
	}
	m, _ := d.Memo.(*memo)
	if m == nil {
		s.cache.Record(&d, nil, &o)
		return
	}
	s.cache.Record(&d, m.prompt, &o)
	if s.track == nil {
		return
	}
	switch {
	case o.Stage == router.Sent && m.stage == 0:
		m.stage = router.Sent
		s.track.sent(&d, m)
	case o.Stage == router.FirstToken && m.stage == router.Sent:
		m.stage = router.FirstToken
		s.track.token(&d, m)
	case o.Stage.Final() && (m.stage == router.Sent || m.stage == router.FirstToken):
		s.track.ended(&d, m)
		m.stage = router.Finished
	}
}

// Forget drops the prompts that the target was sent. Its requests in flight
// count until they end.
func (s *Strategy) Forget(id string) { s.cache.Forget(id) }

// field is a bad or missing value of a Config.
type field struct {
	name     string
	v        *float64
	def      float64
	min, max float64
}

func value(name string, v *float64, def, min, max float64) field {
	return field{name: name, v: v, def: def, min: min, max: max}
}

// set fills in defaults and returns an error that names the field that is out of
// its bounds.
func set(config string, fields ...field) error {
	for _, f := range fields {
		if *f.v == 0 {
			*f.v = f.def
		}
		if !(*f.v >= f.min && *f.v <= f.max) {
			return fmt.Errorf("rivals: %s.%s is %v; it must be from %v to %v", config, f.name, *f.v, f.min, f.max)
		}
	}
	return nil
}

// huge is the upper bound of values that need none.
const huge = math.MaxFloat32
