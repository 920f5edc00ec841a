package textcache

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/prefix"
)

// prepared describes the results of Prepare in a Targets.
type prepared struct {
	is   bool
	key  Key
	ids  []string // of Targets.Cached, in the place of Targets.IDs; not to be changed
	mark uint64   // Cache.recent before the match

	shared int // Targets.shared at the time of the match
}

// Prepare matches p with the targets that were offered lately, for the next Look or
// LookWarmed with t, which must be for the same prompt.
func (c *Cache) Prepare(p *router.Prompt, t *Targets) {
	t.prepared = prepared{is: true, key: KeyOf(p)}
	if ids := c.offered.Load(); ids != nil {
		// The mark first: a prompt sent during the match is then seen twice, not lost.
		t.prepared.ids, t.prepared.mark = *ids, c.recent.mark()
		t.Cached, t.prepared.shared = c.match(&t.prepared.key, *ids, t.Cached)
	} else if c.peers != nil {
		c.chainOf(&t.prepared.key)
	}
}

// KeyOf returns the key of p, which is at hand if t was prepared for p.
func (t *Targets) KeyOf(p *router.Prompt) Key {
	if t.prepared.is {
		return t.prepared.key
	}
	return KeyOf(p)
}

// Release lets go of the prompt for which t was prepared.
func (t *Targets) Release() {
	if t.prepared.is {
		t.prepared = prepared{}
	}
}

// reuse makes t.Cached, as Prepare left it, that of t.IDs, adds the prompts that were
// sent since, and reports whether it could.
func (c *Cache) reuse(t *Targets) bool {
	pre := &t.prepared
	if !slices.Equal(pre.ids, t.IDs) {
		if !t.find(pre.ids) {
			return false
		}
		t.moved = t.moved[:0]
		for _, at := range t.at {
			t.moved = append(t.moved, t.Cached[at])
		}
		t.Cached, t.moved = t.moved, t.Cached
	}
	// Prompts that were sent since may share more of it.
	t.shared, t.matched = pre.shared, c.recent.mark() == pre.mark
	return c.recent.since(pre.mark, func(s *sentText) {
		if s.scope != pre.key.scope {
			return
		}
		n := -1
		for i, id := range t.IDs {
			if id == s.id {
				if n < 0 {
					n = prefix.Common(pre.key.text, s.text)
				}
				t.Cached[i] = max(t.Cached[i], n)
			}
		}
	})
}

// find sets t.at to the places of t.IDs in known, and reports whether all are there.
// They are mostly all of known, or some of them in the same order; then no ID is
// looked at twice.
func (t *Targets) find(known []string) bool {
	t.at = t.at[:0]
	at, steps := 0, 2*len(known)+len(t.IDs)
	for _, id := range t.IDs {
		for ; steps > 0; steps-- {
			if at == len(known) {
				at = 0
			}
			if len(known) > 0 && known[at] == id {
				break
			}
			at++
		}
		if steps <= 0 {
			return false
		}
		t.at = append(t.at, at)
		at++
	}
	return true
}

// maxOffered bounds the IDs that Prepare matches.
const maxOffered = 1024

// learn has Prepare match t.IDs, in addition to those that were offered before: a
// Router over a part of the fleet offers fewer of them.
func (c *Cache) learn(t *Targets) {
	var union []string
	if old := c.offered.Load(); old != nil {
		union = *old
	}
	if len(t.IDs) == 0 || slices.Equal(union, t.IDs) || t.find(union) {
		return
	}
	known := make(map[string]bool, len(union))
	for _, id := range union {
		known[id] = true
	}
	union = slices.Clone(union)
	for _, id := range t.IDs {
		if !known[id] {
			known[id] = true
			union = append(union, id)
		}
	}
	if len(union) > maxOffered {
		union = slices.Clone(t.IDs[:min(len(t.IDs), maxOffered)])
	}
	made := union // not union itself, which would be on the heap for every caller
	c.offered.Store(&made)
}

// recent has the last prompts that were sent, so that a match that was made before
// they were can take them in.
type recent struct {
	count atomic.Uint64 // of add and of lose, ever

	mu   sync.Mutex
	lost uint64 // count after the last change that add does not report
	last [recentTexts]sentText
}

const (
	// recentTexts is more than are sent between Prepare and LookPrepared but under a
	// storm.
	recentTexts = 32
	// recentBytes bounds each, so that all are at most 2 MiB.
	recentBytes = 64 << 10
)

type sentText struct{ scope, text, id string }

// mark returns the present moment, for since.
func (r *recent) mark() uint64 { return r.count.Load() }

// add notes that id was sent a prompt with key k.
func (r *recent) add(k *Key, id string) {
	r.mu.Lock()
	n := r.count.Load()
	if len(k.text) > recentBytes {
		r.lost = n + 1
	} else {
		r.last[n%recentTexts] = sentText{k.scope, k.text, id}
	}
	r.count.Store(n + 1)
	r.mu.Unlock()
}

// lose notes that a target holds less than before.
func (r *recent) lose() {
	r.mu.Lock()
	r.lost = r.count.Load() + 1
	r.count.Store(r.lost)
	r.mu.Unlock()
}

// since calls f with the prompts that were sent after mark, and reports whether these
// are all that has changed.
func (r *recent) since(mark uint64, f func(*sentText)) bool {
	if r.count.Load() == mark {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.count.Load()
	if mark < r.lost || n-mark > recentTexts {
		return false
	}
	for ; mark < n; mark++ {
		f(&r.last[mark%recentTexts])
	}
	return true
}
