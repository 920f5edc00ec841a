package leastwork

import (
	"slices"
	"sync"
	"sync/atomic"
)

// hold is the context that one target's requests in flight hold, as far as they
// went through this strategy and their prompts were understood.
type hold struct{ requests, tokens atomic.Int64 }

// holds has the hold of each target that has one. The zero holds is empty.
type holds struct {
	mu   sync.RWMutex
	by   map[string]*hold
	turn uint64 // moves when by does
}

// room for holds: more are made only when all of them are in use.
const spareHolds = 4096

// add counts a request of so many tokens at the target and returns its hold.
func (h *holds) add(id string, tokens int64) *hold {
	h.mu.RLock()
	k := h.by[id]
	if k != nil {
		k.requests.Add(1) // under the lock: who sweeps must see it
	}
	h.mu.RUnlock()
	if k == nil {
		h.mu.Lock()
		if k = h.by[id]; k == nil {
			k = h.make(id)
		}
		k.requests.Add(1)
		h.mu.Unlock()
	}
	k.tokens.Add(tokens)
	return k
}

func (h *holds) make(id string) *hold {
	if h.by == nil {
		h.by = make(map[string]*hold)
	}
	if len(h.by) >= spareHolds {
		for id, k := range h.by {
			if k.requests.Load() == 0 {
				delete(h.by, id)
			}
		}
	}
	k := new(hold)
	h.by[id] = k
	h.turn++
	return k
}

// end takes a request off again.
func (k *hold) end(tokens int64) {
	k.tokens.Add(-tokens)
	k.requests.Add(-1)
}

// forget lets the target begin anew; what was counted ends unseen.
func (h *holds) forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.by[id]; ok {
		delete(h.by, id)
		h.turn++
	}
}

// found is what find returned last, so that the same targets are not looked up
// again one by one.
type found struct {
	ids   []string
	holds []*hold
	turn  uint64
}

// find sets f.holds to the holds of ids, nil for none.
func (h *holds) find(ids []string, f *found) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if f.holds != nil && f.turn == h.turn && slices.Equal(f.ids, ids) {
		return
	}
	f.turn = h.turn
	f.ids = append(f.ids[:0], ids...)
	f.holds = slices.Grow(f.holds[:0], len(ids))[:len(ids)]
	for i, id := range ids {
		f.holds[i] = h.by[id]
	}
}
