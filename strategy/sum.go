package strategy

import (
	"math"
	"math/bits"
)

// Sum adds numbers from 0 to 2^41 in steps of 2^-20, so that the order of the summands does not matter. The zero Sum
// is 0.
type Sum struct{ hi, lo uint64 }

const sumStep = 1 << 20

// Add adds x. A negative x and NaN count as 0, one above 2^41 counts as 2^41.
func (s *Sum) Add(x float64) {
	if !(x > 0) {
		return
	}
	y := min(x, float64(2*maxRequests)) * sumStep
	q := uint64(y)
	if y-float64(q) >= 0.5 { // math.Round, in less time
		q++
	}
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, q, 0)
	s.hi += carry
}

// Float returns the sum.
func (s *Sum) Float() float64 {
	return (math.Ldexp(float64(s.hi), 64) + float64(s.lo)) / sumStep
}
