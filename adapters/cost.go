package adapters

import (
	"cmp"
	"math"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
)

// The cost of a load against its own time, chosen on simulated fleets (bench/RESULTS.md).
const (
	// window is the number of requests over which an adapter's share of them is taken.
	window = 2048
	// strayed is the further cost of a load, in loads, at a target that is none of the adapter's homes.
	strayed = 0.02
	// evicted is the greatest further cost of an eviction, in loads.
	evicted = 2.0
	// crowded is the further cost, in loads, of a target with all slots in use: one must become free first.
	crowded = 1.0
	// headroom is how many more homes an adapter gets than its share of the requests fills.
	headroom = 1.25
)

// Costs appends to dst the cost of the adapter at each of targets, in tokens that wait for prefill: 0 if it is loaded
// there or being loaded, a load if a slot is free, and otherwise up to two more for the adapter that it evicts: the
// more, the more often that is used than this one, and the less, the more other targets have it. If all slots are in
// use, one must become free first, which costs one more. An adapter has homes, by rendezvous hashing, as many as its
// share of the requests needs; a load elsewhere costs a little more, so that gateways that share nothing load a cold
// one in the same place. Costs changes nothing. A name that is empty or too long costs nothing anywhere.
func (s *Slots) Costs(name string, targets []router.Target, dst []float64) []float64 {
	if !s.follows(name) {
		return append(dst, make([]float64, len(targets))...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := s.loadTokens()
	a := s.names[name]
	share := s.shareOf(a)
	from := len(dst)
	for i := range targets {
		dst = append(dst, unit*s.loads(s.targets[targets[i].ID], name, share))
	}
	seed := rendezvous.Hash(name)
	least, ok := leastHome(seed, targets, homes(share, ready(targets)))
	for i := range targets {
		if c := &dst[from+i]; ok && *c > 0 && rendezvous.Place(targets[i].ID, seed) < least {
			*c += strayed * unit
		}
	}
	return dst
}

func ready(targets []router.Target) (n int) {
	for i := range targets {
		if targets[i].State == router.Ready {
			n++
		}
	}
	return n
}

// loads returns the cost of the adapter at t in loads.
func (s *Slots) loads(t *target, name string, share float64) float64 {
	if t == nil {
		return 1
	}
	used, cost := 0, 1.0
	for _, e := range t.entries {
		if e.adapter.name == name {
			return 0
		}
		used++
	}
	if used < t.slots {
		return cost
	}
	v := t.victim()
	if v == nil || v.inFlight > 0 {
		return cost + evicted + crowded
	}
	if theirs := s.shareOf(v.adapter); theirs > 0 {
		part := theirs / (theirs + share)
		cost += evicted * part * part / float64(v.adapter.places)
	}
	return cost
}

// homes returns how many of n targets are homes of an adapter with this share of the requests.
func homes(share float64, n int) int {
	return min(max(int(math.Ceil(share*headroom*float64(n))), 1), n)
}

// leastHome returns the least place of the k homes among the targets that are Ready; false if there is none.
func leastHome(seed uint64, targets []router.Target, k int) (uint64, bool) {
	var buf [16]uint64 // the greatest places, the greatest first
	best := buf[:0]
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		p := rendezvous.Place(targets[i].ID, seed)
		if len(best) == k && (k == 0 || p <= best[k-1]) {
			continue
		}
		if len(best) < k {
			best = append(best, 0)
		}
		j := len(best) - 1
		for ; j > 0 && best[j-1] < p; j-- {
			best[j] = best[j-1]
		}
		best[j] = p
	}
	if len(best) == 0 {
		return 0, false
	}
	return best[len(best)-1], true
}

// shareOf returns the part of the latest requests that were a's.
func (s *Slots) shareOf(a *adapter) float64 {
	if a == nil || s.requests == 0 {
		return 0
	}
	return min(a.share*faded(s.requests-a.at)/s.seen, 1)
}

// faded is the weight of a request n requests ago.
func faded(n uint64) float64 {
	if n == 0 {
		return 1
	}
	return math.Exp(-float64(n) / window)
}

// count adds n requests for a.
func (s *Slots) count(a *adapter, n uint64) {
	if n == 0 {
		return
	}
	s.requests += n
	s.seen = 1 - faded(s.requests)
	a.share = a.share*faded(s.requests-a.at) + 1 - faded(n)
	a.at = s.requests
}

// ranked returns ids by the adapter's places, the greatest first.
func ranked(name string, ids []string) []string {
	seed := rendezvous.Hash(name)
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Compare(rendezvous.Place(b, seed), rendezvous.Place(a, seed))
	})
	return sorted
}
