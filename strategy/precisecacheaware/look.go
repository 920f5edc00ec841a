package precisecacheaware

import (
	"cmp"
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/strategy"
)

// scratch is the memory of one look at the targets.
type scratch struct {
	text  textcache.Targets
	exact tokencache.Targets
	worth []int // of exact.Held, as it counts
}

// view is the result of one look at the targets. Sizes are tokens.
type view struct {
	strategy.Summary
	*scratch
	key     textcache.Key
	size    int     // of the whole prompt
	best    int     // the most that a Ready target is known to hold
	mean    float64 // the mean of the trusted Ready ones, if the others count at it
	neutral bool    // they do: there is no text
	price   float64 // of the whole prompt, in requests
	token   float64 // the cost of a token that waits for prefill, in prompts
	waiting float64 // the fewest that wait at a Ready target, for each unit of Weight
}

// look reports whether the Index decides: p has Tokens and the stream of a Ready target can be trusted.
func (s *Strategy) look(p *router.Prompt, targets []router.Target, r *scratch) (v view, exact bool) {
	if len(p.Tokens) == 0 || s.cfg.Index == nil {
		return v, false
	}
	v = view{scratch: r, key: textcache.KeyOf(p), size: len(p.Tokens), neutral: p.Text == ""}
	r.text.Offer(targets)
	if !s.tokens.Look(p, &v.key, !v.neutral, targets, &r.text, &r.exact) {
		return v, false
	}
	v.Summary = strategy.Scan(targets)
	v.price = max(s.cfg.WorthRequests, s.cfg.WorthShare*v.Least)
	v.token = max(s.cfg.PrefillWeight, 0) / float64(v.size)
	v.waiting = math.Inf(1)
	r.worth = append(r.worth[:0], r.exact.Held...)
	for i, n := range r.worth {
		if v.share(n) < s.cfg.HeldShare {
			r.worth[i] = 0
		}
	}
	s.cache.Spread(&textcache.Prompt{
		Key: &v.key, Targets: &r.text, Held: r.exact.Held, Size: v.size, Exact: true,
	}, targets, r.worth)
	sum := 0
	for i := range targets {
		if t := &targets[i]; t.State == router.Ready && t.Load.Known {
			v.waiting = min(v.waiting, prefill(t))
		}
		if targets[i].State == router.Ready {
			v.best = max(v.best, r.worth[i])
			sum += r.worth[i] // untrusted ones have 0 if the mean is asked for
		}
	}
	v.mean = float64(sum) / float64(r.exact.Trusted)
	s.cache.LookWarmed(&r.text)
	return v, true
}

// share returns n tokens as a share of the prompt.
func (v *view) share(n int) float64 { return float64(n) / float64(v.size) }

// untrusted reports whether targets[i] counts at the mean.
func (v *view) untrusted(i int) bool { return v.neutral && v.exact.Index[i] < 0 }

// rank is compared field by field: less is better.
type rank struct {
	cost   float64
	held   int // negative
	warmed int
	cached int // negative
}

const costStep = 1 << 30

func (s *Strategy) rank(v *view, targets []router.Target, i int) rank {
	n := v.exact.Held[i]
	w := v.scratch.worth[i]
	r := rank{warmed: v.text.Warmed[i], cached: -n, held: -w}
	share := v.share(w)
	if v.untrusted(i) {
		share = v.mean / float64(v.size)
	}
	if share < s.cfg.HeldShare {
		share = 0
	}
	// Rounded, so that a difference in a float's last bits is a tie.
	r.cost = math.Round((v.waits(&targets[i])-share)*costStep) / costStep
	return r
}

func (r *rank) compare(o *rank) int {
	return cmp.Or(
		cmp.Compare(r.cost, o.cost), cmp.Compare(r.held, o.held),
		cmp.Compare(r.warmed, o.warmed), cmp.Compare(r.cached, o.cached))
}

// waits returns the cost of t's load, in shares of the prompt.
func (v *view) waits(t *router.Target) float64 {
	w := max(v.Load(t)-v.Least, 0) / v.price
	if t.Load.Known {
		w += v.token * max(prefill(t)-v.waiting, 0)
	}
	return w
}

// prefill returns the tokens that wait for prefill at t, for each unit of Weight.
func prefill(t *router.Target) float64 { return float64(max(t.Load.Prefill, 0)) / strategy.Weight(t) }

// reason returns why targets[i] was chosen. A share below HeldShare is not worth a name.
func (v *view) reason(s *Strategy, i int) router.Reason {
	return strategy.ByCached(v.Ready, v.size, v.scratch.worth[i], v.best)
}
