package sharing

import (
	"context"
	"encoding/binary"
	"slices"
	"time"
)

const (
	// reorder is how long a missing frame may be late before it is asked for.
	reorder = 100 * time.Millisecond
	// askTimeout bounds one request, askAgain the time to the next to the same peer.
	askTimeout = 2 * time.Second
	askAgain   = time.Second
	// settle is how long a gateway that has just started hears its peers before it asks one for a snapshot.
	settle = 300 * time.Millisecond
	// maxReply bounds the facts of one reply, in bytes: with its header it is a frame's size at most.
	maxReply = 192 << 10
	// maxPages bounds the pages of one snapshot to about 4 MB.
	maxPages = 24
)

// ask begins at most one request: for frames that are missing, or for a snapshot.
func (n *Node) ask(now time.Duration) {
	if !n.cfg.Cache {
		return
	}
	n.mu.Lock()
	for _, p := range n.peers {
		if silent := now > p.heard+n.cfg.Silence; silent && p.gap != 0 && !p.silent {
			p.silent, n.want = true, true // others may have the facts that it does not repeat
		} else if !silent {
			p.silent = false
		}
	}
	if n.busy {
		n.mu.Unlock()
		return
	}
	var from *peer
	var next func()
	for _, p := range n.peers {
		if now < p.asked+askAgain || now > p.heard+n.cfg.Silence {
			continue
		}
		if p.lost || n.want || !n.joined && now >= settle && p.marks > 0 && p.born < 0 {
			if from == nil || !p.lost && p.marks > from.marks {
				id := p.id
				from, next = p, func() { n.askSnapshot(id) }
			}
			continue
		}
		if p.gap != 0 && now >= p.gap+reorder && from == nil {
			id, done, highest := p.id, p.window.done, p.window.highest
			from, next = p, func() { n.askRepair(id, done, highest) }
		}
	}
	if from != nil {
		from.asked = max(now, 1)
		n.busy = true
	} else if now >= settle+askTimeout {
		n.join(now) // nobody is older
	}
	n.mu.Unlock()
	if from != nil {
		n.cfg.Spawn(func() {
			next()
			n.mu.Lock()
			n.busy = false
			n.mu.Unlock()
		})
	}
}

// join notes that the first look for peers is over.
func (n *Node) join(now time.Duration) {
	if !n.joined {
		n.joined, n.joinedAt = true, now
	}
}

func (n *Node) request(peer uint64, kind uint8, body []byte) (reader, bool) {
	h := header{kind: kind, node: n.cfg.ID}
	b := append(h.append(nil, n.cfg.Key), body...)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	reply, err := n.cfg.Bus.Request(ctx, serviceOf(n.cfg.Subject, peer), b)
	if err != nil {
		return reader{}, false
	}
	r := reader{b: reply}
	got := r.header(n.cfg.Key)
	if r.err != nil || got.kind != kind || got.node != peer {
		n.mu.Lock()
		n.stats.bad++
		n.mu.Unlock()
		return reader{}, false
	}
	return r, true
}

// answer answers a request.
func (n *Node) answer(request []byte) []byte {
	r := reader{b: request}
	h := r.header(n.cfg.Key)
	reply := header{kind: h.kind, node: n.cfg.ID}
	switch {
	case r.err != nil:
	case h.kind == kindRepair:
		after, upTo := r.uvarint(), r.uvarint()
		if r.end() == nil {
			return n.frames(reply.append(nil, n.cfg.Key), after, upTo)
		}
	case h.kind == kindSnapshot:
		before := r.uvarint()
		if r.end() == nil {
			return n.page(reply.append(nil, n.cfg.Key), before)
		}
	}
	n.mu.Lock()
	n.stats.bad++
	n.mu.Unlock()
	return nil
}

