package sim

import "slices"

// queue is the requests that wait, first come first.
type queue struct {
	items []*seq
	from  int
}

func (q *queue) len() int    { return len(q.items) - q.from }
func (q *queue) front() *seq { return q.items[q.from] }
func (q *queue) push(s *seq) { q.items = append(q.items, s) }

func (q *queue) pop() {
	q.items[q.from] = nil
	q.from++
	if q.from > 64 && q.from > len(q.items)/2 {
		n := copy(q.items, q.items[q.from:])
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
}

// unpop puts s ahead of all others.
func (q *queue) unpop(s *seq) {
	if q.from == 0 {
		q.items = slices.Insert(q.items, 0, s)
		return
	}
	q.from--
	q.items[q.from] = s
}
