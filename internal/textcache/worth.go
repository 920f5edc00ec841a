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
	// many is how many recorded prompts make a beginning a common one.
	many = 32
)

// Prompt is a prompt for Worth, with the part of it that each offered target has, by
// its index.
type Prompt struct {
	Key     *Key
	Targets *Targets // of the last Look or Offer
	At      []int    // the place in Targets of each offered target; nil: its index
	Held    []int    // how much of the prompt, in the unit of Size
	Size    int      // of the prompt
	Exact   bool     // Held is no estimate
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
	unit := uint(1)
	if !p.Exact {
		unit = uint(max(p.Size/stepPart, 1))
	}
	dst = append(dst[:0], p.Held...)
	last, worth := 0, 0 // mostly, one has as much as the next
	for i, n := range dst {
		if n != last {
			last, worth = n, 0
			if counts(n, p.Size) {
				worth = n - int(rest(uint(n), unit))
			}
		}
		dst[i] = worth
	}
	c.Spread(p, targets, dst)
	return dst
}

// Spread lowers the worth of the parts by the last of the rules of Worth.
func (c *Cache) Spread(p *Prompt, targets []router.Target, worth []int) {
	best, least := 0, p.Size
	for i, n := range worth {
		if targets[i].State == router.Ready {
			best, least = max(best, n), min(least, n)
		}
	}
	if best > least && c.common(p, best) {
		c.level(p, targets, worth)
	}
}

// common reports whether the part of best beyond the common beginning counts as nothing.
func (c *Cache) common(p *Prompt, best int) bool {
	size, key := int64(p.Size), int64(p.Key.Size())
	over := leastPart*int64(best)*key - size*key
	if over < 0 {
		return true
	}
	c.lookShared(p.Key, p.Targets)
	// The whole key, or more than the longest beginning, in its bytes, with which the rest counts.
	shared := int64(p.Targets.shared)
	return shared == key || leastPart*size*shared > over
}

// level lowers the worth of targets that have too many recorded prompts to the most that another holds.
func (c *Cache) level(p *Prompt, targets []router.Target, worth []int) {
	c.LookWarmed(p.Targets)
	least := math.Inf(1)
	for i := range targets {
		if targets[i].State == router.Ready {
			least = min(least, p.warmed(targets, i))
		}
	}
	most := 0
	for i := range targets {
		if targets[i].State != router.Ready || worth[i] <= most {
			continue
		}
		if n := p.warmed(targets, i); n <= least+pileSlack || n <= least*pileFactor {
			most = worth[i]
		}
	}
	for i := range worth {
		worth[i] = min(worth[i], most)
	}
}

// rest returns n % unit. It divides 32 bits if they are enough, which takes a fraction of the time.
func rest(n, unit uint) uint {
	if (n|unit)>>31 == 0 {
		return uint(uint32(n) % uint32(unit))
	}
	return n % unit
}

// counts reports whether n is enough of a prompt of this size.
func counts(n, size int) bool { return leastPart*float64(n) >= float64(size) }

// warmed returns the prompts recorded for targets[i] for each unit of Weight.
func (p *Prompt) warmed(targets []router.Target, i int) float64 {
	at := i
	if p.At != nil {
		at = p.At[i]
	}
	return WarmedByWeight(p.Targets.Warmed[at], &targets[i])
}

// WarmedByWeight returns the n prompts recorded for t for each unit of Weight.
func WarmedByWeight(n int, t *router.Target) float64 {
	if t.Weight == 0 || t.Weight == 1 {
		return float64(n)
	}
	return float64(n) / strategy.Weight(t)
}
