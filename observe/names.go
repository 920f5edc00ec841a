package observe

import (
	"strings"
	"sync"
)

// MaxName is the greatest length of a name in bytes.
const MaxName = 128

// Clean returns s as valid UTF-8 of at most MaxName bytes.
func Clean(s string) string {
	if len(s) > MaxName {
		s = s[:MaxName]
	}
	return strings.ToValidUTF8(s, "")
}

// Names is a bounded set of names: the first ones are kept, all others are Other.
// It is safe for concurrent use. Make one with NewNames.
type Names struct {
	max  int
	mu   sync.RWMutex
	kept map[string]string
}

// NewNames returns a set of at most max names.
func NewNames(max int) *Names { return &Names{max: max, kept: make(map[string]string)} }

// Get returns the name for s, which is s cleaned, or Other.
func (n *Names) Get(s string) string {
	n.mu.RLock()
	name, ok := n.kept[s]
	full := len(n.kept) >= n.max
	n.mu.RUnlock()
	if ok {
		return name
	}
	if full {
		return Other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.kept[s]; ok {
		return name
	}
	if len(n.kept) >= n.max {
		return Other
	}
	name = Clean(s)
	n.kept[strings.Clone(s)] = name
	return name
}

// Targets are the names of targets, which come and go. It is safe for concurrent
// use. Make one with NewTargets.
type Targets struct {
	max    int
	rename func(string) string
	mu     sync.RWMutex
	kept   map[targetKey]string
}

type targetKey struct{ fleet, id string }

// NewTargets returns a set that names at most max targets at a time. rename returns
// the name for an ID; nil means Target.
func NewTargets(max int, rename func(string) string) *Targets {
	if rename == nil {
		rename = Target
	}
	return &Targets{max: max, rename: rename, kept: make(map[targetKey]string)}
}

// Get returns the name of a target of a fleet, Other for one beyond the bound.
func (t *Targets) Get(fleet, id string) string {
	k := targetKey{fleet, id}
	t.mu.RLock()
	name, ok := t.kept[k]
	full := len(t.kept) >= t.max
	t.mu.RUnlock()
	if ok {
		return name
	}
	if full {
		return Other
	}
	// The caller's own code runs without the lock.
	name = Clean(t.rename(id))
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := t.kept[k]; ok {
		return name
	}
	if len(t.kept) >= t.max {
		return Other
	}
	k = targetKey{strings.Clone(fleet), strings.Clone(id)}
	t.kept[k] = name
	return name
}

// IDs returns the targets of a fleet that have names of their own.
func (t *Targets) IDs(fleet string) map[string]bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := make(map[string]bool)
	for k := range t.kept {
		if k.fleet == fleet {
			ids[k.id] = true
		}
	}
	return ids
}

// Drop removes the targets of a fleet for which gone is true, and returns their
// names, those left out that another target of the fleet still has.
func (t *Targets) Drop(fleet string, gone func(id string) bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := make(map[string]bool)
	for k, name := range t.kept {
		if k.fleet == fleet && gone(k.id) {
			delete(t.kept, k)
			left[name] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	for k, name := range t.kept {
		if k.fleet == fleet {
			delete(left, name)
		}
	}
	delete(left, Other)
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	return names
}
