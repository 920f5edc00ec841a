package leastwork

import (
	"math"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
)

// leadBytes is how much of a prompt is hashed beyond its known part, and the unit
// in which the known part is measured: gateways know nearly, not exactly, the
// same.
const leadBytes = 1024

// level returns the cost up to which targets count as equal. It is 0 if Config.Agree does not decide: a Ready target
// holds a tenth of the prompt, or the prompt is empty.
func (s *Strategy) level(v *view, targets []router.Target) float64 {
	if s.cfg.Agree == 0 || v.ready < 2 || v.size == 0 || 10*v.best >= v.size {
		return 0
	}
	least := math.Inf(1)
	for i := range targets {
		if targets[i].State == router.Ready {
			least = min(least, s.cost(v, targets, i))
		}
	}
	return least * (1 + s.cfg.Agree)
}

// known returns how many leading bytes of p some Ready target holds.
func (v *view) known(p *router.Prompt) int {
	switch {
	case !v.tokens:
		return v.best
	case p.Text == "":
		return v.best * 4
	}
	return int(float64(v.best) / float64(v.size) * float64(len(p.Text)))
}

// leading hashes the beginning of p, up to the first bytes that no target has been
// sent. A beginning that many prompts share is known soon, so the part after it
// distinguishes them: a common opening does not send them all to one place.
func leading(p *router.Prompt, known int) uint64 {
	n := (known+leadBytes-1)/leadBytes*leadBytes + leadBytes
	h := rendezvous.Hash(p.Scope())
	if p.Text != "" {
		return rendezvous.Mix(h ^ rendezvous.Hash(p.Text[:min(n, len(p.Text))]))
	}
	for _, t := range p.Tokens[:min(n/4, len(p.Tokens))] {
		h = rendezvous.Mix(h ^ uint64(t))
	}
	return h
}
