package textcache

import (
	"hash/maphash"
	"maps"

	"github.com/warmroute/router"
)

// maxByHand bounds the remembered requests without a Memo: between one and two
// times as many. The end of a forgotten one has no effect.
const maxByHand = 4096

// ledger has the requests in flight without a Memo, by a hash of their content.
// Equal ones are distinguished only by their number: one that has seen its first
// token is taken to end first. The zero ledger is empty.
type ledger struct {
	open, older map[uint64]*count // older is dropped when open is full
}

// count is how many equal requests are under way.
type count struct {
	id             string
	waiting, token int    // without a first token yet, and with one
	past           belief // of the last that was sent
}

// hashSeed makes equal hashes a matter of chance, whatever clients send.
var hashSeed = maphash.MakeSeed()

func hash(k *Key, id string) uint64 {
	return maphash.Comparable(hashSeed, [3]string{id, k.scope, k.text})
}

func (l *ledger) at(h uint64) *count {
	if c := l.open[h]; c != nil {
		return c
	}
	return l.older[h]
}

// past returns the belief of the last request with hash h, which is the zero one if several are under way.
func (l *ledger) past(h uint64) belief {
	if c := l.at(h); c != nil && c.waiting+c.token == 1 {
		return c.past
	}
	return belief{}
}

// record takes note of stage s. It reports whether s ended a request that was sent, and whether that one had seen its
// first token.
func (l *ledger) record(h uint64, id string, s router.Stage) (ended, token bool) {
	c := l.at(h)
	switch {
	case s == router.Sent:
		if c == nil {
			c = &count{id: id}
		}
		c.waiting++
		l.put(h, c)
	case c == nil:
	case s == router.FirstToken:
		if c.waiting > 0 {
			c.waiting--
			c.token++
		}
	case s.Final():
		token = c.token > 0
		if token {
			c.token--
		} else {
			c.waiting--
		}
		if c.token+c.waiting == 0 {
			delete(l.open, h)
			delete(l.older, h)
		}
		return true, token
	}
	return false, false
}

func (l *ledger) put(h uint64, c *count) {
	if l.open == nil || len(l.open) >= maxByHand {
		l.older, l.open = l.open, make(map[uint64]*count)
	}
	l.open[h] = c
}

func (l *ledger) forget(id string) {
	of := func(_ uint64, c *count) bool { return c.id == id }
	maps.DeleteFunc(l.open, of)
	maps.DeleteFunc(l.older, of)
}
