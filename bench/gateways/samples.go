package main

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// samples keeps a fair part of many times. The zero samples is empty; it is safe for concurrent use.
type samples struct {
	mu   sync.Mutex
	seen int
	kept []uint32 // microseconds
}

const maxSamples = 20_000

// add adds a time in microseconds.
func (s *samples) add(micros int64) {
	v := uint32(min(max(micros, 0), 1<<32-1))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if len(s.kept) < maxSamples {
		s.kept = append(s.kept, v)
	} else if i := rand.IntN(s.seen); i < maxSamples {
		s.kept[i] = v
	}
}

func (s *samples) all() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// quantile returns the value below which the share q of vs is, 0 of none.
func quantile(vs []uint32, q float64) time.Duration {
	if len(vs) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(vs))
	return time.Duration(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) * time.Microsecond
}
