package sim

import (
	"cmp"
	"slices"
)

// grant is a block taken (before step) or named (after step) for running[index].
type grant struct {
	step, index int32
	name        bool
}

// row returns how many steps of decode can follow each other before anything else
// may happen, and notes the blocks that they take.
func (e *engine) row() int {
	size := e.cal.BlockSize
	m := maxRow
	for _, s := range e.running {
		m = min(m, s.output-s.made)
		if e.waiting.len() > 0 {
			// The head of the queue looks at the blocks before each step. That the
			// present state does not let it in holds until a block is taken or named.
			m = min(m, len(s.blocks)*size-s.have)
		}
	}
	if e.waiting.len() > 0 {
		return m
	}
	for {
		e.grants = e.grants[:0]
		takes := 0
		for i, s := range e.running {
			// Step k brings s to have+k tokens.
			for full := len(s.blocks) * size; full-s.have < m; full += size {
				e.grants = append(e.grants, grant{step: int32(full - s.have + 1), index: int32(i)})
				takes++
			}
		}
		if takes <= e.pool.free {
			break
		}
		// The last step that can still be served: before the take that fails.
		slices.SortFunc(e.grants, grant.compare)
		m = int(e.grants[e.pool.free].step) - 1
	}
	return m
}

// maxRow bounds a row, and with it the products in its time.
const maxRow = 4096

func (g grant) compare(h grant) int {
	if c := cmp.Compare(g.step, h.step); c != 0 {
		return c
	}
	if g.name != h.name {
		if h.name {
			return -1
		}
		return 1
	}
	return cmp.Compare(g.index, h.index)
}

// cut ends the row of decode steps with the first one that ends at now or later.
func (e *engine) cut(now instant) {
	n, tokens := e.decoding()
	lo, hi := 1, e.steps // the least m with an end not before now
	for lo < hi {
		m := (lo + hi) / 2
		if e.start+e.taken.decode(m, n, tokens) >= now {
			hi = m
		} else {
			lo = m + 1
		}
	}
	if lo == e.steps {
		return
	}
	e.steps = lo
	e.end = e.start + e.taken.decode(lo, n, tokens)
	e.epoch++
}

// decoding returns how many requests decode and the tokens that they hold. In a
// row of decode steps all do.
func (e *engine) decoding() (n, tokens int) {
	for _, s := range e.running {
		tokens += s.have
	}
	return len(e.running), tokens
}

// advance applies m steps of decode.
func (e *engine) advance(m int) {
	size := e.cal.BlockSize
	e.grants = e.grants[:0]
	for i, s := range e.running {
		for full := len(s.blocks) * size; full-s.have < m; full += size {
			e.grants = append(e.grants, grant{step: int32(full - s.have + 1), index: int32(i)})
		}
		for b := s.named; b < len(s.hashes) && (b+1)*size <= s.have+m; b++ {
			e.grants = append(e.grants, grant{step: int32((b+1)*size - s.have), index: int32(i), name: true})
		}
	}
	if len(e.grants) > 1 {
		slices.SortFunc(e.grants, grant.compare)
	}
	for _, g := range e.grants {
		s := e.running[g.index]
		if !g.name {
			s.blocks = append(s.blocks, e.pool.take())
			continue
		}
		e.name(s, s.named)
		s.named++
	}
	for _, s := range e.running {
		s.have += m
		s.made += m
		e.decoded += m
	}
}
