package adapters

import (
	"slices"
	"time"

	"github.com/warmroute/router"
)

// Use is one request with an adapter, from Sent to End. A nil Use does nothing.
type Use struct {
	slots  *Slots
	target *target
	entry  *entry
	sent   time.Time
	work   float64 // tokens
	first  bool    // it waits for the load that it caused
	warm   bool    // it waits for none
	began  bool
	ended  bool
}

// Sent notes that a request with the adapter is sent to a target, which has so many tokens to prefill until its first
// token: those that wait there and those of the request. It returns nil if the adapter is not followed.
func (s *Slots) Sent(id, name string, work float64) *Use {
	if !s.follows(name) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.at(id)
	if t == nil {
		return nil
	}
	now := s.cfg.Now()
	a := s.named(name)
	s.count(a, 1)
	s.rest(a)
	u := &Use{slots: s, target: t, sent: now, work: work}
	if u.entry = t.find(name); u.entry == nil {
		if len(t.entries)-t.loaded() >= maxPending {
			return nil
		}
		u.entry, u.first = t.enter(a, now), true
		s.adopt(a)
	}
	u.warm = u.entry.loaded
	u.entry.inFlight++
	t.touch(u.entry, now)
	return u
}

// FirstToken notes that the reply began: the adapter is loaded. Calls after the first do nothing.
func (u *Use) FirstToken() {
	if u == nil {
		return
	}
	s := u.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.began || u.ended {
		return
	}
	u.began = true
	now := s.cfg.Now()
	s.timing.add(now.Sub(u.sent), u.work, u.first, u.warm)
	s.loadedBy(u, now)
}

// End notes that the request ended. One that failed before its first token shows nothing; any other has had its adapter
// loaded, and one that was canceled most likely has. Calls after the first do nothing.
func (u *Use) End(stage router.Stage) {
	if u == nil {
		return
	}
	s := u.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.ended {
		return
	}
	u.ended = true
	u.entry.inFlight--
	switch {
	case stage != router.Failed && !u.began:
		s.loadedBy(u, s.cfg.Now())
	case !u.entry.loaded && u.entry.inFlight == 0:
		s.leave(u.target, u.entry)
	}
	s.trim(u.target)
}

// loadedBy notes that u's adapter is loaded, and passes it on to the other gateways.
func (s *Slots) loadedBy(u *Use, now time.Time) {
	t, e := u.target, u.entry
	if !slices.Contains(t.entries, e) {
		return // evicted or forgotten meanwhile: what is known of that is newer
	}
	s.load(t, e)
	t.touch(e, now)
	s.pass(t, e, now)
}
