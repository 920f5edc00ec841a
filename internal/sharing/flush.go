package sharing

import (
	"encoding/binary"
	"time"
)

// maxSection bounds the facts of one frame, in bytes: a few milliseconds' worth for a peer.
const maxSection = 32 << 10

// out is the memory of Poll.
type out struct {
	locals map[string]*Local // those that ever were dirty
	gauges []byte
	facts  []byte
	marks  []byte
	frame  []byte
	ops    []op
	dirty  []*Local

	nGauges, nFacts int
}

// Poll publishes what is to be published, looks after the peers, and returns when it wants to be called again at the
// latest. A Wake comes when it wants to be called before.
func (n *Node) Poll() (next time.Duration) {
	now := n.now()
	n.tend(now)
	n.table.mu.Lock()
	n.table.tick(stampOf(now))
	n.table.mu.Unlock()
	if now >= n.greeted+n.cfg.Hello {
		n.greeted = now
		n.hello(now)
	}
	next = n.greeted + n.cfg.Hello
	h := &n.hooks
	h.mu.Lock()
	waiting := h.waiting
	if waiting && now >= n.flushed+n.cfg.Interval {
		h.waiting = false
		wait := now - h.since
		n.out.ops, h.ops = h.ops, n.out.ops[:0]
		n.out.dirty, h.dirty = h.dirty, n.out.dirty[:0]
		h.mu.Unlock()
		n.flushed = now
		n.mu.Lock()
		n.waits += (wait - n.waits) / 16
		n.mu.Unlock()
		n.flush(now)
		return next - now
	}
	h.mu.Unlock()
	if waiting {
		next = min(next, n.flushed+n.cfg.Interval)
	}
	return next - now
}

// flush publishes the events and the gauges that have changed.
func (n *Node) flush(now time.Duration) {
	o := &n.out
	o.reset()
	if o.locals == nil {
		o.locals = map[string]*Local{}
	}
	for _, l := range o.dirty {
		l.dirty.Store(false) // before it is read
		if n.cfg.Load {
			o.locals[l.id] = l
			n.gauge(l)
		}
	}
	clear(o.dirty)
	at := stampOf(now)
	for i := range o.ops {
		n.fact(&o.ops[i], at)
		o.ops[i] = op{}
		if len(o.facts) >= maxSection {
			n.publishLive(now)
			o.reset()
		}
	}
	if o.nGauges+o.nFacts > 0 {
		n.publishLive(now)
	}
}

func (o *out) reset() {
	o.gauges, o.facts, o.nGauges, o.nFacts = o.gauges[:0], o.facts[:0], 0, 0
}

// gauge adds a gauge to the frame.
func (n *Node) gauge(l *Local) {
	k := n.targets.number(l.id, stampOf(n.flushed))
	if k == noNumber {
		return
	}
	g := Gauge{InFlight: l.inFlight.Load(), Prefill: l.prefill.Load(), Context: l.context.Load()}
	if n.cfg.Cache {
		g.Recorded = n.recorders.of(l.id)
	}
	n.out.gauges = appendGauge(n.out.gauges, n.targets.tagOf(k), &g)
	n.out.nGauges++
	if g == (Gauge{}) {
		delete(n.out.locals, l.id)
	}
}

// fact brings an event into the table and adds it to the frame.
func (n *Node) fact(o *op, at stamp) {
	k := n.targets.number(o.id, at)
	if k == noNumber {
		return
	}
	f := fact{kind: o.kind, tag: n.targets.tagOf(k)}
	t := n.table
	t.mu.Lock()
	switch o.kind {
	case factSent, factMore:
		f.parent = n.said(o, k, at)
		f.marks = n.out.put(o.chain.fresh)
	case factUnsent:
		if o.chain.target == k {
			for _, m := range o.chain.fresh {
				t.unhold(m, k, own|others, o.chain.at)
				t.backs.add(m, k, o.chain.at)
			}
			f.marks = n.out.put(o.chain.fresh)
			f.age = uint64(at - min(o.chain.at, at))
		}
		if len(f.marks) == 0 {
			t.mu.Unlock()
			return
		}
	case factExpire:
		f.age = uint64(at - min(o.at, at))
		t.deny(k, stamp(f.age), at)
	case factConfirm: // for this gateway alone
		t.confirm(k, at-min(o.at, at), at)
		t.mu.Unlock()
		return
	case factForget:
		t.setHorizon(k, at+1)
	case factNews:
		f.news = n.cfg.Key.sealed(o.news)
	case factPin, factMoved:
		f.marks = n.out.put([]Mark{o.pin})
	}
	t.mu.Unlock()
	n.out.facts = f.append(n.out.facts)
	n.out.nFacts++
}

// put returns marks as bytes, until the next call.
func (o *out) put(marks []Mark) []byte {
	o.marks = o.marks[:0]
	for _, m := range marks {
		o.marks = appendUint48(o.marks, uint64(m))
	}
	return o.marks
}

