package main

import (
	"fmt"
	"sync"
	"time"
)

// ledger has the faults that may break a reply that has begun, or leave a request
// without one, by the time in which they count. Every other loss is the gateway's:
// a replica that could have served the request was there, since those that stay are
// spoiled one at a time.
type ledger struct {
	mu   sync.Mutex
	list []entry // the oldest first
}

type entry struct {
	member   string // "": all of them
	from, to time.Time
}

// late is how long an end counts after its fault did, as clients and processes wait
// for the processor.
const late = 2 * time.Second

// breaks notes that the replies of member may break off from now on, for lasts.
func (l *ledger) breaks(member string, lasts time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	kept := l.list[:0]
	for _, e := range l.list {
		if now.Sub(e.to) < time.Minute {
			kept = append(kept, e)
		}
	}
	l.list = append(kept, entry{member, now, now.Add(lasts + late)})
}

// excuses reports whether a fault of member, or of all, fell into the time of a request.
func (l *ledger) excuses(member string, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if (e.member == "" || e.member == member) && e.from.Before(to) && from.Before(e.to) {
			return true
		}
	}
	return false
}

// losses are the ends that nothing excuses, the first few with their circumstances.
type losses struct {
	mu   sync.Mutex
	n    int
	what []string
}

func (l *losses) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; len(l.what) < 10 {
		l.what = append(l.what, fmt.Sprintf(format, args...))
	}
}

// err says what was lost, if anything was.
func (l *losses) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		return nil
	}
	return fmt.Errorf("%d, of which %q", l.n, l.what)
}
