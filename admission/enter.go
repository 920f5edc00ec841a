package admission

import (
	"context"
	"time"

	"github.com/warmroute/router"
)

// waiter returns r as a waiter that is not in its line yet.
func (q *Queue) waiter(ctx context.Context, r *router.Waiting) *waiter {
	class := q.cfg.Load().Class(ctx, r.Prompt)
	class.Tenant = class.Tenant[:min(len(class.Tenant), maxName)]
	class.Priority = max(min(class.Priority, maxPriority), -maxPriority)
	if w := &class.Weight; !(*w > 0) {
		*w = 1
	} else {
		*w = max(min(*w, 100), 0.01)
	}
	w := &waiter{Waiting: r, class: class, begun: q.now(), done: make(chan struct{}),
		bytes: int64(len(r.Prompt.Text)) + 4*int64(len(r.Prompt.Tokens))}
	if w.Since.IsZero() || w.Since.After(w.begun) {
		w.Since = w.begun
	}
	if f := q.cfg.Load().Trace.Entered; f != nil {
		f(ctx, r.Prompt, class)
	}
	return w
}

// result returns the result of Wait for w, which has ended.
func (q *Queue) result(ctx context.Context, w *waiter) error {
	if f := q.cfg.Load().Trace.Left; f != nil {
		f(ctx, w.Prompt, w.class, w.waited, w.cause)
	}
	switch {
	case w.panicked != nil:
		panic(w.panicked) // of Try, in the goroutine of the request
	case w.cause == Served, w.cause == Ended:
		return nil
	case w.cause == Canceled:
		return context.Cause(ctx)
	}
	return &router.NoTargetError{Shed: w.cause, Waited: w.waited, RetryAfter: w.retryAfter}
}

const (
	maxName     = 256
	maxPriority = 100
	// maxRetryAfter bounds the time until a place is to be expected.
	maxRetryAfter = 5 * time.Minute
)

// enter puts w into its line, and sheds others if the Queue is full.
func (q *Queue) enter(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines[w.Prompt.Model]
	if n == nil {
		n = newLine(q, w.Prompt.Model)
		q.lines[n.model] = n
		defer func() {
			switch {
			case n.count == 0:
				delete(q.lines, n.model)
			case q.ended == nil:
				go n.run()
			}
		}()
	}
	w.line = n
	n.add(w)
	q.bytes += w.bytes
	q.waiting.Add(1)
	for q.waiting.Load() > int64(q.cfg.Load().MaxWaiting) || q.bytes > q.cfg.Load().MaxBytes {
		cause := TooMany
		if q.bytes > q.cfg.Load().MaxBytes {
			cause = TooLarge
		}
		v := q.victim(w, cause)
		q.end(v, cause)
		if v == w {
			return
		}
	}
	n.wakeUp()
}

// victim returns the request to shed so that the bounds hold with w: of the lowest
// priority, of the tenant that has the most requests, or bytes, the newest one. It is
// w itself if none is of a lower priority, or of a tenant with more.
func (q *Queue) victim(w *waiter, cause string) *waiter {
	var worst *tenant
	for _, n := range q.lines {
		for _, b := range n.bands { // the lowest is last
			for _, t := range b.active {
				if t.newest() == nil {
					continue
				}
				if worst == nil || t.class.Priority < worst.class.Priority ||
					t.class.Priority == worst.class.Priority && t.holds(cause) > worst.holds(cause) {
					worst = t
				}
			}
		}
	}
	if worst == nil || worst.class.Priority > w.class.Priority {
		return w
	}
	return worst.newest()
}

// giveUp ends w for the given cause, unless it has ended. If w is being tried just
// now, the end of that is waited for.
func (q *Queue) giveUp(w *waiter, cause string) {
	q.mu.Lock()
	if !w.ended && !w.pinned {
		q.end(w, cause)
	}
	if !w.ended {
		w.quit = cause
	}
	q.mu.Unlock()
	<-w.done
}

// end takes w out and lets its goroutine go on. q.mu is held.
func (q *Queue) end(w *waiter, cause string) {
	n := w.line
	w.ended, w.cause, w.waited = true, cause, q.now().Sub(w.begun)
	if cause != Served && cause != Ended && cause != Canceled {
		w.retryAfter = n.expect()
	}
	n.remove(w)
	q.bytes -= w.bytes
	q.waiting.Add(-1)
	q.stats.Left[cause]++
	q.stats.Waited += w.waited
	close(w.done)
	if q.ended != nil {
		q.ended(w)
	}
	if n.count == 0 {
		n.wakeUp() // its goroutine ends
	}
}

// minPrice is the least that a request costs, in tokens: its reply takes time too. Without
// it, a quantum would pay for thousands of short prompts in a row.
const minPrice = 256

// cost returns the price in tokens of w, which was served. Four bytes count as a token.
// Strategies that do not match prompts give no length: then the prompt itself has it.
func (q *Queue) cost(w *waiter) float64 {
	d := w.Decision
	length, cached := float64(max(d.Length, 0)), float64(max(min(d.Cached, d.Length), 0))
	if d.Unit == router.Bytes {
		length, cached = length/4, cached/4
	}
	if length == 0 {
		length = float64(w.bytes) / 4
	}
	return max(length-cached+cached*max(q.cfg.Load().CachedPrice, 0), minPrice)
}