// said brings a prompt that target k was sent into the table. It sets the chain's fresh marks, and returns the
// deepest one that is not.
func (n *Node) said(o *op, k uint16, at stamp) (parent Mark) {
	t, c := n.table, o.chain
	c.target, c.at, c.fresh = k, at, c.fresh[:0]
	deepest := Mark(0) // that is in the table
	known := uint64(0)
	for i, m := range c.Marks {
		s, who, ok := t.look(m, k)
		if !ok {
			if t.find(m) != nil {
				deepest = m
			}
			c.fresh = append(c.fresh, m)
			continue
		}
		parent, deepest = m, m
		if who&others != 0 {
			known = uint64(i+1)<<32 | uint64(s)
		}
	}
	c.known.Store(known)
	if deepest != 0 && o.kind == factSent {
		t.goesOn(deepest)
	}
	if parent != 0 {
		t.hold(parent, k, at, own)
	}
	for _, m := range c.fresh {
		t.hold(m, k, at, own)
	}
	return parent
}

func (n *Node) publishLive(now time.Duration) {
	o := &n.out
	n.frame++
	if o.nFacts > 0 {
		n.facts++
	}
	h := header{kind: kindLive, node: n.cfg.ID, frame: n.frame, facts: n.facts, sent: uint64(now / timeUnit)}
	b := h.append(o.frame[:0], n.cfg.Key)
	b = binary.AppendUvarint(b, uint64(o.nGauges))
	b = append(b, o.gauges...)
	section := len(b)
	b = binary.AppendUvarint(b, uint64(o.nFacts))
	b = append(b, o.facts...)
	o.frame = b
	if o.nFacts > 0 {
		n.mu.Lock()
		n.keep(n.facts, b[section:], stampOf(now))
		n.mu.Unlock()
	}
	n.publish(b, now)
}

func (n *Node) publish(b []byte, now time.Duration) {
	n.mu.Lock()
	n.lag.publish(n.frame, now)
	n.stats.sent++
	n.stats.bytesOut += uint64(len(b))
	n.mu.Unlock()
	if err := n.cfg.Bus.Publish(n.subject, b); err != nil {
		n.mu.Lock()
		n.stats.failed++
		n.mu.Unlock()
	}
}

// logged is the facts of one frame, for peers that missed it.
type logged struct {
	number uint64
	facts  []byte
	at     stamp
}

// The bounds of the log.
const (
	maxLog      = 4096
	maxLogBytes = 4 << 20
)

// keep is under mu.
func (n *Node) keep(number uint64, facts []byte, at stamp) {
	n.log = append(n.log, logged{number, append([]byte(nil), facts...), at})
	n.logSize += len(facts)
	for len(n.log) > maxLog || n.logSize > maxLogBytes {
		n.logSize -= len(n.log[0].facts)
		n.log[0] = logged{}
		n.log = n.log[1:]
	}
}

// maxEchoes bounds the peers that one hello answers.
const maxEchoes = 256

// hello publishes that this gateway is there. It has all gauges once a second.
func (n *Node) hello(now time.Duration) {
	o := &n.out
	o.reset()
	if now >= n.full+time.Second {
		n.full = now
		for _, l := range o.locals {
			if len(o.gauges) > maxSection {
				break
			}
			n.gauge(l)
		}
	}
	n.frame++
	h := header{kind: kindHello, node: n.cfg.ID, frame: n.frame, facts: n.facts, sent: uint64(now / timeUnit)}
	b := h.append(o.frame[:0], n.cfg.Key)
	name := n.cfg.Name[:min(len(n.cfg.Name), maxName)]
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = binary.AppendUvarint(b, uint64(now/time.Millisecond))
	n.table.mu.RLock()
	b = binary.AppendUvarint(b, uint64(n.table.used))
	n.table.mu.RUnlock()
	n.mu.Lock()
	b = binary.AppendUvarint(b, uint64(min(len(n.peers), maxEchoes)))
	echoes := 0
	for id, p := range n.peers {
		if echoes++; echoes > maxEchoes {
			break
		}
		b = appendUint48(b, id)
		b = binary.AppendUvarint(b, p.clock)
		b = binary.AppendUvarint(b, uint64((now-p.heard)/timeUnit))
	}
	n.mu.Unlock()
	b = binary.AppendUvarint(b, uint64(o.nGauges))
	b = append(b, o.gauges...)
	o.frame = b
	n.publish(b, now)
}

const maxName = 64

// Bye publishes that this gateway is gone, so that its gauges need not be waited out.
func (n *Node) Bye() {
	n.frame++
	now := n.now()
	h := header{kind: kindBye, node: n.cfg.ID, frame: n.frame, facts: n.facts, sent: uint64(now / timeUnit)}
	n.publish(h.append(nil, n.cfg.Key), now)
}
