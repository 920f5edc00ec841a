package main

import (
	"runtime"
	"slices"
	"time"
)

// quantile returns the q-th quantile of sorted samples.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// samples are the durations of single calls.
type samples struct {
	d     []time.Duration
	clock time.Duration // the cost of reading the clock twice, subtracted from each
}

func newSamples(n int) *samples {
	s := &samples{d: make([]time.Duration, 0, n)}
	for range 1000 {
		start := time.Now()
		s.d = append(s.d, time.Since(start))
	}
	slices.Sort(s.d)
	s.clock = s.d[len(s.d)/2]
	s.d = s.d[:0]
	return s
}

func (s *samples) add(d time.Duration) { s.d = append(s.d, max(0, d-s.clock)) }

// p sorts the samples and returns the q-th quantile.
func (s *samples) p(q float64) time.Duration {
	slices.Sort(s.d)
	return quantile(s.d, q)
}

func (s *samples) mean() time.Duration {
	var sum time.Duration
	for _, d := range s.d {
		sum += d
	}
	return sum / time.Duration(max(1, len(s.d)))
}

// pass times call(i) for each i below n on its own.
func pass(n int, call func(i int)) *samples {
	s := newSamples(n)
	for i := range n {
		start := time.Now()
		call(i)
		s.add(time.Since(start))
	}
	return s
}

// best runs each of several measurements by turns, reps times over, and returns
// the least p50 of each: on a machine that others use too, the least disturbed
// one says most.
func best(reps int, measures ...func() time.Duration) []time.Duration {
	out := make([]time.Duration, len(measures))
	for rep := range reps {
		for i, m := range measures {
			if d := m(); rep == 0 || d < out[i] {
				out[i] = d
			}
		}
	}
	return out
}

// mallocs returns the allocations that n calls of call make, each.
func mallocs(n int, call func(i int)) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		call(i)
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

// heap returns the heap's objects and its spans in use after a collection.
func heap() (alloc, inuse uint64) {
	var m runtime.MemStats
	for range 3 { // finalizers and sync.Pools let go in steps
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapInuse
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(1, b)) }
