package leastwork

import (
	"sync"
	"sync/atomic"

	"github.com/warmroute/router/internal/idmemo"
)

// inFlight has the requests in flight at one target that this strategy sent and that
// have a known prompt.
type inFlight struct{ requests, tokens atomic.Int64 }

// cost returns the mean cost of a request if a token of context costs weight, 0 if it is not known.
// The two counters are read one after the other, so they may be of different instants.
func (f *inFlight) cost(weight float64) float64 {
	if f == nil {
		return 0
	}
	n, tokens := f.requests.Load(), f.tokens.Load()
	if n <= 0 || tokens <= 0 {
		return 0
	}
	return weight * float64(tokens) / float64(n)
}

// end takes a request off again.
func (f *inFlight) end(tokens int64) {
	f.tokens.Add(-tokens)
	f.requests.Add(-1)
}

// contexts has the requests in flight of each target that has any. The zero contexts is empty.
type contexts struct {
	mu         sync.RWMutex
	byID       map[string]*inFlight
	generation uint64                   // changes when byID does
	known      idmemo.Memo[[]*inFlight] // by the IDs of find
}

// maxIdle bounds byID while some of its targets have nothing in flight.
const maxIdle = 4096

// add counts a request of so many tokens at the target and returns its counter.
func (c *contexts) add(id string, tokens int64) *inFlight {
	c.mu.RLock()
	f := c.byID[id]
	if f != nil {
		f.requests.Add(1) // under the lock: a sweep must see it
	}
	c.mu.RUnlock()
	if f == nil {
		c.mu.Lock()
		if f = c.byID[id]; f == nil {
			f = c.make(id)
		}
		f.requests.Add(1)
		c.mu.Unlock()
	}
	f.tokens.Add(tokens)
	return f
}

func (c *contexts) make(id string) *inFlight {
	if c.byID == nil {
		c.byID = make(map[string]*inFlight)
	}
	if len(c.byID) >= maxIdle {
		for id, f := range c.byID {
			if f.requests.Load() == 0 {
				delete(c.byID, id)
			}
		}
	}
	f := new(inFlight)
	c.byID[id] = f
	c.generation++
	return f
}

// forget resets the target. The counted requests end without effect.
func (c *contexts) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byID[id]; ok {
		delete(c.byID, id)
		c.generation++
	}
}

// find returns the requests in flight at each of ids, nil for none. The result is
// shared: it must not be changed.
func (c *contexts) find(ids []string) []*inFlight {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.known.Get(c.generation, ids); known != nil {
		return *known
	}
	found := make([]*inFlight, len(ids))
	for i, id := range ids {
		found[i] = c.byID[id]
	}
	return *c.known.Put(c.generation, ids, found)
}
