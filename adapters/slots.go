package adapters

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/rendezvous"
)

// Slots is the model of the targets' slots. It is safe for concurrent use. A nil Slots knows nothing and costs nothing.
type Slots struct {
	cfg   Config
	peers peering.Node // nil: none

	mu       sync.Mutex
	targets  map[string]*target
	names    map[string]*adapter
	idle     *list.List // of *adapter that no target has, the latest used first
	requests uint64     // with an adapter, of all gateways
	seen     float64    // the weight of all of them
	timing   timing
}

// adapter is what is known of one adapter, wherever it is.
type adapter struct {
	name   string
	seed   uint64
	share  float64 // of the requests, as of the request with the number at
	at     uint64
	places int           // targets that have an entry of it
	idle   *list.Element // nil while places > 0
}

// target is the model of one target.
type target struct {
	id       string
	slots    int
	reported bool     // slots is a page's
	entries  []*entry // the least recently used first
	loads    uint64   // seen
}

// entry is an adapter at a target.
type entry struct {
	adapter  *adapter
	loaded   bool // else requests wait for it
	inFlight int
	used     time.Time
	passed   time.Time // when the other gateways got news of it
	uses     uint64    // since then
}

// New returns a model that has seen nothing yet. The error is a *router.ConfigError for each field that is not allowed,
// joined.
func New(c Config) (*Slots, error) {
	c = c.WithDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Slots{
		cfg: c, peers: peering.Of(c.Share), targets: make(map[string]*target), names: make(map[string]*adapter),
		idle: list.New(),
	}
	s.listen()
	return s, nil
}

// follows reports whether an adapter of this name is followed at all.
func (s *Slots) follows(name string) bool { return s != nil && name != "" && len(name) <= MaxName }

// named returns the record of an adapter, and makes it.
func (s *Slots) named(name string) *adapter {
	if a := s.names[name]; a != nil {
		return a
	}
	name = strings.Clone(name)
	a := &adapter{name: name, seed: rendezvous.Hash(name)}
	s.names[name] = a
	s.rest(a)
	return a
}

// rest moves an adapter that no target has to the front of those, and forgets the last ones beyond the bound.
func (s *Slots) rest(a *adapter) {
	if a.places > 0 {
		return
	}
	if a.idle != nil {
		s.idle.MoveToFront(a.idle)
		return
	}
	a.idle = s.idle.PushFront(a)
	for s.idle.Len() > s.cfg.MaxNames {
		delete(s.names, s.idle.Remove(s.idle.Back()).(*adapter).name)
	}
}

// at returns the model of a target, and makes it; nil if there are too many.
func (s *Slots) at(id string) *target {
	if t := s.targets[id]; t != nil {
		return t
	}
	if len(s.targets) >= maxTargets {
		for id, t := range s.targets {
			if !slices.ContainsFunc(t.entries, func(e *entry) bool { return e.inFlight > 0 }) {
				s.drop(id)
			}
		}
		if len(s.targets) >= maxTargets {
			return nil
		}
	}
	t := &target{id: strings.Clone(id), slots: s.cfg.Slots}
	s.targets[t.id] = t
	return t
}

func (t *target) find(name string) *entry {
	for _, e := range t.entries {
		if e.adapter.name == name {
			return e
		}
	}
	return nil
}

// touch makes e the most recently used one.
func (t *target) touch(e *entry, now time.Time) {
	e.used = now
	i := slices.Index(t.entries, e)
	if i < 0 {
		return // it was dropped meanwhile
	}
	copy(t.entries[i:], t.entries[i+1:])
	t.entries[len(t.entries)-1] = e
}

// enter adds an entry for a as the most recently used one.
func (t *target) enter(a *adapter, now time.Time) *entry {
	e := &entry{adapter: a, used: now}
	t.entries = append(t.entries, e)
	a.places++
	return e
}

// adopt takes a off the list of those that no target has.
func (s *Slots) adopt(a *adapter) {
	if a.places > 0 && a.idle != nil {
		s.idle.Remove(a.idle)
		a.idle = nil
	}
}

// leave drops e from t.
func (s *Slots) leave(t *target, e *entry) {
	i := slices.Index(t.entries, e)
	if i < 0 {
		return
	}
	t.entries = slices.Delete(t.entries, i, i+1)
	e.adapter.places--
	s.rest(e.adapter)
}

// load notes that e is loaded at t, and what that evicted. An adapter in use is not evicted: if the slots were only
// supposed, there are more of them.
func (s *Slots) load(t *target, e *entry) {
	if e.loaded || !slices.Contains(t.entries, e) {
		return
	}
	e.loaded = true
	t.loads++
	s.trim(t)
}

func (s *Slots) trim(t *target) {
	for t.loaded() > t.slots {
		v := t.victim()
		if v == nil || v.inFlight > 0 && !t.reported && t.slots < MaxSlots {
			t.slots++
			continue
		}
		s.leave(t, v)
	}
}

func (t *target) loaded() (n int) {
	for _, e := range t.entries {
		if e.loaded {
			n++
		}
	}
	return n
}

// victim returns the loaded adapter that a load would evict: the least recently used one that is not in use, else the
// least recently used one; nil if none is loaded.
func (t *target) victim() (v *entry) {
	for _, e := range t.entries {
		if e.loaded && (v == nil || e.inFlight == 0) {
			v = e
			if e.inFlight == 0 {
				break
			}
		}
	}
	return v
}

// Forget drops what is known of a target: it is gone, or was restarted. Requests in flight there end without effect.
func (s *Slots) Forget(id string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
}

func (s *Slots) drop(id string) {
	t := s.targets[id]
	if t == nil {
		return
	}
	for _, e := range t.entries {
		e.adapter.places--
		s.rest(e.adapter)
	}
	t.entries = nil
	delete(s.targets, id)
}
