package adapters

import (
	"time"
)

const (
	leastWork  = 64 // tokens of a request that is timed
	leastWarm  = 8  // requests with a loaded adapter, before loads are timed
	leastLoads = 3
	// mostTokens bounds the cost of a load.
	mostTokens = 1 << 22
)

// timing measures a load: the time that a first use takes beyond what its tokens take elsewhere.
type timing struct {
	warm  ring // seconds for each token
	loads ring // tokens
}

// add takes in the time to the first token of a request with so much work.
func (t *timing) add(d time.Duration, work float64, first, warm bool) {
	switch {
	case warm && work >= leastWork && d > 0:
		t.warm.add(d.Seconds() / work)
	case first && t.warm.n >= leastWarm && d > 0:
		t.loads.add(min(max(d.Seconds()/t.warm.median()-work, 0), mostTokens))
	}
}

// ring has the latest of some numbers.
type ring struct {
	values [32]float64
	n, at  int
}

func (r *ring) add(v float64) {
	r.values[r.at] = v
	r.at = (r.at + 1) % len(r.values)
	r.n = min(r.n+1, len(r.values))
}

func (r *ring) median() float64 {
	if r.n == 0 {
		return 0
	}
	vs := r.values
	for i := 1; i < r.n; i++ { // few: a sort of floats would be the only one of most programs, and 5 KB of them
		for j := i; j > 0 && vs[j-1] > vs[j]; j-- {
			vs[j-1], vs[j] = vs[j], vs[j-1]
		}
	}
	return vs[r.n/2]
}

// loadTokens returns the cost of a load.
func (s *Slots) loadTokens() float64 {
	if s.timing.loads.n < leastLoads {
		return s.cfg.LoadTokens
	}
	return max(s.timing.loads.median(), 1)
}
