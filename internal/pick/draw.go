package pick

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/router"
)

// Hash returns a 64-bit hash of s that is the same in every process (XXH64).
func Hash(s string) uint64 { return xxhash.Sum64String(s) }

// Mix scrambles x: each bit of the result depends on all bits of x, and different
// x give different results. (The finaliser of SplitMix64: Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014, with David
// Stafford's constants "mix13".)
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Place returns where the target with this ID stands under seed: a number that
// looks random, is the same in every process and differs between IDs. Of several
// targets, each has the greatest place under an equal share of the seeds
// (rendezvous hashing: Thaler and Ravishankar, IEEE/ACM Trans. Networking 1998).
func Place(id string, seed uint64) uint64 { return Mix(Hash(id) ^ seed) }

// Tie keeps the best of the candidates that it is shown one by one, and breaks
// ties by the greatest Place under Seed: fairly where Seed is random, and the
// same way in whatever order they come. IDs are hashed only where there is a tie.
// Set Seed and nothing else.
type Tie struct {
	Seed uint64

	n    int // candidates as good as the best
	best int
	top  uint64 // the best's place, where n > 1
}

// Better says that targets[i] is better than all before.
func (t *Tie) Better(i int) { t.best, t.n = i, 1 }

// Equal says that targets[i] is as good as the best of those before.
func (t *Tie) Equal(i int, targets []router.Target) {
	if t.n == 0 {
		t.Better(i)
		return
	}
	if t.n == 1 {
		t.top = Place(targets[t.best].ID, t.Seed)
	}
	t.n++
	if p := Place(targets[i].ID, t.Seed); p > t.top {
		t.best, t.top = i, p
	}
}

// Best returns the index of the one to take, -1 where none was shown.
func (t *Tie) Best() int {
	if t.n == 0 {
		return -1
	}
	return t.best
}

// Tied returns how many were as good as the best, itself counted.
func (t *Tie) Tied() int { return t.n }

// Lottery draws from the candidates that it is shown one by one, each with a
// chance in proportion to its weight, the same ones in whatever order they come.
// First and Second are a draw without replacement (Efraimidis and Spirakis,
// "Weighted random sampling with a reservoir", IPL 2006). Under a fixed Seed it
// is weighted rendezvous hashing: where a candidate leaves, no other loses its
// place. Set Seed and nothing else.
type Lottery struct {
	Seed uint64

	n             int
	first, second int
	c1, c2        Ticket
}

// Ticket is what one candidate drew. The least cost wins.
type Ticket struct {
	place, weight float64
	log           float64 // -ln(place) once it was needed, before that 0
}

// Draw returns the ticket of the target with this ID and weight, as [Weight]
// gives it, under seed.
func Draw(id string, weight float64, seed uint64) Ticket {
	// 52 bits and a half step make a number strictly between 0 and 1.
	return Ticket{place: (float64(Place(id, seed)>>12) + 0.5) / (1 << 52), weight: weight}
}

// cost is exponentially distributed with rate weight, so that the least of
// several falls to each in proportion to its weight.
func (t *Ticket) cost() float64 {
	if t.log == 0 {
		t.log = -math.Log(t.place)
	}
	return t.log / t.weight
}

// Share returns place^(1/weight): 0..1, higher is better.
func (t *Ticket) Share() float64 { return math.Exp(-t.cost()) }

// Beats reports whether t wins against o.
func (t *Ticket) Beats(o *Ticket) bool {
	if t.weight == o.weight {
		return t.place > o.place
	}
	// -ln(x) >= 1-x spares most of the logarithms.
	if c := o.cost(); (1-t.place)/t.weight < c {
		return t.cost() < c
	}
	return false
}

// Show lets targets[i] take part.
func (l *Lottery) Show(i int, t *router.Target) {
	l.Enter(i, Draw(t.ID, Weight(t), l.Seed))
}

// Enter is Show with a ticket that was drawn before.
func (l *Lottery) Enter(i int, c Ticket) {
	l.n++
	switch {
	case l.n == 1:
		l.first, l.c1 = i, c
	case c.Beats(&l.c1):
		l.second, l.c2 = l.first, l.c1
		l.first, l.c1 = i, c
	case l.n == 2 || c.Beats(&l.c2):
		l.second, l.c2 = i, c
	}
}

// First returns the index of the candidate that was drawn, -1 where none was
// shown.
func (l *Lottery) First() int {
	if l.n == 0 {
		return -1
	}
	return l.first
}

// Second returns the index of the one drawn after First, -1 where fewer than two
// were shown.
func (l *Lottery) Second() int {
	if l.n < 2 {
		return -1
	}
	return l.second
}
