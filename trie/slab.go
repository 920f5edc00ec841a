package trie

// slab keeps values of a type without pointers in chunks that never move, and
// names them by index. Index 0 is none.
type slab[T any] struct {
	chunks []*[chunk]T
	free   []uint32
	next   uint32
	used   int
}

const chunk = 1 << 10

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/chunk][i%chunk] }

// alloc returns a zero value and its index.
func (s *slab[T]) alloc() (uint32, *T) {
	s.used++
	if k := len(s.free); k > 0 {
		i := s.free[k-1]
		s.free = s.free[:k-1]
		return i, s.at(i)
	}
	s.next++
	if int(s.next/chunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunk]T))
	}
	return s.next, s.at(s.next)
}

func (s *slab[T]) release(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
	s.used--
}
