package admission

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/warmroute/router"
)

// line has the requests for one model that wait. All is guarded by the Queue's mu.
type line struct {
	queue  *Queue
	model  string
	bands  []*band // by priority, the highest first
	count  int
	begun  time.Time
	wake   chan struct{}     // of capacity 1
	round  uint64            // the tries for one event
	none   map[string]uint64 // the last round in which there was no place for an account
	anys   map[string]int    // requests that may go anywhere, by account
	picky  int               // those that may not
	aged   bool              // the last place went to one that had waited for long
	served [32]time.Time     // when the last ones were served, a ring
	n      uint64            // of those that were served
}

// waiter is a request that waits.
type waiter struct {
	*router.Waiting
	class      Class
	line       *line
	bytes      int64
	begun      time.Time // of this wait
	tried      uint64    // the round in which no target had a place for it
	pinned     bool      // Try or Peek runs
	quit       string    // the cause of its end, once it is not pinned
	ended      bool
	done       chan struct{} // closed when it has ended; what follows is set then
	cause      string
	waited     time.Duration
	retryAfter time.Duration
	panicked   any
}

// lookAgain is the longest time after which a line tries again, because a place may be
// free for a reason that nobody reports.
const lookAgain = 100 * time.Millisecond

// minLook is the shortest.
const minLook = time.Millisecond

func newLine(q *Queue, model string) *line {
	return &line{queue: q, model: model, begun: q.now(), wake: make(chan struct{}, 1), none: map[string]uint64{},
		anys: map[string]int{}}
}

// wakeUp has the line look for a place.
func (n *line) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// add puts w behind those of its tenant that came before it.
func (n *line) add(w *waiter) {
	i, ok := slices.BinarySearchFunc(n.bands, w.class.Priority, func(b *band, p int) int { return p - b.priority })
	if !ok {
		n.bands = slices.Insert(n.bands, i, &band{priority: w.class.Priority, byName: map[string]*tenant{}})
	}
	b := n.bands[i]
	t := b.byName[w.class.Tenant]
	if t == nil {
		b.forget()
		t = new(tenant)
		b.byName[w.class.Tenant] = t
	}
	t.class = w.class
	if len(t.waiters) == 0 {
		b.active = append(b.active, t)
	}
	at := len(t.waiters)
	for at > 0 && t.waiters[at-1].Since.After(w.Since) {
		at--
	}
	t.waiters = slices.Insert(t.waiters, at, w)
	t.bytes += w.bytes
	n.count++
	if w.Any {
		n.anys[w.Prompt.Account]++
	} else {
		n.picky++
	}
}

// remove takes w out.
func (n *line) remove(w *waiter) {
	for _, b := range n.bands {
		if b.priority != w.class.Priority {
			continue
		}
		t := b.byName[w.class.Tenant]
		i := slices.Index(t.waiters, w)
		t.waiters = slices.Delete(t.waiters, i, i+1)
		t.bytes -= w.bytes
		if len(t.waiters) == 0 {
			t.visited = false
			t.deficit = min(t.deficit, 0) // a debt stays, a right does not
			at := slices.Index(b.active, t)
			b.active = slices.Delete(b.active, at, at+1)
		}
	}
	n.count--
	switch a := w.Prompt.Account; {
	case !w.Any:
		n.picky--
	case n.anys[a] == 1:
		delete(n.anys, a)
	default:
		n.anys[a]--
	}
}

