package sim

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// LeastLoads is the least that any order of evictions needs, found by trying all.
func TestLeastLoads(t *testing.T) {
	var try func(uses []string, held []string, slots int) int
	try = func(uses []string, held []string, slots int) int {
		if len(uses) == 0 {
			return 0
		}
		for _, h := range held {
			if h == uses[0] {
				return try(uses[1:], held, slots)
			}
		}
		if len(held) < slots {
			return 1 + try(uses[1:], append(held[:len(held):len(held)], uses[0]), slots)
		}
		best := len(uses)
		for i := range held {
			next := append([]string(nil), held...)
			next[i] = uses[0]
			best = min(best, 1+try(uses[1:], next, slots))
		}
		return best
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		slots := 1 + rng.IntN(3)
		var uses []string
		for range 10 {
			uses = append(uses, strconv.Itoa(rng.IntN(5)))
		}
		if got, want := LeastLoads(uses, slots), try(uses, nil, slots); got != want {
			t.Fatalf("%v with %d slots: %d, by trying all %d", uses, slots, got, want)
		}
	}
}
