package router

import (
	"math"
	"testing"
	"time"
)

// No setting makes a wait negative, shorter than a half of the backoff, or longer
// than its bound, however many attempts there were.
func TestWaitExtremes(t *testing.T) {
	for _, o := range []Options{
		{},
		{Backoff: math.MaxInt64, MaxBackoff: math.MaxInt64},
		{Backoff: 1 << 62, MaxBackoff: math.MaxInt64},
		{Backoff: 1<<61 + 1, MaxBackoff: math.MaxInt64},
		{Backoff: math.MaxInt64},
		{Backoff: time.Hour, MaxBackoff: time.Second},
		{Backoff: 1, MaxBackoff: 1},
		{Backoff: 1, MaxBackoff: math.MaxInt64},
		{Backoff: 3, MaxBackoff: 7},
	} {
		o = o.WithDefaults()
		for _, n := range []uint64{0, 1, math.MaxUint64, 1 << 63} {
			o.Rand = func() uint64 { return n }
			for _, attempt := range []int{1, 2, 3, 62, 63, 64, 65, 1000, math.MaxInt} {
				got := o.backoff(attempt)
				// The exact backoff, in floating point.
				b := min(float64(o.Backoff)*math.Exp2(float64(attempt-1)), float64(o.MaxBackoff))
				if f := float64(got); f < b/2-1 || f > b+1 || got > o.MaxBackoff {
					t.Errorf("%v up to %v: attempt %d waits %v", o.Backoff, o.MaxBackoff, attempt, got)
				}
			}
		}
	}
}
