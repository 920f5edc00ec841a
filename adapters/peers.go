package adapters

import (
	"encoding/binary"
	"time"
	"weak"

	"github.com/warmroute/router/internal/peering"
)

// passEvery is how often news of an adapter in use at a target goes to the other gateways.
const passEvery = 500 * time.Millisecond

// pass reports to the other gateways that e is loaded at t, and how often it was used since the last time.
func (s *Slots) pass(t *target, e *entry, now time.Time) {
	if s.peers == nil {
		return
	}
	e.uses++
	if !e.passed.IsZero() && now.Sub(e.passed) < passEvery {
		return
	}
	s.peers.Pass(peering.AdapterUsed, t.id, append(binary.AppendUvarint(nil, e.uses), e.adapter.name...))
	e.passed, e.uses = now, 0
}

// mostUses bounds the requests of one piece of news.
const mostUses = 1 << 16

// listen takes in what the other gateways say, for as long as s is in use.
func (s *Slots) listen() {
	if s.peers == nil {
		return
	}
	w := weak.Make(s) // the Share outlives it
	s.peers.OnNews(peering.AdapterUsed, func(id string, body []byte, age time.Duration) bool {
		s := w.Value()
		if s == nil {
			return false
		}
		uses, n := binary.Uvarint(body)
		if n <= 0 || !s.follows(string(body[n:])) {
			return true
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.at(id); t != nil {
			s.count(s.named(string(body[n:])), min(uses, mostUses))
			s.sees(t, string(body[n:]), s.cfg.Now().Add(-max(age, 0)))
		}
		return true
	})
}
