package rendezvous

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The shortcut in Beats never changes a verdict.
func TestBeatsAgreesWithCosts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		a := Draw("a", math.Exp(20*(rng.Float64()-.5)), rng.Uint64())
		b := Draw("b", math.Exp(20*(rng.Float64()-.5)), rng.Uint64())
		if got, want := a.Beats(&b), a.cost() < b.cost(); got != want {
			t.Fatalf("%v beats %v: %v, by cost %v", a, b, got, want)
		}
	}
}

// Hashes that route must not change from one release to the next.
func TestPlaceIsStable(t *testing.T) {
	for _, c := range []struct {
		id   string
		seed uint64
		want uint64
	}{{"vllm-0", 0, 0xa6d59758eea72a71}, {"http://10.0.0.7:8000", 42, 0xec00223d9b041622}} {
		if got := Place(c.id, c.seed); got != c.want {
			t.Errorf("Place(%q, %d) = %#x, want %#x", c.id, c.seed, got, c.want)
		}
	}
}
