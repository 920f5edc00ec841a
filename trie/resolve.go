package trie

import (
	"slices"
	"unsafe"
)

// resolution is what one slice of ids stands for. A look-up of each id costs
// more than the whole descent, and the same slices come again and again.
type resolution struct {
	gen   uint64
	ids   []string // a copy: it keeps the strings alive, so equal headers mean equal strings
	slots []int32  // of each id; -1 for none
	index []int32  // of each slot, its last place in ids; -1 for none
	twice bool     // an id stands there more than once
}

// resolve is called under t.mu.
func (t *Trie) resolve(ids []string) *resolution {
	for i := range t.known {
		if r := t.known[i].Load(); r != nil && r.gen == t.gen && sameHeaders(r.ids, ids) {
			return r
		}
	}
	for i := range t.known { // equal strings at other addresses
		if r := t.known[i].Load(); r != nil && r.gen == t.gen && slices.Equal(r.ids, ids) {
			return r
		}
	}
	r := &resolution{
		gen:   t.gen,
		ids:   slices.Clone(ids),
		slots: make([]int32, len(ids)),
		index: make([]int32, len(t.slots)),
	}
	for i := range r.index {
		r.index[i] = -1
	}
	for i, id := range ids {
		r.slots[i] = -1
		if s, ok := t.ids[id]; ok {
			r.slots[i] = int32(s)
			r.twice = r.twice || r.index[s] >= 0
			r.index[s] = int32(i)
		}
	}
	t.known[t.turn.Add(1)%uint32(len(t.known))].Store(r)
	return r
}

// spread copies what was found to the other places of an id that stands twice.
func (r *resolution) spread(cached []int) {
	if !r.twice {
		return
	}
	for i, s := range r.slots {
		if s >= 0 {
			cached[i] = cached[r.index[s]]
		}
	}
}

// sameHeaders compares addresses and lengths, not what is there.
func sameHeaders(a, b []string) bool {
	return len(a) == len(b) && headers(a) == headers(b)
}

func headers(s []string) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof("")))
}
