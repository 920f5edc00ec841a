package adapters

import (
	"slices"
	"time"
)

// Page is what an engine's metrics page says of its adapters.
type Page struct {
	// Slots is the number of slots; 0: the page does not report it.
	Slots int
	// Running are adapters that have requests in the batch: they are loaded. Of others the page says nothing.
	Running []string
	// Loaded are the adapters in the engine's slots, all of them, if Exact is set.
	Loaded []string
	Exact  bool
}

// settled is how long ago an adapter must have been used for a page to deny it: pages may be a moment old.
const settled = time.Second

// Page takes in a page of a target.
func (s *Slots) Page(id string, p Page) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets[id] == nil && p.Slots == 0 && len(p.Running) == 0 && len(p.Loaded) == 0 {
		return
	}
	t := s.at(id)
	if t == nil {
		return
	}
	now := s.cfg.Now()
	if p.Slots > 0 {
		t.slots, t.reported = min(p.Slots, MaxSlots), true
	}
	if p.Exact {
		s.exactly(t, p.Loaded, now)
	}
	for i, name := range p.Running {
		if i == MaxSlots {
			break
		}
		s.sees(t, name, now)
	}
	s.trim(t)
}

// exactly takes in that a target has these adapters, and no others.
func (s *Slots) exactly(t *target, names []string, now time.Time) {
	names = names[:min(len(names), MaxSlots)]
	if !t.reported {
		t.slots = max(t.slots, len(names))
	}
	for _, e := range slices.Clone(t.entries) {
		if e.loaded && e.inFlight == 0 && now.Sub(e.used) >= settled && !slices.Contains(names, e.adapter.name) {
			s.leave(t, e)
		}
	}
	for _, name := range names {
		if !s.follows(name) {
			continue
		}
		e := t.find(name)
		if e == nil { // loaded by others, and never used as far as is known
			a := s.named(name)
			e = t.enter(a, now.Add(-settled))
			s.adopt(a)
			copy(t.entries[1:], t.entries)
			t.entries[0] = e
		}
		if !e.loaded {
			e.loaded = true
			t.loads++
		}
	}
}

// sees takes in that a target uses the adapter now.
func (s *Slots) sees(t *target, name string, now time.Time) {
	if !s.follows(name) {
		return
	}
	e := t.find(name)
	if e == nil {
		a := s.named(name)
		e = t.enter(a, now)
		s.adopt(a)
	}
	t.touch(e, now)
	s.load(t, e)
}

// Seen takes in that a target computes with the adapter now, as its KV events say.
func (s *Slots) Seen(id, name string) {
	if !s.follows(name) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.at(id); t != nil {
		s.sees(t, name, s.cfg.Now())
	}
}

// Unloaded takes in that a target no longer has the adapter.
func (s *Slots) Unloaded(id, name string) {
	if !s.follows(name) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.targets[id]; t != nil {
		if e := t.find(name); e != nil {
			s.leave(t, e)
		}
	}
}
