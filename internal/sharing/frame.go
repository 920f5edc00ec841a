package sharing

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/warmroute/router/internal/peering"
)

// version is the version of frames. Gateways of different versions do not talk.
const version = 1

// The kinds of frames.
const (
	kindLive uint8 = iota + 1
	kindHello
	kindBye
	kindRepair   // a request for frames by their numbers, and its reply
	kindSnapshot // a request for a page of a snapshot, and its reply
)

// The kinds of facts.
const (
	factSent    uint8            = iota + 1 // the target was sent marks
	factUnsent                              // a request failed: what it alone had added is gone
	factExpire                              // the target holds nothing that was sent before
	factForget                              // the target lost its cache
	factMore                                // as factSent, by a reply: it is no further prompt
	factNews                                // what an engine said, or a hint, sealed
	factPin                                 // a session was bound to the target
	factMoved                               // a session went to the target from another
	factKinds                               // the first that does not exist
	factConfirm                             // never sent
	factParent  = 1 << 7                    // a mark comes first that only is to be refreshed
	factKind    = factParent - 1            //
)

// header is the beginning of each frame.
type header struct {
	kind  uint8
	node  uint64 // of its sender, 48 bits: drawn when it started
	frame uint64 // number of the frame
	facts uint64 // number of the last frame with facts, this one if it has any
	sent  uint64 // the sender's time, in units of 64 microseconds
}

var (
	errShort   = errors.New("share: a frame ends early")
	errVersion = errors.New("share: a frame of another version")
	errSecret  = errors.New("share: a frame of another fleet or secret")
)

func appendUint48(b []byte, x uint64) []byte {
	return append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(x>>32), byte(x>>40))
}

func (h *header) append(b []byte, k *Key) []byte {
	b = append(b, version, h.kind, byte(k.check), byte(k.check>>8))
	b = appendUint48(b, h.node)
	b = binary.AppendUvarint(b, h.frame)
	b = binary.AppendUvarint(b, h.facts)
	return binary.AppendUvarint(b, h.sent)
}

// reader reads a frame; after the first error everything is 0.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) byte() uint8 {
	if len(r.b) < 1 {
		r.fail(errShort)
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *reader) uint48() uint64 {
	if len(r.b) < 6 {
		r.fail(errShort)
		return 0
	}
	b := r.b
	r.b = b[6:]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

// count reads the number of things that follow, each of at least size bytes.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.fail(errShort)
		return 0
	}
	return int(n)
}

// number reads a number up to most; a greater one is most.
func (r *reader) number(most int64) int64 {
	return int64(min(r.uvarint(), uint64(most)))
}

func (r *reader) string(most int) string {
	n := r.count(1)
	if n > most {
		r.fail(fmt.Errorf("share: a name of %d bytes", n))
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// end fails unless all has been read.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("share: a frame has %d bytes too many", len(r.b))
	}
	return r.err
}

// header reads the beginning of a frame.
func (r *reader) header(k *Key) (h header) {
	if v := r.byte(); r.err == nil && v != version {
		r.fail(fmt.Errorf("%w: %d, not %d", errVersion, v, version))
	}
	h.kind = r.byte()
	check := uint16(r.byte()) | uint16(r.byte())<<8
	if r.err == nil && check != k.check {
		r.fail(errSecret)
	}
	h.node = r.uint48()
	h.frame = r.uvarint()
	h.facts = r.uvarint()
	h.sent = r.uvarint()
	return h
}

// Gauge is the load that one gateway has put on one target.
type Gauge = peering.Gauge

const maxGauge = 1 << 40

func appendGauge(b []byte, tag uint64, g *Gauge) []byte {
	b = appendUint48(b, tag)
	for _, n := range [...]int64{g.InFlight, g.Prefill, g.Context, g.Recorded} {
		b = binary.AppendUvarint(b, uint64(max(n, 0)))
	}
	return b
}

// gaugeSize is the least size of a gauge in a frame.
const gaugeSize = 6 + 4

func (r *reader) gauge() (tag uint64, g Gauge) {
	tag = r.uint48()
	g.InFlight, g.Prefill, g.Context = r.number(maxGauge), r.number(maxGauge), r.number(maxGauge)
	g.Recorded = r.number(maxGauge)
	return tag, g
}

// fact is one fact of a frame.
type fact struct {
	kind   uint8
	tag    uint64
	age    uint64 // stamps between the fact and the frame
	parent Mark   // 0: none
	marks  []byte // six bytes each
	news   []byte // sealed
}

// factSize is the least size of a fact in a frame.
const factSize = 1 + 6 + 1

func (f *fact) append(b []byte) []byte {
	kind := f.kind
	if f.parent != 0 {
		kind |= factParent
	}
	b = append(b, kind)
	b = appendUint48(b, f.tag)
	b = binary.AppendUvarint(b, f.age)
	if f.kind == factExpire || f.kind == factForget {
		return b
	}
	if f.kind == factNews {
		b = binary.AppendUvarint(b, uint64(len(f.news)))
		return append(b, f.news...)
	}
	if f.parent != 0 {
		b = appendUint48(b, uint64(f.parent))
	}
	b = binary.AppendUvarint(b, uint64(len(f.marks)/6))
	return append(b, f.marks...)
}

func (r *reader) fact() (f fact) {
	f.kind = r.byte()
	f.tag = r.uint48()
	f.age = r.uvarint()
	parent := f.kind&factParent != 0
	f.kind &= factKind
	switch {
	case f.kind == 0 || f.kind >= factKinds:
		r.fail(fmt.Errorf("share: a fact of kind %d", f.kind))
	case f.kind == factExpire || f.kind == factForget || f.kind == factNews:
		if parent {
			r.fail(fmt.Errorf("share: a fact of kind %d with a mark", f.kind))
		} else if f.kind == factNews {
			n := r.count(1)
			f.news = r.b[:n]
			r.b = r.b[n:]
		}
		return f
	}
	if parent {
		f.parent = Mark(max(r.uint48(), 1))
	}
	n := 6 * r.count(6)
	f.marks = r.b[:n]
	r.b = r.b[n:]
	return f
}

// mark returns mark i of f.
func (f *fact) mark(i int) Mark {
	r := reader{b: f.marks[6*i:]}
	return Mark(max(r.uint48(), 1))
}
