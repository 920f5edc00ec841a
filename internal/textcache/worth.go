package textcache

import (
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// The part of a prompt that a target has been sent counts for a choice by these rules; they keep
// unrelated prompts that share a beginning from all following the first one to an idle fleet.
const (
	// Less than this part of the prompt counts as nothing: any two prompts share a few bytes.
	leastPart = 10
	// An estimate is compared in multiples of this part of the prompt: it is not right to the byte.
	stepPart = 50
	// A target has too many recorded prompts if they are more than pileSlack beyond the least, and more than pileFactor
	// times the least.
	pileSlack, pileFactor = 8, 1.5
	// sharers is how many recorded prompts make a beginning a common one.
	sharers = 32
)

// Prompt is a prompt for Worth, with the part of it that each offered target has, by
// its index.
type Prompt struct {
	Key    *Key
	Held   []int // how much of the prompt, in the unit of Size
	Warmed []int // prompts recorded for it
	Size   int   // of the prompt
	Exact  bool  // Held is no estimate
}

// Worth returns how much of each target's cached part counts for a choice; the result
// reuses dst if it is large enough.
//
//   - Less than a tenth of the prompt counts as nothing.
//   - An estimate is rounded down to a multiple of a 50th of the prompt.
//   - The part on a target with too many recorded prompts counts only up to that on one without
//     them, unless the prompt continues a recorded one. So a beginning that many prompts share is
//     computed once on each target, and a conversation stays.
func (c *Cache) Worth(p *Prompt, targets []router.Target, dst []int) []int {
	unit := 1
	if !p.Exact {
		unit = max(p.Size/stepPart, 1)
	}
	dst = append(dst[:0], p.Held...)
	best, least := 0, p.Size
	for i, n := range dst {
		switch {
		case n == 0:
		case !counts(float64(n), p.Size):
			n = 0
		case unit > 1:
			n -= n % unit
		}
		dst[i] = n
		if targets[i].State == router.Ready {
			best, least = max(best, n), min(least, n)
		}
	}
	if best > least {
		c.level(p, targets, dst, best)
	}
	return dst
}

// level lowers the worth of targets that have too many recorded prompts to the most that another holds.
func (c *Cache) level(p *Prompt, targets []router.Target, worth []int, best int) {
	least := math.Inf(1)
	for i := range targets {
		if targets[i].State == router.Ready {
			least = min(least, WarmedByWeight(p.Warmed, targets, i))
		}
	}
	most := 0
	for i := range targets {
		if targets[i].State != router.Ready || worth[i] <= most {
			continue
		}
		if n := WarmedByWeight(p.Warmed, targets, i); n <= least+pileSlack || n <= least*pileFactor {
			most = worth[i]
		}
	}
	if most == best {
		return
	}
	// The shortest beginning with which the rest of best counts as nothing, in bytes of the key.
	size, key := int64(p.Size), int64(p.Key.Size())
	over := leastPart*int64(best)*key - size*key
	n := over/(leastPart*size) + 1
	if over >= 0 && c.trie.Shared(p.Key.scope, p.Key.text[:min(n, key)], sharers) < sharers {
		return
	}
	for i := range worth {
		worth[i] = min(worth[i], most)
	}
}

// counts reports whether n is enough of a prompt of this size.
func counts(n float64, size int) bool { return leastPart*n >= float64(size) }

// WarmedByWeight returns the prompts recorded for targets[i] for each unit of Weight.
func WarmedByWeight(warmed []int, targets []router.Target, i int) float64 {
	if w := targets[i].Weight; w == 0 || w == 1 {
		return float64(warmed[i])
	}
	return float64(warmed[i]) / strategy.Weight(&targets[i])
}
