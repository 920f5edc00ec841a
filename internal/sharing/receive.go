package sharing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxPeers bounds the peers that are known at once.
const maxPeers = 1024

// peer is another gateway.
type peer struct {
	id        uint64
	name      string
	marks     int
	up        time.Duration // at the last hello
	heard     time.Duration
	clock     uint64 // header.sent of the last frame
	last      uint64 // number of its last frame
	gauges    map[uint16]gaugeOf
	counted   bool // its gauges are in the sums
	window    window
	gap       time.Duration // since when some frames are missing; 0: none
	asked     time.Duration
	roundTrip time.Duration
	late      time.Duration // since when that is too long; 0: it is not
	lost      bool          // frames are missing that its log does not have
}

type gaugeOf struct {
	Gauge
	frame uint64
}

// Receive takes in a frame.
func (n *Node) Receive(data []byte) {
	now := n.now()
	n.mu.Lock()
	n.stats.received++
	n.stats.bytesIn += uint64(len(data))
	changed, err := n.receive(data, now)
	if err != nil {
		n.stats.bad++
	}
	ignored := n.ignored(err)
	denied := n.denied
	n.denied = nil
	n.mu.Unlock()
	n.deniers.call(denied)
	if ignored && n.cfg.Hooks.Ignored != nil {
		n.cfg.Hooks.Ignored(err)
	}
	n.changed(changed)
}

// ignored reports whether an error is to be reported.
func (n *Node) ignored(err error) bool {
	for i, e := range []error{errVersion, errSecret} {
		if errors.Is(err, e) && !n.reported[i] {
			n.reported[i] = true
			return true
		}
	}
	return false
}

// receive is under mu.
func (n *Node) receive(data []byte, now time.Duration) (changed []uint16, err error) {
	r := reader{b: data}
	h := r.header(n.cfg.Key)
	if r.err != nil {
		return nil, r.err
	}
	if h.node == n.cfg.ID {
		n.lag.echo(h.frame, now-time.Duration(h.sent)*timeUnit, now)
		return nil, nil
	}
	if h.kind != kindLive && h.kind != kindHello && h.kind != kindBye {
		return nil, fmt.Errorf("share: a frame of kind %d", h.kind)
	}
	p := n.peerOf(&h, now)
	if p == nil {
		return nil, errors.New("share: too many peers")
	}
	if !n.loadOff.Load() && p.late == 0 {
		changed = n.count(p, 1)
	}
	switch h.kind {
	case kindBye:
		if err := r.end(); err != nil {
			return nil, err
		}
		return n.leave(p), nil
	case kindHello:
		if err := n.heard(p, &r, now); err != nil {
			return nil, err
		}
	}
	more, err := n.readGauges(p, &h, &r, now)
	changed = append(changed, more...)
	if h.kind == kindLive && err == nil {
		count := r.count(factSize)
		if count > 0 && p.window.accept(h.facts) {
			n.readFacts(&r, count, now)
		} else if count > 0 {
			r.b = nil // it was here before
		}
		err = r.end()
	}
	p.window.expect(h.facts)
	switch {
	case !p.window.missing():
		p.gap = 0
	case p.gap == 0:
		p.gap = max(now, 1)
	}
	if h.frame > p.last {
		p.last, p.clock = h.frame, h.sent
	}
	return changed, err
}

// peerOf returns the sender of a frame.
func (n *Node) peerOf(h *header, now time.Duration) *peer {
	p := n.peers[h.node]
	if p == nil {
		if len(n.peers) >= maxPeers || h.kind == kindBye {
			return nil
		}
		p = &peer{id: h.node, gauges: map[uint16]gaugeOf{}}
		p.window.done = h.facts
		if h.kind == kindLive && h.facts > 0 {
			p.window.done-- // it may be the one with them
		}
		n.peers[h.node] = p
	}
	p.heard = now
	return p
}

// count brings the gauges of p into the sums, or takes them out.
func (n *Node) count(p *peer, by int64) (changed []uint16) {
	if p.counted == (by > 0) {
		return nil
	}
	p.counted = by > 0
	for k, g := range p.gauges {
		n.sum(k).load(&g.Gauge, by)
		changed = append(changed, k)
	}
	return changed
}

// leave forgets a peer.
func (n *Node) leave(p *peer) (changed []uint16) {
	changed = n.count(p, -1)
	for k, g := range p.gauges {
		n.sum(k).recorded.Add(-g.Recorded)
	}
	delete(n.peers, p.id)
	return changed
}