// run serves the line until it is empty.
func (n *line) run() {
	empty := false
	defer func() {
		if !empty { // runtime.Goexit of a Try
			go n.run()
		}
	}()
	for {
		var again router.Again
		if again, empty = n.serve(); empty {
			return
		}
		wait := lookAgain
		if again.After > 0 {
			wait = max(min(wait, again.After), minLook)
		}
		timer := time.NewTimer(wait)
		select {
		case <-n.wake:
		case <-again.Changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// serve tries requests until none has a place, and reports whether none is left: then
// the line is no more.
func (n *line) serve() (again router.Again, empty bool) {
	q := n.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n.round++
	for failed := 0; failed < q.cfg.Load().Lookahead; {
		var w *waiter
		if failed == 0 {
			w = n.next()
		} else {
			w = n.other()
		}
		if w == nil {
			break
		}
		var wait bool
		var look router.Again
		n.unlocked(w, func() { look, wait = w.Try() })
		switch {
		case w.ended:
			continue
		case !wait && w.Decision.Target.ID != "":
			n.aged = !n.aged && w.class.Priority < n.bands[n.top()].priority
			n.charge(w)
			q.end(w, Served)
			continue
		case !wait:
			q.end(w, Ended)
			continue
		}
		again = look
		failed++
		if w.tried = n.round; w.Any {
			n.nowhere(w.Prompt.Account)
		}
		if w.quit != "" {
			q.end(w, w.quit)
		}
		select {
		case <-n.wake: // from the beginning, so that nobody gets a place out of turn
			n.round++
			failed = 0
		default:
		}
	}
	if n.count == 0 {
		delete(q.lines, n.model)
		return again, true
	}
	return again, false
}

// unlocked calls f, a part of w's, without the lock. If f panics, or does not return,
// w has ended.
func (n *line) unlocked(w *waiter, f func()) {
	w.pinned = true
	n.queue.mu.Unlock()
	returned := false
	defer func() {
		p := recover()
		n.queue.mu.Lock()
		w.pinned = false
		if !returned {
			w.panicked = cmp.Or[any](p, errNoReturn)
			n.queue.end(w, Ended)
		}
	}()
	f()
	returned = true
}

var errNoReturn = errors.New("admission: Try, or Peek, did not return")

// nowhere notes that no target has a place for requests of the account in this round.
func (n *line) nowhere(account string) {
	if len(n.none) > maxIdle {
		clear(n.none)
	}
	n.none[account] = n.round
}

// charge has w's tenant pay for it.
func (n *line) charge(w *waiter) {
	for _, b := range n.bands {
		if b.priority == w.class.Priority {
			b.byName[w.class.Tenant].deficit -= n.queue.cost(w)
		}
	}
	n.served[n.n%uint64(len(n.served))] = n.queue.now()
	n.n++
}

// next returns the request that is next in turn, nil if none is left to try.
func (n *line) next() *waiter {
	if len(n.bands) == 0 || n.count == 0 {
		return nil
	}
	top := n.top()
	aging := n.queue.cfg.Load().Aging
	if w := n.oldest(n.bands[top+1:], aging); w != nil && aging >= 0 && !n.aged {
		return w
	}
	return n.of(n.bands[top].turn(float64(n.queue.cfg.Load().Quantum)))
}

// top returns the index of the highest priority with requests. There are some.
func (n *line) top() int {
	return slices.IndexFunc(n.bands, func(b *band) bool { return len(b.active) > 0 })
}

// other returns a request that may go to other targets than those that have been tried
// in this round, nil if there is none. Turns stay as they are.
func (n *line) other() *waiter {
	if n.allHopeless() {
		return nil
	}
	for i := range n.bands {
		if w := n.oldest(n.bands[i:i+1], 0); w != nil {
			return w
		}
	}
	return nil
}

// hopeless reports whether there is no place for w in this round.
func (n *line) hopeless(w *waiter) bool {
	return w.tried == n.round || w.Any && n.none[w.Prompt.Account] == n.round
}

// allHopeless reports whether there is no place for any request in this round, without
// a look at each.
func (n *line) allHopeless() bool {
	if n.picky > 0 {
		return false
	}
	for account := range n.anys {
		if n.none[account] != n.round {
			return false
		}
	}
	return true
}

// oldest returns the request of bands that has waited longest, and for that long, of
// those that are not hopeless.
func (n *line) oldest(bands []*band, long time.Duration) (w *waiter) {
	before := n.queue.now().Add(-long)
	for _, b := range bands {
		for _, t := range b.active {
			i := slices.IndexFunc(t.waiters, func(x *waiter) bool { return !n.hopeless(x) })
			if i < 0 {
				continue
			}
			if x := t.waiters[i]; !x.Since.After(before) && (w == nil || x.Since.Before(w.Since)) {
				w = x
			}
		}
	}
	return w
}

// of returns the request of t that is next in turn: the oldest, or by Config.CachedFirst
// the one with the longest cached prefix.
func (n *line) of(t *tenant) *waiter {
	first, cfg := t.waiters[0], n.queue.cfg.Load()
	if cfg.CachedFirst == 0 || n.queue.now().Sub(first.Since) >= cfg.CachedFirst || len(t.waiters) == 1 {
		return first
	}
	best, most := first, 0
	for _, w := range slices.Clone(t.waiters[:min(len(t.waiters), cfg.Lookahead)]) {
		if w.ended {
			continue
		}
		cached := 0
		n.unlocked(w, func() { cached = w.Peek() })
		switch {
		case w.ended:
		case w.quit != "":
			n.queue.end(w, w.quit)
		case cached > most:
			best, most = w, cached
		}
	}
	if best.ended { // while another one was looked at
		return n.next()
	}
	return best
}

// expect returns when a place is to be expected for a request that is shed, and is still
// counted: the time that those which wait take, at the rate at which the last ones were
// served. If none was served, it is the time for which that has been so.
func (n *line) expect() time.Duration {
	have := min(n.n, uint64(len(n.served)))
	if have == 0 {
		nobody := n.queue.now().Sub(n.begun)
		return max(min(nobody, n.queue.cfg.Load().MaxWait, maxRetryAfter), time.Second)
	}
	since := n.queue.now().Sub(n.served[(n.n-have)%uint64(len(n.served))])
	each := since / time.Duration(have)
	return max(min(time.Duration(n.count)*each, maxRetryAfter), time.Second)
}
