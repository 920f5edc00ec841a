package sharing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// recentFrames is how many frames of a peer that has just been seen are asked for.
const recentFrames = 256

// maxPeers bounds the peers that are known at once.
const maxPeers = 1024

// peer is another gateway.
type peer struct {
	id        uint64
	name      string
	marks     int
	born      time.Duration // when it started, by its last hello; 0: there was none
	heard     time.Duration
	first     time.Duration // when it was first heard
	clock     uint64        // header.sent of the last frame
	last      uint64        // number of its last frame
	gauges    map[uint16]gaugeOf
	counted   bool // its gauges are in the sums
	window    window
	gap       time.Duration // since when some frames are missing; 0: none
	asked     time.Duration
	roundTrip time.Duration
	late      time.Duration // since when that is too long; 0: it is not
	silent    bool          // with frames missing
	lost      bool          // frames are missing that its log does not have
	quickest  time.Duration // a frame by the two clocks; 0: there was none
	unsent    unsent
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
	denied, news := n.denied, n.unheard
	n.denied, n.unheard = nil, nil
	n.mu.Unlock()
	n.deniers.call(denied)
	n.readers.call(news)
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
		if len(r.b) > 1 && !p.window.accept(h.facts) {
			r.b = nil // it was here before
		} else {
			n.readFacts(p, &r, h.facts, stampOf(now-p.excess(&h, now)))
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
		p.window.done = h.facts - min(h.facts, recentFrames) // some may be on their way, or lost
		p.first = now
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
	up := r.number(1 << 40)
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
	first := p.born == 0
	p.born, p.marks = now-max(time.Duration(up)*time.Millisecond, 1), int(marks)
	if first && n.joined && p.first > n.joinedAt+askTimeout && p.born < p.first-askTimeout {
		p.lost = true // it was there before, and was not heard
	}
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

// excess returns how much later than the quickest one a frame came.
func (p *peer) excess(h *header, now time.Duration) time.Duration {
	took := now - time.Duration(min(h.sent, 1<<45))*timeUnit // by two clocks that began apart
	if took < p.quickest || p.quickest == 0 {
		p.quickest = took
	}
	return min(took-p.quickest, time.Hour)
}

// readFacts applies the facts of the frame with a number, which was sent at a time.
func (n *Node) readFacts(p *peer, r *reader, number uint64, at stamp) {
	for range r.count(factSize) {
		f := r.fact()
		if r.err != nil {
			return
		}
		switch {
		case f.kind == factNews:
			n.heardNews(&f, at)
			continue
		case f.kind == factPin || f.kind == factMoved:
			n.heardPin(&f, at)
			continue
		case !n.cfg.Cache:
			continue
		}
		if f.kind == factUnsent {
			p.unsent.add(&f, number)
		} else if len(p.unsent) > 0 {
			f.marks = p.unsent.without(&f, number)
		}
		n.apply(&f, at)
	}
}

// unsent has the last marks that a peer took back, with the number of the frame: frames that were sent before may come
// after it.
type unsent []takenBack

type takenBack struct {
	tag    uint64
	mark   Mark
	number uint64
}

// maxUnsent bounds the marks that are kept.
const maxUnsent = 256

func (u *unsent) add(f *fact, number uint64) {
	for i := range len(f.marks) / 6 {
		*u = append(*u, takenBack{f.tag, f.mark(i), number})
	}
	*u = slices.Delete(*u, 0, max(len(*u)-maxUnsent, 0))
}

// without returns the marks of f that were not taken back after the frame.
func (u unsent) without(f *fact, number uint64) []byte {
	var left []byte
	for i := range len(f.marks) / 6 {
		m := f.mark(i)
		gone := slices.ContainsFunc(u, func(t takenBack) bool { return t.mark == m && t.tag == f.tag && t.number > number })
		if !gone {
			left = appendUint48(left, uint64(m))
		}
	}
	return left
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
			t.unhold(f.mark(i), k, others, when+1)
			t.backs.add(f.mark(i), k, when+1)
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
