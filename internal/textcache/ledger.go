package textcache

import "sync"

// maxByHand bounds the requests of hand-made decisions that are remembered; the
// end of one that was forgotten teaches nothing.
const maxByHand = 4096

// ledger counts requests under way by the hash of what they are: those without a
// token yet, and those with one. The zero ledger is empty.
type ledger struct {
	mu    sync.Mutex
	open  map[uint64]count
	order []uint64 // the oldest first, each once
}

type count struct{ waiting, running int }

func (l *ledger) add(h uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[uint64]count)
	}
	c, ok := l.open[h]
	if !ok {
		if len(l.order) == maxByHand {
			delete(l.open, l.order[0])
			l.order = append(l.order[:0], l.order[1:]...)
		}
		l.order = append(l.order, h)
	}
	c.waiting++
	l.open[h] = c
}

func (l *ledger) token(h uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.open[h]; c.waiting > 0 {
		l.open[h] = count{waiting: c.waiting - 1, running: c.running + 1}
	}
}

// end takes one request off, one that has seen its token where there is such.
func (l *ledger) end(h uint64) (known, token bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.open[h]
	switch {
	case !ok:
		return false, false
	case c.running > 0:
		c.running--
		token = true
	default:
		c.waiting--
	}
	l.open[h] = c
	if c == (count{}) {
		delete(l.open, h)
		for i, o := range l.order {
			if o == h {
				l.order = append(l.order[:i], l.order[i+1:]...)
				break
			}
		}
	}
	return true, token
}

func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.open)
	l.order = l.order[:0]
}
