package trie

// resolution is the resolved form of one slice of ids. A look-up of each id
// costs more than the whole descent, and the same slices come again and again.
type resolution struct {
	slots []int32 // of each id; -1 for none
	index []int32 // of each slot, its last place in ids; -1 for none
	twice bool    // an id stands there more than once
}

// resolve is called under t.mu.
func (t *Trie) resolve(ids []string) *resolution {
	if r := t.known.Get(t.gen, ids); r != nil {
		return r
	}
	r := resolution{slots: make([]int32, len(ids)), index: make([]int32, len(t.slots))}
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
	return t.known.Put(t.gen, ids, r)
}

// spread copies the result to the other places of a repeated id.
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