// heard reads a hello.
func (n *Node) heard(p *peer, r *reader, now time.Duration) error {
	name := r.string(maxName)
	up := r.number(1 << 30)
	marks := r.number(1 << 30)
	for range r.count(8) {
		id, clock, held := r.uint48(), r.uvarint(), r.number(1<<40)
		if id != n.cfg.ID || r.err != nil {
			continue
		}
		trip := now - time.Duration(min(clock, 1<<45))*timeUnit - time.Duration(held)*timeUnit
		if trip >= 0 {
			p.roundTrip = trip
		}
	}
	if r.err != nil {
		return r.err
	}
	if p.name != name {
		p.name = name
	}
	p.up, p.marks = time.Duration(up)*time.Second, int(marks)
	return nil
}

func (n *Node) readGauges(p *peer, h *header, r *reader, now time.Duration) (changed []uint16, err error) {
	at, sent := stampOf(now), int64(0)
	defer func() {
		if sent > 0 {
			n.unseen.heard(sent, now, n.lag.last+n.waits)
		}
	}()
	for range r.count(gaugeSize) {
		tag, g := r.gauge()
		if r.err != nil {
			break
		}
		k := n.targets.ofTag(tag, at)
		if k == noNumber {
			continue
		}
		old, ok := p.gauges[k]
		if ok && h.frame < old.frame {
			continue
		}
		p.gauges[k] = gaugeOf{g, h.frame}
		sent += max(g.InFlight-old.InFlight, 0)
		s := n.sum(k)
		s.recorded.Add(g.Recorded - old.Recorded)
		if p.counted && old.Gauge != g {
			s.load(&old.Gauge, -1)
			s.load(&g, 1)
			changed = append(changed, k)
		}
	}
	if h.kind == kindHello {
		return changed, r.end()
	}
	return changed, r.err
}

// readFacts applies the facts of a frame.
func (n *Node) readFacts(r *reader, count int, now time.Duration) {
	at := stampOf(now)
	for range count {
		f := r.fact()
		if r.err != nil {
			return
		}
		if n.cfg.Cache {
			n.apply(&f, at)
		}
	}
}

// apply brings a fact of another gateway into the table.
func (n *Node) apply(f *fact, at stamp) {
	k := n.targets.ofTag(f.tag, at)
	if k == noNumber {
		return
	}
	when := at - stamp(min(f.age, uint64(at)))
	if f.kind == factExpire {
		if id := n.targets.idOf(k); id != "" {
			n.denied = append(n.denied, denial{id, time.Duration(at-when) * stampUnit})
		}
	}
	t := n.table
	t.mu.Lock()
	defer t.mu.Unlock()
	count := len(f.marks) / 6
	switch f.kind {
	case factExpire:
		t.deny(k, at-when, at)
	case factForget:
		t.setHorizon(k, when+1)
	case factUnsent:
		for i := range count {
			t.unhold(f.mark(i), k, others)
		}
	default:
		if when+1 < t.horizonOf(k) {
			return // it was sent before
		}
		deepest := Mark(0)
		if f.parent != 0 {
			if t.find(f.parent) != nil {
				deepest = f.parent
			}
			t.hold(f.parent, k, when, others)
		}
		for i := range count {
			m := f.mark(i)
			if t.find(m) != nil {
				deepest = m
			}
			t.hold(m, k, when, others)
		}
		if deepest != 0 && f.kind == factSent {
			t.goesOn(deepest)
		}
	}
}

// window says which of a peer's frames with facts were taken in: all up to done, and those in ahead.
type window struct {
	done, highest uint64
	ahead         []uint64
}

// maxAhead bounds the frames that are taken in before a missing one.
const maxAhead = 4096

// accept reports whether a frame is to be taken in, and notes that it is.
func (w *window) accept(number uint64) bool {
	if number <= w.done {
		return false
	}
	w.highest = max(w.highest, number)
	if number == w.done+1 {
		w.done++
		w.close()
		return true
	}
	i, found := slices.BinarySearch(w.ahead, number)
	if found {
		return false
	}
	w.ahead = slices.Insert(w.ahead, i, number)
	if len(w.ahead) > maxAhead { // what is missing before is given up
		w.done = w.ahead[0]
		w.ahead = slices.Delete(w.ahead, 0, 1)
		w.close()
	}
	return true
}

func (w *window) close() {
	i := 0
	for i < len(w.ahead) && w.ahead[i] == w.done+1 {
		w.done++
		i++
	}
	w.ahead = slices.Delete(w.ahead, 0, i)
}

// expect notes that the peer has sent frames with facts up to number.
func (w *window) expect(number uint64) { w.highest = max(w.highest, number) }

func (w *window) missing() bool { return w.highest > w.done }

// skip gives up the frames up to number.
func (w *window) skip(number uint64) {
	if number <= w.done {
		return
	}
	w.done = number
	i, found := slices.BinarySearch(w.ahead, number)
	if found {
		i++
	}
	w.ahead = slices.Delete(w.ahead, 0, i)
	w.close()
}
