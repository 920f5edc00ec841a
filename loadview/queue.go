package loadview

import (
	"fmt"
	"time"
)

// SetQueued reports the requests at the member's engine beyond those of this
// process. Negative: unknown, as it is for a new member. In place of an unknown
// number stands the mean of those that are known, 0 if none is. A report stands
// until the next one; Snapshot has its age. It is for callers with a source of
// their own: for members with a Metrics URL Run reports.
func (v *View) SetQueued(id string, n int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.byID[id]
	if m == nil {
		return fmt.Errorf("%w: SetQueued of %q", ErrUnknown, id)
	}
	m.peers.reported(m.peers.inFlight())
	v.putQueued(m, int64(n), 0)
	return nil
}

// putQueued notes a report, which stands until stale; 0: until the next one.
func (p *pool) putQueued(m *member, n int64, stale time.Duration) {
	m.set(queueUnknown, n < 0)
	m.stale.Store(int64(stale))
	if n >= 0 {
		m.queued.Store(min(n, maxQueued))
		m.reported.Store(int64(p.now()))
	}
	if stale != 0 {
		p.watch(stale)
	}
	p.spreadQueued()
}

// maxQueued bounds one report, so that no sum of them overflows.
const maxQueued int64 = 1 << 40

// spreadQueued gives the members with an unknown queue the mean of the others,
// to the nearest, and offers all.
func (p *pool) spreadQueued() {
	var sum, n, mean int64
	for _, m := range p.members {
		if !m.has(queueUnknown) {
			sum += m.peers.beyond(m.queued.Load())
			n++
		}
	}
	mean = meanQueued(sum, n)
	for _, m := range p.members {
		if m.has(queueUnknown) {
			m.peers.reported(0)
			m.queued.Store(mean)
		}
		p.putLoad(m)
	}
}

// meanQueued returns the mean that stands in for an unknown queue.
func meanQueued(sum, n int64) int64 {
	if n == 0 {
		return 0
	}
	return (sum + n/2) / n
}
