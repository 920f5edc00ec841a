package rendezvous

import "math"

// Ticket is one ID's number in a weighted draw. The ticket of the least cost wins (Efraimidis and Spirakis, "Weighted
// random sampling with a reservoir", Information Processing Letters 2006).
type Ticket struct {
	place, weight float64
	log           float64 // -ln(place) once it was needed, before that 0
}

// Draw returns the ticket of id under seed. The weight is positive and finite.
func Draw(id string, weight float64, seed uint64) Ticket {
	// 52 bits and a half step make a number strictly between 0 and 1.
	return Ticket{place: (float64(Place(id, seed)>>12) + 0.5) / (1 << 52), weight: weight}
}

// cost is exponentially distributed with rate weight, so the least of several falls to each in proportion to its
// weight.
func (t *Ticket) cost() float64 {
	if t.log == 0 {
		t.log = -math.Log(t.place)
	}
	return t.log / t.weight
}

// Share returns place^(1/weight), which is between 0 and 1. The greatest share wins.
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

// Winners keeps the two best of the tickets that are entered, the same two in whatever order they come. The zero
// Winners is empty.
type Winners struct {
	n             int
	first, second int
	c1, c2        Ticket
}

// Enter lets ticket c of the candidate with index i take part.
func (w *Winners) Enter(i int, c Ticket) {
	w.n++
	switch {
	case w.n == 1:
		w.first, w.c1 = i, c
	case c.Beats(&w.c1):
		w.second, w.c2 = w.first, w.c1
		w.first, w.c1 = i, c
	case w.n == 2 || c.Beats(&w.c2):
		w.second, w.c2 = i, c
	}
}

// First returns the index of the best ticket, -1 if none was entered.
func (w *Winners) First() int {
	if w.n == 0 {
		return -1
	}
	return w.first
}

// Second returns the index of the second best ticket, -1 if fewer than two were entered.
func (w *Winners) Second() int {
	if w.n < 2 {
		return -1
	}
	return w.second
}
