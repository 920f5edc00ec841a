package loadview

import (
	"runtime"
	"sync/atomic"
	"weak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
)

// elsewhere is the load that other gateways have on a member, and the gauge of this one's own. The zero elsewhere, if
// nothing is shared, is no load.
type elsewhere struct {
	node    peering.Node
	own     peering.Local
	others  peering.Sum
	context int64        // tokens of the requests in flight
	peak    int64        // the most that others had in flight since the scrape under way began
	overlap atomic.Int64 // requests of the last report of the queue that were the others'
}

func (e *elsewhere) join(n peering.Node, id string) {
	if n != nil {
		e.node, e.own, e.others = n, n.Local(id), n.Sum(id)
	}
}

// leave ends the use of the gauges of a member that is gone. Its requests in flight end as they do.
func (e *elsewhere) leave(id string) {
	if e.node != nil {
		e.node.Leave(id)
	}
}

// shared reports whether the others' load counts.
func (e *elsewhere) shared() bool { return e.others != nil && e.node.LoadShared() }

// inFlight returns the requests that the others have there.
func (e *elsewhere) inFlight() int64 {
	if !e.shared() {
		return 0
	}
	return e.others.Load().InFlight
}

// reported notes that a report of the queue is to come that includes so many of the others' requests.
func (e *elsewhere) reported(n int64) {
	if e.others != nil {
		e.overlap.Store(n)
	}
}

// beyond returns the part of a reported queue that no gateway sent.
func (e *elsewhere) beyond(queued int64) int64 {
	if !e.shared() {
		return queued
	}
	return max(queued-e.overlap.Load(), 0)
}

// add adds the others' load to the queue that was reported and to the prefill of this gateway.
func (e *elsewhere) add(queued, prefill int64) (int64, int64) {
	if !e.shared() {
		return queued, prefill
	}
	g := e.others.Load()
	return e.beyond(queued) + max(g.InFlight, 0), prefill + max(g.Prefill, 0)
}

// publish passes on the member's load.
func (e *elsewhere) publish(m *member) {
	if e.own != nil {
		e.own.Set(m.inFlight.Load(), m.prefill.Load(), e.context)
	}
}

// join has the pool take in the load of the other gateways, for as long as it is in use.
func (p *pool) join(s router.Peers) {
	p.peers = peering.Of(s)
	if p.peers == nil {
		return
	}
	w := weak.Make(p) // the Share outlives the pool
	stop := p.peers.Watch(func(ids []string) {
		if p := w.Value(); p != nil {
			p.elsewhere(ids)
		}
	})
	runtime.AddCleanup(p, func(stop func()) { stop() }, stop)
	listen(p.peers, w.Value)
}

// elsewhere takes in that the others' load on members has changed.
func (p *pool) elsewhere(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if m := p.byID[id]; m != nil {
			m.peers.peak = max(m.peers.peak, m.peers.inFlight())
			p.putLoad(m)
		}
	}
}

// lengthOf returns the length of d's prompt in tokens. Four bytes of text count as one.
func lengthOf(d router.Decision) int64 {
	n := int64(max(d.Length, 0))
	if d.Unit != router.Tokens {
		n /= 4
	}
	return min(n, maxPrefill)
}
