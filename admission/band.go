package admission

import "math"

// band has the requests of one priority.
type band struct {
	priority int
	active   []*tenant // with requests, in the order of their turns
	byName   map[string]*tenant
}

// tenant has the requests of one tenant in a band.
type tenant struct {
	class   Class
	deficit float64 // tokens that it may use; below 0: it has used more
	visited bool    // its turn has come, and it was given a quantum
	waiters []*waiter
	bytes   int64
}

// maxIdle bounds the tenants of a band that are remembered without requests.
const maxIdle = 1024

// forget drops tenants without requests if there are many: first those without debts.
func (b *band) forget() {
	if len(b.byName)-len(b.active) < maxIdle {
		return
	}
	for _, debts := range []bool{false, true} {
		for name, t := range b.byName {
			if len(t.waiters) == 0 && (debts || t.deficit >= 0) {
				delete(b.byName, name)
			}
		}
		if len(b.byName)-len(b.active) < maxIdle {
			return
		}
	}
}

// newest returns the last request that is not being tried.
func (t *tenant) newest() *waiter {
	for i := len(t.waiters) - 1; i >= 0; i-- {
		if !t.waiters[i].pinned {
			return t.waiters[i]
		}
	}
	return nil
}

// holds returns how much t has of that which is short.
func (t *tenant) holds(cause string) int64 {
	if cause == TooLarge {
		return t.bytes
	}
	return int64(len(t.waiters))
}

// turn returns the tenant that is next in turn, by deficit round robin (Shreedhar and
// Varghese 1995): each time that the turn comes to a tenant that may use no tokens, it
// is given a quantum. A request is paid for once it is served, because its price is not
// known before: so a tenant may go below 0, and then waits for more than one round.
func (b *band) turn(quantum float64) *tenant {
	rounds := math.Inf(1) // until one may
	for _, t := range b.active {
		rounds = min(rounds, math.Floor(-t.deficit/(quantum*t.class.Weight)))
	}
	if rounds > 0 { // at once, so that a large debt costs no time
		for _, t := range b.active {
			t.deficit += rounds * quantum * t.class.Weight
		}
	}
	for {
		t := b.active[0]
		if !t.visited && t.deficit <= 0 {
			t.visited = true
			t.deficit += quantum * t.class.Weight
		}
		if t.deficit > 0 {
			return t
		}
		t.visited = false
		copy(b.active, b.active[1:])
		b.active[len(b.active)-1] = t
	}
}
