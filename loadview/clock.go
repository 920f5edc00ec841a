package loadview

import (
	"sync/atomic"
	"time"
)

// clock counts the time since it was made. It never goes back, whatever now
// returns.
type clock struct {
	now   func() time.Time
	base  time.Time
	last  atomic.Int64 // the latest that was returned
	shift atomic.Int64 // added to now, for the times that it was set back
}

// setBack is the least step backwards that counts as a clock that was set. Two
// goroutines that ask at once may get their answers in the opposite order.
const setBack = int64(time.Second)

func newClock(now func() time.Time) *clock { return &clock{now: now, base: now()} }

// since returns the time since the clock was made. It is never negative, so that
// a deadline, which is later, is never 0.
func (c *clock) since() time.Duration {
	shift := c.shift.Load()
	d := int64(c.now().Sub(c.base)) + shift
	for {
		last := c.last.Load()
		switch {
		case d <= last-setBack:
			c.shift.CompareAndSwap(shift, shift+last-d)
			return time.Duration(last)
		case d <= last:
			return time.Duration(last)
		case c.last.CompareAndSwap(last, d):
			return time.Duration(d)
		}
	}
}