// askRepair asks a peer for the frames with facts after one, up to another.
func (n *Node) askRepair(id, after, upTo uint64) {
	b := binary.AppendUvarint(nil, after)
	r, ok := n.request(id, kindRepair, binary.AppendUvarint(b, upTo))
	if !ok {
		return
	}
	now := n.now()
	n.mu.Lock()
	defer func() {
		denied, news := n.denied, n.unheard
		n.denied, n.unheard = nil, nil
		n.mu.Unlock()
		n.deniers.call(denied)
		n.readers.call(news)
	}()
	p := n.peers[id]
	if p == nil {
		return
	}
	oldest := r.uvarint() // that the peer still has
	if r.err == nil && oldest > after+1 {
		p.window.skip(min(oldest, upTo+1) - 1)
		p.lost = true
		n.stats.lost++
	}
	for range r.count(4) {
		number, ago := r.uvarint(), r.uvarint()
		size := r.count(1)
		if r.err != nil {
			break
		}
		section := reader{b: r.b[:size]}
		r.b = r.b[size:]
		if p.window.accept(number) {
			at := stampOf(now)
			n.readFacts(p, &section, number, at-stamp(min(ago, uint64(at))))
			n.stats.repaired++
		}
		if section.err != nil {
			n.stats.bad++
		}
	}
	if r.end() != nil {
		n.stats.bad++
	}
	if !p.window.missing() {
		p.gap = 0
	}
}

