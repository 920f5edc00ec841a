package leastwork

import (
	"math"
	"sort"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
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

// poured is one target that is filled.
type poured struct {
	index       int
	cost, price float64 // of the prompt there; of one unseen request, in costs of later ones
}

// spread returns the index of the target to take if requests are unseen, -1 if the costs alone decide.
func (s *Strategy) spread(v *view, targets []router.Target) int {
	q := s.peers.Unseen()
	q += min(unseenWeight*q, mostUnseen)
	if q < fewUnseen || v.ready < 2 {
		return -1
	}
	least, dear := math.Inf(1), 0.0
	all := v.poured[:0]
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		price := (v.asTokens(v.size-v.worth[i]) + s.cfg.ContextWeight*v.asTokens(v.size) + 1) / strategy.Weight(t)
		p := poured{i, s.cost(v, targets, i), price}
		least, dear = min(least, p.cost), max(dear, p.price)
		all = append(all, p)
	}
	v.poured = all
	all = byCost(all).upTo(least + q*dear)
	if len(all) < 2 {
		return -1
	}
	level := fill(all, q)
	x := q * s.cache.Position(&v.Targets)
	for _, p := range all {
		if d := level - p.cost; d > 0 {
			if x -= d / p.price; x < 0 {
				return p.index
			}
		}
	}
	return -1 // by rounding alone
}

// byCost sorts targets, those of equal cost by their index.
type byCost []poured

func (b byCost) Len() int      { return len(b) }
func (b byCost) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b byCost) Less(i, j int) bool {
	return b[i].cost < b[j].cost || b[i].cost == b[j].cost && b[i].index < b[j].index
}

// upTo returns the targets of at most this cost, in the memory of b.
func (b byCost) upTo(most float64) []poured {
	n := 0
	for _, p := range b {
		if p.cost <= most {
			b[n] = p
			n++
		}
	}
	return b[:n]
}

// fill returns the level up to which q requests fill the targets, and sorts them.
func fill(all []poured, q float64) (level float64) {
	sort.Sort(byCost(all)) // it is part of most programs, which a generic sort is not
	sum, width := q, 0.0
	for i, p := range all {
		sum, width = sum+p.cost/p.price, width+1/p.price
		level = sum / width
		if i+1 < len(all) && level <= all[i+1].cost {
			break
		}
	}
	return level
}
