package sim

import "slices"

// slotFor reports whether there is a slot for the adapter of s: it is loaded, or a slot is free, or an adapter without
// a request in the batch has one.
func (e *engine) slotFor(s *seq) bool {
	if e.slots == 0 || s.adapter == "" || slices.Contains(e.loaded, s.adapter) || len(e.loaded) < e.slots {
		return true
	}
	return e.evictable() >= 0
}

// evictable returns the index of the adapter to evict, -1 if all are in use.
func (e *engine) evictable() int {
	return slices.IndexFunc(e.loaded, func(name string) bool {
		return !slices.ContainsFunc(e.running, func(r *seq) bool { return r.adapter == name })
	})
}

// use makes the adapter of s the one used latest, and returns the time of its load.
func (e *engine) use(s *seq) (cost instant) {
	if e.slots == 0 || s.adapter == "" {
		return 0
	}
	if i := slices.Index(e.loaded, s.adapter); i >= 0 {
		e.loaded = slices.Delete(e.loaded, i, i+1)
	} else {
		if len(e.loaded) == e.slots {
			// s itself is in the batch by now, if not its adapter.
			i := e.evictable()
			e.loaded = slices.Delete(e.loaded, i, i+1)
		}
		e.loads++
		cost = e.toLoad
	}
	e.loaded = append(e.loaded, s.adapter)
	return cost
}

// touch makes the adapter of s, if it has one, the one used latest.
func (e *engine) touch(s *seq) {
	if i := slices.Index(e.loaded, s.adapter); i >= 0 {
		e.loaded = append(slices.Delete(e.loaded, i, i+1), s.adapter)
	}
}

// adapters is Env.Adapters.
func (f *fleet) adapters(id string) (running, waiting []string) {
	if i := slices.Index(f.ids, id); i >= 0 {
		return f.engines[i].adapters()
	}
	return nil, nil
}

// adapters returns those that have requests in the batch, and those that have others.
func (e *engine) adapters() (running, waiting []string) {
	for _, s := range e.running {
		if s.adapter != "" && !slices.Contains(running, s.adapter) {
			running = append(running, s.adapter)
		}
	}
	for _, s := range e.waiting.items[e.waiting.from:] {
		if s.adapter != "" && !slices.Contains(waiting, s.adapter) {
			waiting = append(waiting, s.adapter)
		}
	}
	return running, waiting
}

// LeastLoads returns a bound from below on the loads of a fleet with so many slots in all, whatever routes the requests
// of w in their order: one cache of all slots, which any replica could use, evicts the adapter that is used again the
// latest (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966).
func LeastLoads(adapters []string, slots int) (loads int) {
	next := make([]int, len(adapters)) // the next use of the same
	last := map[string]int{}
	for i := len(adapters) - 1; i >= 0; i-- {
		next[i] = len(adapters)
		if n, ok := last[adapters[i]]; ok {
			next[i] = n
		}
		last[adapters[i]] = i
	}
	held := map[string]int{} // to its next use
	for i, a := range adapters {
		if _, ok := held[a]; !ok {
			loads++
			if len(held) == slots {
				latest := ""
				for h, n := range held {
					if latest == "" || n > held[latest] || n == held[latest] && h < latest {
						latest = h
					}
				}
				delete(held, latest)
			}
		}
		held[a] = next[i]
	}
	return loads
}
