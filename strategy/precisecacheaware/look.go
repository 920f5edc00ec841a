package precisecacheaware

import (
	"cmp"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/strategy"
)

// cache_aware's defaults, for FallbackText.
const (
	textThreshold      = 0.5
	textOverloadSlack  = 2
	textOverloadFactor = 1.5
	textHeldShare      = 0.1
)

// mode is what decides.
type mode uint8

const (
	byTokens mode = iota
	byText        // FallbackText
	byLoad        // FallbackLeastLoad
)

// room is what one look at the targets needs of memory.
type room struct {
	text  textcache.Targets
	exact tokencache.Targets
}

// view is what one look at the targets tells. Sizes are tokens, or, byText, bytes
// of the trie.
type view struct {
	strategy.Summary
	*room
	mode    mode
	ids     bool // the prompt has Tokens
	empty   bool // it has neither these nor Text
	size    int  // the whole prompt
	key     textcache.Key
	keyed   bool
	best    int     // the most that a Ready target is known to hold
	mean    float64 // of what the trusted Ready ones hold, where untrusted ones count at it
	neutral bool    // they do: there is no text
	worth   float64 // of the whole prompt, in requests
	token   float64 // what a token that waits for prefill takes off, in prompts
	waiting float64 // the fewest that wait at a Ready target, for each unit of Weight
	warm    bool    // byText: best reaches the threshold
	pin     bool    // byText: and one that has it is not overloaded
}

func (s *Strategy) look(p *router.Prompt, targets []router.Target, r *room) view {
	v := view{Summary: strategy.Scan(targets), room: r}
	r.text.IDs = r.text.IDs[:0]
	for i := range targets {
		r.text.IDs = append(r.text.IDs, targets[i].ID)
	}
	v.ids = len(p.Tokens) > 0
	v.empty = !v.ids && p.Text == ""
	switch {
	case v.ids && s.cfg.Index != nil && s.lookTokens(&v, p, targets):
	case s.cfg.Fallback == FallbackText:
		s.lookText(&v, p, targets)
	default:
		v.mode = byLoad
	}
	return v
}

// lookTokens reports whether a Ready target can be trusted.
func (s *Strategy) lookTokens(v *view, p *router.Prompt, targets []router.Target) bool {
	r := v.room
	v.neutral = p.Text == ""
	if !s.tokens.Look(p, v.keyOf(p), !v.neutral, targets, &r.text, &r.exact) {
		return false
	}
	v.mode, v.size = byTokens, len(p.Tokens)
	v.worth = max(s.cfg.WorthRequests, s.cfg.WorthShare*v.Least)
	v.token = max(s.cfg.PrefillWeight, 0) / float64(v.size)
	v.waiting = math.Inf(1)
	sum := 0
	for i, n := range r.exact.Held {
		if t := &targets[i]; t.State == router.Ready && t.Load.Known {
			v.waiting = min(v.waiting, prefill(t))
		}
		if targets[i].State == router.Ready {
			v.best = max(v.best, n)
			sum += n // untrusted ones have 0 where the mean is asked for
		}
	}
	v.mean = float64(sum) / float64(r.exact.Trusted)
	s.cache.LookWarmed(&r.text)
	return true
}

// lookText is cache_aware's look.
func (s *Strategy) lookText(v *view, p *router.Prompt, targets []router.Target) {
	k := v.keyOf(p)
	v.mode, v.size = byText, k.Size()
	s.cache.Look(k, targets, &v.text)
	for i := range targets {
		if targets[i].State == router.Ready {
			v.best = max(v.best, v.text.Cached[i])
		}
	}
	v.warm = v.share(v.best, v.size) >= textThreshold
	for i := 0; i < len(targets) && v.warm && !v.pin; i++ {
		v.pin = v.pinned(targets, i)
	}
	if !v.pin {
		s.cache.LookWarmed(&v.text)
	}
}

func (v *view) keyOf(p *router.Prompt) *textcache.Key {
	if !v.keyed {
		v.key, v.keyed = textcache.KeyOf(p), true
	}
	return &v.key
}

func (v *view) textKey(p *router.Prompt) textcache.Key { return *v.keyOf(p) }

