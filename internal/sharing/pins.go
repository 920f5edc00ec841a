package sharing

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// pins are the targets of sessions, by the word of other gateways. Of two halves the older is dropped when the newer is
// full.
type pins struct {
	newer, older map[Mark]pin
}

type pin struct {
	target uint16
	at     stamp
	moved  bool
}

// maxPins bounds one half.
const maxPins = 64 << 10

// Session returns the fingerprint of a session, by the parts of its key.
func (n *Node) Session(parts ...string) Mark {
	var d xxhash.Digest
	d.ResetWithSeed(n.cfg.Key.scopeSeed)
	for _, p := range parts {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(p)))
		_, _ = d.Write(size[:]) // never fails
		_, _ = d.WriteString(p)
	}
	return Mark(short(n.cfg.Key.hash(new(scratch), domainSession, d.Sum64())))
}

// Pin notes that a session is bound to a target; moved: it was bound to another before.
func (n *Node) Pin(session Mark, id string, moved bool) {
	kind := factPin
	if moved {
		kind = factMoved
	}
	n.add(op{kind: kind, id: id, pin: session})
}

// Pinned returns the target that another gateway said a session is bound to, how long ago it last said so, and whether
// the session had moved there.
func (n *Node) Pinned(session Mark) (id string, age time.Duration, moved, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pins.newer[session]
	if !ok {
		p, ok = n.pins.older[session]
	}
	if !ok {
		return "", 0, false, false
	}
	now := stampOf(n.now())
	return n.targets.idOf(p.target), time.Duration(now-min(p.at, now)) * stampUnit, p.moved, true
}

// heardPin reads a binding of a session, under mu.
func (n *Node) heardPin(f *fact, at stamp) {
	k := n.targets.ofTag(f.tag, at)
	if k == noNumber || len(f.marks) < 6 {
		return
	}
	n.pins.put(f.mark(0), pin{k, at - stamp(min(f.age, uint64(at))), f.kind == factMoved})
}

func (p *pins) put(session Mark, x pin) {
	old, ok := p.newer[session]
	if !ok {
		old, ok = p.older[session]
	}
	if ok && old.at > x.at {
		return
	}
	if ok && old.target == x.target {
		x.moved = x.moved || old.moved
	}
	if _, ok := p.newer[session]; !ok && (p.newer == nil || len(p.newer) >= maxPins) {
		p.older, p.newer = p.newer, map[Mark]pin{}
	}
	p.newer[session] = x
}