// frames appends the facts of frames after one, up to another, as many as fit.
func (n *Node) frames(b []byte, after, upTo uint64) []byte {
	now := stampOf(n.now())
	n.mu.Lock()
	defer n.mu.Unlock()
	oldest := upTo + 1
	if len(n.log) > 0 {
		oldest = n.log[0].number
	}
	b = binary.AppendUvarint(b, oldest)
	first, _ := slices.BinarySearchFunc(n.log, after+1, func(l logged, x uint64) int { return compare(l.number, x) })
	last, size := first, 0
	for last < len(n.log) && n.log[last].number <= upTo && size+len(n.log[last].facts) <= maxReply {
		size += len(n.log[last].facts)
		last++
	}
	b = binary.AppendUvarint(b, uint64(last-first))
	for _, l := range n.log[first:last] {
		b = binary.AppendUvarint(b, l.number)
		b = binary.AppendUvarint(b, uint64(now-min(l.at, now)))
		b = binary.AppendUvarint(b, uint64(len(l.facts)))
		b = append(b, l.facts...)
	}
	return b
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// askSnapshot asks a peer for all it knows, the newest first.
func (n *Node) askSnapshot(id uint64) {
	before := uint64(0) // stamps of age; the first page is the newest
	for range maxPages {
		asked := n.now()
		r, ok := n.request(id, kindSnapshot, binary.AppendUvarint(nil, before))
		if !ok {
			return
		}
		next := r.uvarint()
		n.readPage(&r, asked)
		if r.err != nil {
			n.mu.Lock()
			n.stats.bad++
			n.mu.Unlock()
			return
		}
		if next <= before {
			break
		}
		before = next
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.join(n.now())
	n.want = false
	n.stats.snapshots++
	if p := n.peers[id]; p != nil {
		p.lost = false
	}
}

// held is one fact of the table.
type held struct {
	mark   Mark
	target uint16
	stamp  stamp
}

// page appends the marks of the table that were sent before an age, the newest first, as many as fit.
func (n *Node) page(b []byte, before uint64) []byte {
	now := stampOf(n.now())
	newest := now - stamp(min(before, uint64(now)))
	t := n.table
	// The ages that fit: a first pass counts them.
	count := make([]int32, 1<<12)
	t.mu.RLock()
	t.each(func(m Mark, k uint16, s stamp) {
		if s <= newest {
			count[bucket(newest-s)]++
		}
	})
	fit, last := int32(0), 0
	for last = range count {
		if fit += count[last]; fit > maxReply/markSize && last > 0 && fit > count[last] {
			last--
			break
		}
	}
	all := make([]held, 0, min(fit, maxReply/markSize))
	t.each(func(m Mark, k uint16, s stamp) {
		if s <= newest && bucket(newest-s) <= last && len(all) < cap(all) {
			all = append(all, held{m, k, s})
		}
	})
	t.mu.RUnlock()
	slices.SortFunc(all, func(a, b held) int {
		if a.stamp != b.stamp {
			return int(int64(b.stamp) - int64(a.stamp))
		}
		return int(a.target) - int(b.target)
	})
	next := uint64(0) // no more
	if last < len(count)-1 {
		next = before + uint64(firstOf(last+1))
	}
	b = binary.AppendUvarint(b, next)
	return n.appendPage(b, all, now)
}

// markSize is about the size of a mark in a page.
const markSize = 12

// bucket groups ages: exactly at first, and then by ever longer spans, so that 4,096 cover all.
func bucket(age stamp) int {
	if age < 2048 {
		return int(age)
	}
	return min(2048+int((age-2048)/512), 4095)
}

// firstOf returns the least age of a bucket.
func firstOf(b int) stamp {
	if b < 2048 {
		return stamp(b)
	}
	return 2048 + stamp(b-2048)*512
}

// appendPage appends marks that are sorted by stamp and target.
func (n *Node) appendPage(b []byte, all []held, now stamp) []byte {
	var tags []byte
	place := map[uint16]int{}
	for _, h := range all {
		if _, ok := place[h.target]; !ok {
			place[h.target] = len(place)
			tags = appendUint48(tags, n.targets.tagOf(h.target))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(place)))
	b = append(b, tags...)
	var groups []byte
	count := 0
	for i := 0; i < len(all); {
		k := i
		for k < len(all) && all[k].stamp == all[i].stamp && all[k].target == all[i].target {
			k++
		}
		groups = binary.AppendUvarint(groups, uint64(now-min(all[i].stamp, now)))
		groups = binary.AppendUvarint(groups, uint64(place[all[i].target]))
		groups = binary.AppendUvarint(groups, uint64(k-i))
		for _, h := range all[i:k] {
			groups = appendUint48(groups, uint64(h.mark))
		}
		count++
		i = k
	}
	b = binary.AppendUvarint(b, uint64(count))
	return append(b, groups...)
}

// readPage brings a page into the table. What this gateway alone said stays its own.
func (n *Node) readPage(r *reader, now time.Duration) {
	at := stampOf(now)
	ks := make([]uint16, r.count(6))
	for i := range ks {
		ks[i] = n.targets.ofTag(r.uint48(), at)
	}
	for range r.count(3) {
		age, place, count := r.uvarint(), r.uvarint(), r.count(6)
		if r.err != nil {
			return
		}
		if place >= uint64(len(ks)) {
			r.fail(errShort)
			return
		}
		k, when := ks[place], at-stamp(min(age, uint64(at)))
		if k == noNumber {
			r.b = r.b[6*count:]
			continue
		}
		n.table.mu.Lock()
		for range count {
			m := Mark(max(r.uint48(), 1))
			if when < n.table.horizonOf(k) || n.table.backs.has(m, k, when) {
				continue
			}
			if _, who, ok := n.table.look(m, k); ok && who == own {
				continue
			}
			n.table.hold(m, k, when, others)
		}
		n.table.mu.Unlock()
	}
	r.end()
}

// each calls f for every holder of every mark.
func (t *table) each(f func(m Mark, k uint16, s stamp)) {
	for i := range t.segs {
		for j := range t.segs[i].slots {
			s := &t.segs[i].slots[j]
			if s.key == 0 {
				continue
			}
			if h := s.holder(); h != manySlot {
				if h&targetSet != 0 && s.stamp >= t.horizonOf(h&^targetSet) {
					f(s.mark(), h&^targetSet, s.stamp)
				}
				continue
			}
			for _, h := range t.sets[s.stamp].held {
				if h.stamp >= t.horizonOf(h.target&^targetSet) {
					f(s.mark(), h.target&^targetSet, h.stamp)
				}
			}
		}
	}
}