func (v *view) share(n, of int) float64 {
	if n == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// pinned reports whether cache_aware's rules choose from targets[i], where the
// best is warm.
func (v *view) pinned(targets []router.Target, i int) bool {
	return v.text.Cached[i] == v.best && targets[i].State == router.Ready && !v.overloaded(&targets[i])
}

func (v *view) overloaded(t *router.Target) bool {
	return v.Overloaded(t, textOverloadSlack, textOverloadFactor)
}

// untrusted reports whether targets[i] counts at the mean.
func (v *view) untrusted(i int) bool { return v.mode == byTokens && v.neutral && v.exact.Index[i] < 0 }

// cached and length are those of a Decision.
func (v *view) cached(i int) int {
	switch v.mode {
	case byTokens:
		return v.exact.Held[i]
	case byText:
		return v.key.Units(v.text.Cached[i])
	}
	return 0
}

func (v *view) length(p *router.Prompt) (int, router.Unit) {
	if v.mode == byText {
		return v.key.Units(v.size), v.key.Unit()
	}
	return p.Length()
}

// group is 0 for the targets to choose from, 1 for Ready ones that cache_aware's
// rules leave out, 2 for the rest.
func (s *Strategy) group(v *view, targets []router.Target, i int) int {
	switch {
	case targets[i].State != router.Ready:
		return 2
	case v.pin && !v.pinned(targets, i):
		return 1
	}
	return 0
}

// rank is what is compared: less is better, the first part first.
type rank struct {
	cost   float64
	held   int // negative
	warmed int
	cached int // negative
}

func (s *Strategy) rank(v *view, targets []router.Target, i int) rank {
	if v.mode == byTokens {
		return s.rankTokens(v, targets, i)
	}
	r := rank{cost: v.Load(&targets[i])}
	if v.pin {
		return r
	}
	r.warmed = v.text.Warmed[i]
	if v.Known == 0 {
		r.cost = float64(r.warmed)
	}
	if v.share(v.text.Cached[i], v.size) >= textHeldShare {
		r.held = -v.text.Cached[i]
	}
	return r
}

const costStep = 1 << 30

func (s *Strategy) rankTokens(v *view, targets []router.Target, i int) rank {
	n := v.exact.Held[i]
	r := rank{warmed: v.text.Warmed[i], cached: -n}
	share := v.share(n, v.size)
	if share >= s.cfg.HeldShare {
		r.held = -n
	}
	if v.untrusted(i) {
		share = v.mean / float64(v.size)
	}
	if share < s.cfg.HeldShare {
		share = 0
	}
	// Rounded, so that what differs by a float's last bits is a tie.
	r.cost = math.Round((v.waits(&targets[i])-share)*costStep) / costStep
	return r
}

// waits is what t's load takes off, in shares of the prompt.
func (v *view) waits(t *router.Target) float64 {
	w := max(v.Load(t)-v.Least, 0) / v.worth
	if t.Load.Known {
		w += v.token * max(prefill(t)-v.waiting, 0)
	}
	return w
}

// prefill is what waits for prefill at t, in tokens for each unit of Weight.
func prefill(t *router.Target) float64 { return float64(max(t.Load.Prefill, 0)) / strategy.Weight(t) }

func (r *rank) compare(o *rank) int {
	return cmp.Or(
		cmp.Compare(r.cost, o.cost), cmp.Compare(r.held, o.held),
		cmp.Compare(r.warmed, o.warmed), cmp.Compare(r.cached, o.cached))
}

// reason is why targets[i] was chosen.
func (v *view) reason(s *Strategy, i int) router.Reason {
	text := v.mode == byText
	switch {
	case v.mode == byTokens:
		return v.exactReason(s, i)
	case v.empty:
		return router.ReasonEmpty
	case v.ids && text:
		return ReasonUntrustedText
	case v.ids:
		return ReasonUntrustedLeastLoad
	case text:
		return ReasonNoTokensText
	}
	return ReasonNoTokensLeastLoad
}

// exactReason: what less than HeldShare says is not worth a name.
func (v *view) exactReason(s *Strategy, i int) router.Reason {
	switch {
	case v.Ready == 1:
		return router.ReasonOnly
	case v.share(v.best, v.size) < s.cfg.HeldShare:
		return router.ReasonCold
	case v.exact.Held[i] < v.best:
		return router.ReasonSpill
	}
	return router.ReasonWarm
}
