package router

import (
	"errors"
	"time"
)

// minLook is the shortest wait before the fleet is looked at again because time
// alone may have made a target Ready.
const minLook = time.Millisecond

// chooseOrWait is choose, again and again for as long as Options.Wait, or attempt.wait, if nothing can
// be picked. It returns how long it waited, too.
func (l *Lease) chooseOrWait(pick func([]Target) (Decision, error)) (Decision, Flight, time.Duration, error) {
	if q := l.router.opts.Queue; q != nil && !l.attempt.assigned {
		return l.chooseOrQueue(q, pick)
	}
	return l.chooseOrLook(pick)
}

// patience returns how long the attempt waits for a target that is neither Ready nor Full.
func (l *Lease) patience() time.Duration {
	if l.attempt.n > 1 {
		return l.attempt.wait
	}
	return l.router.opts.Wait
}

// chooseOrLook is chooseOrWait without a Queue.
func (l *Lease) chooseOrLook(pick func([]Target) (Decision, error)) (Decision, Flight, time.Duration, error) {
	most := l.patience()
	if most <= 0 || l.attempt.assigned {
		d, f, err := l.choose(pick)
		return d, f, 0, err
	}
	fleet, _ := l.router.fleet.(ChangeNotifier)
	var start time.Time // of the wait
	var waited time.Duration
	for {
		// The channel first: a change between Choose and the wait closes it.
		var changed <-chan struct{}
		if fleet != nil {
			changed = fleet.Changed()
		}
		d, f, err := l.choose(pick)
		var none *NoTargetError
		if err == nil || !errors.As(err, &none) {
			return d, f, waited, err
		}
		now := time.Now()
		if start.IsZero() {
			start = now
		}
		again := start.Add(most).Sub(now)
		if none.RetryAfter > 0 {
			again = min(again, max(none.RetryAfter, minLook))
		}
		if again <= 0 || changed == nil && none.RetryAfter <= 0 || l.ctx.Err() != nil {
			return d, f, waited, err
		}
		timer := time.NewTimer(again)
		select {
		case <-changed:
		case <-timer.C:
		case <-l.ctx.Done():
		}
		timer.Stop()
		waited = time.Since(start)
	}
}
