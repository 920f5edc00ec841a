package rivals

import (
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/strategy"
)

// bytesPerToken turns text into tokens: English is near four bytes a token in
// today's tokenizers. Token ids are four bytes too, so the trie's bytes are read
// alike for both.
const bytesPerToken = 4

// view is the input of one Pick. It is reused for the next.
type view struct {
	textcache.Targets
	prompt  router.Prompt
	targets []router.Target
	key     textcache.Key
	ready   []int // the indices of the Ready targets
	best    int   // the most bytes of the prompt that a Ready target was sent
	sum     strategy.Summary
	seed    uint64

	subset []int
	vals   [4][]float64 // by the index of the target
}

func (v *view) look(c *textcache.Cache, p router.Prompt, targets []router.Target) {
	v.prompt, v.targets, v.key = p, targets, textcache.KeyOf(&p)
	c.Look(&v.key, targets, &v.Targets)
	v.sum = strategy.Scan(targets)
	v.ready, v.best = v.ready[:0], 0
	for i := range targets {
		if targets[i].State == router.Ready {
			v.ready = append(v.ready, i)
			v.best = max(v.best, v.Cached[i])
		}
	}
	for i := range v.vals {
		v.vals[i] = grown(v.vals[i], len(targets))
	}
}

func grown(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

// tokens returns the length of the prompt, and uncached the part of it that
// targets[i] was not sent before, in tokens.
func (v *view) tokens() float64 { return float64(v.key.Size()) / bytesPerToken }

func (v *view) uncached(i int) float64 {
	return float64(v.key.Size()-v.Cached[i]) / bytesPerToken
}

// blocks returns how many whole blocks of so many bytes are in the prompt, and
// how many of them targets[i] was sent.
func (v *view) blocks(i, bytes int) (matched, total int) {
	return v.Cached[i] / bytes, v.key.Size() / bytes
}

// blockShare is the share of the prompt's whole blocks that targets[i] was sent,
// 0 if the prompt has none.
func (v *view) blockShare(i, bytes int) float64 {
	matched, total := v.blocks(i, bytes)
	if total == 0 {
		return 0
	}
	return float64(matched) / float64(total)
}

// weight is the capacity of targets[i] over the smallest of a Ready one.
func (v *view) weight(i int) float64 { return strategy.Weight(&v.targets[i]) / v.sum.MinWeight }

// The counts of a target's Load.
func inFlight(l *router.Load) int { return l.InFlight }
func requests(l *router.Load) int { return clamp(l.InFlight) + clamp(l.Queued) }
func prefill(l *router.Load) int  { return l.Prefill }

// clamp keeps sums exact, whatever a counter says.
func clamp(n int) int { return min(max(n, 0), 1<<30) }

// loads fills dst with count / weight for every Ready target; those of unknown
// load get the mean of the others, 0 if all are unknown.
func (v *view) loads(dst []float64, count func(*router.Load) int) []float64 {
	var sum strategy.Sum
	known := 0
	for _, i := range v.ready {
		if l := &v.targets[i].Load; l.Known {
			dst[i] = float64(clamp(count(l))) / v.weight(i)
			sum.Add(dst[i])
			known++
		}
	}
	mean := 0.0
	if known > 0 {
		mean = sum.Float() / float64(known)
	}
	for _, i := range v.ready {
		if !v.targets[i].Load.Known {
			dst[i] = mean
		}
	}
	return dst
}

// spread summarizes a list of loads.
type spread struct{ least, most, mean, deviation float64 }

// spread describes vals of the Ready targets; deviation is the population's.
func (v *view) spread(vals []float64) spread {
	s := spread{least: math.Inf(1), most: math.Inf(-1)}
	var sum, squares strategy.Sum
	for _, i := range v.ready {
		s.least, s.most = min(s.least, vals[i]), max(s.most, vals[i])
		sum.Add(vals[i])
	}
	n := float64(len(v.ready))
	s.mean = min(max(sum.Float()/n, s.least), s.most)
	for _, i := range v.ready {
		squares.Add((vals[i] - s.mean) * (vals[i] - s.mean))
	}
	s.deviation = math.Sqrt(squares.Float() / n)
	return s
}

// filter returns those of the Ready targets that keep says.
func (v *view) filter(keep func(i int) bool) []int {
	v.subset = v.subset[:0]
	for _, i := range v.ready {
		if keep(i) {
			v.subset = append(v.subset, i)
		}
	}
	return v.subset
}

// least returns the one of set with the least cost; among equals the one with the
// least next, if that is not nil; remaining ties are drawn.
func (v *view) least(set []int, cost, next []float64) int {
	tie := strategy.Tie{Seed: v.seed}
	var at int // one of the best so far
	for _, i := range set {
		c := 0
		if tie.Tied() > 0 {
			c = compare(cost[i], cost[at])
			if c == 0 && next != nil {
				c = compare(next[i], next[at])
			}
		}
		switch {
		case tie.Tied() == 0 || c < 0:
			at = i
			tie.Better(i)
		case c == 0:
			tie.Equal(i, v.targets)
		}
	}
	return tie.Best()
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// draw returns one of set, each with the same chance.
func (v *view) draw(set []int) int {
	tie := strategy.Tie{Seed: v.seed}
	for _, i := range set {
		tie.Equal(i, v.targets)
	}
	return tie.Best()
}

// reason names the effect of the choice of targets[i] on the cache: less than a
// tenth of the prompt is not worth a name.
func (v *view) reason(i int) router.Reason {
	switch {
	case len(v.ready) == 1:
		return router.ReasonOnly
	case v.key.Size() == 0:
		return router.ReasonEmpty
	case 10*v.best < v.key.Size():
		return router.ReasonCold
	case v.Cached[i] < v.best:
		return router.ReasonSpill
	}
	return router.ReasonWarm
}
