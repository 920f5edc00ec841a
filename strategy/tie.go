package strategy

import (
	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
)

// Tie keeps the best of the candidates that it is shown one by one. Each of several that are
// equally good is kept under an equal share of the seeds, the same one in whatever order they come.
// IDs are hashed only if there is a tie. Set Seed and nothing else: to a random number, or, to
// choose alike in every process, to a hash of the key to place.
type Tie struct {
	Seed uint64

	n    int // candidates as good as the best
	best int
	top  uint64 // the best's place if n > 1
}

// Better shows targets[i], which is better than all before.
func (t *Tie) Better(i int) { t.best, t.n = i, 1 }

// Equal shows targets[i], which is as good as the best of those before.
func (t *Tie) Equal(i int, targets []router.Target) {
	if t.n == 0 {
		t.Better(i)
		return
	}
	if t.n == 1 {
		t.top = rendezvous.Place(targets[t.best].ID, t.Seed)
	}
	t.n++
	if p := rendezvous.Place(targets[i].ID, t.Seed); p > t.top {
		t.best, t.top = i, p
	}
}

// Best returns the index of the candidate to take, -1 if none was shown.
func (t *Tie) Best() int {
	if t.n == 0 {
		return -1
	}
	return t.best
}

// Tied returns how many candidates are as good as the best, itself counted.
func (t *Tie) Tied() int { return t.n }

// Lottery draws two of the candidates that it is shown one by one, each with a chance in proportion to its Weight, the
// same two in whatever order they come. First and Second are a draw without replacement. Set Seed
// and nothing else: to a random number, or, for weighted rendezvous hashing, to a hash of the key.
// Under a fixed Seed a candidate that leaves moves no other.
type Lottery struct {
	Seed uint64

	winners rendezvous.Winners
}

// Show lets t, which has index i, take part.
func (l *Lottery) Show(i int, t *router.Target) {
	l.winners.Enter(i, rendezvous.Draw(t.ID, Weight(t), l.Seed))
}

// First returns the index of the candidate that was drawn first, -1 if none was shown.
func (l *Lottery) First() int { return l.winners.First() }

// Second returns the index of the candidate that was drawn after First, -1 if fewer than two were shown.
func (l *Lottery) Second() int { return l.winners.Second() }
