package textcache

import (
	"math"
	"sort"
)

// Gateways that share their load see each other's requests a little late: those that they send at the same moment would
// all go to the target of the least cost. So each reckons with the requests that the others have sent and that it does
// not know yet. They are poured over the targets, like water, from the least cost up, and the target is drawn by how
// much it got. Costs that differ by more than that are compared as ever.
const (
	// A request that meets another at its target waits for all of its prefill, which costs more than the tokens
	// themselves: unseen requests count unseenWeight times more, up to mostUnseen further ones, because in a burst
	// they spread by themselves. On simulated fleets of eight gateways 5 to 10 and 0.25 to 1.5 differ by 1%.
	unseenWeight, mostUnseen = 10, 0.75
	// fewUnseen is too few to be worth the time.
	fewUnseen = 1e-3
)

// Glass is one target that is filled: its index, the cost of the prompt there, and the price of one unseen request, in
// costs of later ones.
type Glass struct {
	Index       int
	Cost, Price float64
}

// Unseen returns how many requests of other gateways a choice is to reckon with that are not known yet; 0: none.
func (c *Cache) Unseen() float64 {
	if c.peers == nil {
		return 0
	}
	q := c.peers.Unseen()
	if q += min(unseenWeight*q, mostUnseen); q < fewUnseen {
		return 0
	}
	return q
}

// Pour pours q unseen requests over all, which it reorders, and returns the index of the target to take; -1 if the
// costs alone decide.
func (c *Cache) Pour(t *Targets, all []Glass, q float64) int {
	least, dear := math.Inf(1), 0.0
	for i := range all {
		least, dear = min(least, all[i].Cost), max(dear, all[i].Price)
	}
	n := 0
	for _, g := range all {
		if g.Cost <= least+q*dear {
			all[n] = g
			n++
		}
	}
	if all = all[:n]; n < 2 {
		return -1
	}
	level := levelOf(all, q)
	x := q * c.Position(t)
	for _, g := range all {
		if d := level - g.Cost; d > 0 {
			if x -= d / g.Price; x < 0 {
				return g.Index
			}
		}
	}
	return -1 // by rounding alone
}

// byCost sorts targets, those of equal cost by their index.
type byCost []Glass

func (b byCost) Len() int      { return len(b) }
func (b byCost) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b byCost) Less(i, j int) bool {
	return b[i].Cost < b[j].Cost || b[i].Cost == b[j].Cost && b[i].Index < b[j].Index
}

// levelOf returns the level up to which q requests fill the targets, and sorts them.
func levelOf(all []Glass, q float64) (level float64) {
	sort.Sort(byCost(all)) // it is part of most programs, which a generic sort is not
	sum, width := q, 0.0
	for i, g := range all {
		sum, width = sum+g.Cost/g.Price, width+1/g.Price
		level = sum / width
		if i+1 < len(all) && level <= all[i+1].Cost {
			break
		}
	}
	return level
}
