package pipeline

import (
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
)

// fingerprint returns the session as the other gateways know it.
func (s *Strategy) fingerprint(k sessionKey) peering.Mark {
	return s.peers.Session(k.model, k.adapter, k.salt, k.session)
}

// home returns the ID of the target that session k is bound to, here or by the word of another gateway. If several
// gateways bound it at the same moment, the binding that was made first counts, unless a later one has moved it.
func (s *Strategy) home(k sessionKey) (id string, ok bool) {
	now := s.cfg.Now()
	id, ok = s.cfg.Sessions.target(k, now)
	if s.peers == nil {
		return id, ok
	}
	other, age, moved, known := s.peers.Pinned(s.fingerprint(k))
	if !known || other == "" || other == id || age > s.cfg.SessionTTL {
		return id, ok
	}
	bound, here := s.cfg.Sessions.boundAt(k, now)
	if !here || moved == now.Add(-age).After(bound) {
		return other, true
	}
	return id, ok
}

// adopt binds a session to the target that another gateway said, unless it is.
func (s *Sessions) adopt(k sessionKey, id string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at(k, now); e == nil || e.id != id {
		s.bind(k, id, now).expires = now
	}
}

// boundAt returns when a session was bound to its target here.
func (s *Sessions) boundAt(k sessionKey, now time.Time) (at time.Time, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.at(k, now); e != nil {
		return e.bound, true
	}
	return time.Time{}, false
}

// record is Sessions.record, and passes on the binding that is left.
func (s *Strategy) record(v *visit, k sessionKey, id string, o *router.Outcome) {
	now := s.cfg.Now()
	var before string
	if s.peers != nil {
		if home, ok := s.home(k); ok && o.Stage == router.Sent {
			s.cfg.Sessions.adopt(k, home, now)
		}
		before, _ = s.cfg.Sessions.target(k, now)
	}
	s.cfg.Sessions.record(v, k, id, o, now, s.cfg.SessionTTL)
	if s.peers == nil || o.Stage != router.Sent && o.Stage != router.FirstToken && o.Stage != router.Finished {
		return
	}
	after, ok := s.cfg.Sessions.target(k, now)
	if ok && (o.Stage == router.Sent || after != before) {
		s.peers.Pin(s.fingerprint(k), after, before != "" && after != before)
	}
}
