package sharing

import (
	"sync"
	"sync/atomic"
)

// Local is the gauge of this gateway's own load on one target.
type Local struct {
	node                       *Node
	id                         string
	inFlight, prefill, context atomic.Int64
	dirty                      atomic.Bool
}

// Local returns the gauge of a target.
func (n *Node) Local(id string) *Local { return &Local{node: n, id: id} }

// Set sets the gauge.
func (l *Local) Set(inFlight, prefill, context int64) {
	if inFlight > l.inFlight.Load() {
		l.node.unseen.sent(l.node.now())
	}
	if l.inFlight.Load() == inFlight && l.prefill.Load() == prefill && l.context.Load() == context {
		return
	}
	l.inFlight.Store(inFlight)
	l.prefill.Store(prefill)
	l.context.Store(context)
	if l.dirty.Load() || l.dirty.Swap(true) {
		return
	}
	h := &l.node.hooks
	h.mu.Lock()
	h.dirty = append(h.dirty, l)
	h.signal(l.node.now())
}

// Sum is the load of all other gateways on one target.
type Sum struct{ inFlight, prefill, context, recorded atomic.Int64 }

// Load returns the sum. Its parts may be of different instants.
func (s *Sum) Load() Gauge {
	return Gauge{InFlight: s.inFlight.Load(), Prefill: s.prefill.Load(), Context: s.context.Load(),
		Recorded: s.recorded.Load()}
}

// load adds the load of g, by times that. It does not change at once.
func (s *Sum) load(g *Gauge, by int64) {
	s.inFlight.Add(by * g.InFlight)
	s.prefill.Add(by * g.Prefill)
	s.context.Add(by * g.Context)
}

// Sum returns the sum of a target; nil beyond the bound of targets.
func (n *Node) Sum(id string) *Sum {
	k := n.targets.number(id, stampOf(n.now()))
	if k == noNumber {
		return nil
	}
	n.targets.pin(k, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sum(k)
}

// Leave ends the use of a Sum.
func (n *Node) Leave(id string) {
	if k := n.targets.number(id, stampOf(n.now())); k != noNumber {
		n.targets.pin(k, -1)
	}
}

// sum is under mu.
func (n *Node) sum(k uint16) *Sum {
	all := *n.sums.Load()
	if int(k) >= len(all) {
		longer := make([]*Sum, int(k)+1, 2*int(k)+8)
		copy(longer, all)
		for i := len(all); i < len(longer); i++ {
			longer[i] = new(Sum)
		}
		n.sums.Store(&longer)
		all = longer
	}
	return all[k]
}

// Elsewhere appends the load of the other gateways on each of ids to dst.
func (n *Node) Elsewhere(ids []string, dst []Gauge) []Gauge {
	r := n.targets.resolve(ids, 0)
	all := *n.sums.Load()
	for _, k := range r.numbers {
		var g Gauge
		if int(k) < len(all) {
			g = all[k].Load()
		}
		dst = append(dst, g)
	}
	return dst
}

// watchers are called when the sums of targets have changed.
type watchers struct {
	mu  sync.Mutex
	all map[*watcher]struct{}
}

type watcher struct{ f func(ids []string) }

// Watch has f called after the sums of targets changed, without a lock, until stop is called.
func (n *Node) Watch(f func(ids []string)) (stop func()) {
	w := &watcher{f}
	n.watchers.mu.Lock()
	defer n.watchers.mu.Unlock()
	if n.watchers.all == nil {
		n.watchers.all = map[*watcher]struct{}{}
	}
	n.watchers.all[w] = struct{}{}
	return func() {
		n.watchers.mu.Lock()
		defer n.watchers.mu.Unlock()
		delete(n.watchers.all, w)
	}
}

func (n *Node) changed(ks []uint16) {
	if len(ks) == 0 {
		return
	}
	ids := make([]string, 0, len(ks))
	for _, k := range ks {
		if id := n.targets.idOf(k); id != "" {
			ids = append(ids, id)
		}
	}
	n.watchers.mu.Lock()
	fs := make([]*watcher, 0, len(n.watchers.all))
	for w := range n.watchers.all {
		fs = append(fs, w)
	}
	n.watchers.mu.Unlock()
	for _, w := range fs {
		w.f(ids)
	}
}

// recorders know how many prompts are recorded for a target.
type recorders struct {
	mu  sync.Mutex
	all map[any]func(id string) (n int, ok bool)
}

// Recorder has f asked for the number of prompts that the record r has for a target, until it returns false. One
// function is asked for each record.
func (n *Node) Recorder(r any, f func(id string) (n int, ok bool)) {
	n.recorders.mu.Lock()
	defer n.recorders.mu.Unlock()
	if n.recorders.all == nil {
		n.recorders.all = map[any]func(string) (int, bool){}
	}
	n.recorders.all[r] = f
}

func (r *recorders) of(id string) (sum int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for x, f := range r.all {
		k, ok := f(id)
		if !ok {
			delete(r.all, x)
			continue
		}
		sum += int64(k)
	}
	return sum
}

// LoadShared reports whether the load of the other gateways counts.
func (n *Node) LoadShared() bool { return n.cfg.Load && !n.loadOff.Load() }
