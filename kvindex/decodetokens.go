package kvindex

import (
	"encoding/binary"
	"math"
)

// cut returns n zero words of the batch's memory.
func (d *decoder) cut(n int) []uint64 {
	b := d.batch
	if n > cap(b.words)-len(b.words) {
		// The rest of the payload bounds the memory that is asked for later.
		b.words = make([]uint64, 0, max(n, min(d.rest()/40, 1<<12)))
	}
	at := len(b.words)
	b.words = b.words[:at+n]
	w := b.words[at : at+n : at+n]
	clear(w)
	return w
}

// space returns the batch's memory for n more tokens, of length 0.
func (d *decoder) space(n int) []uint32 {
	b := d.batch
	if n > cap(b.tokens)-len(b.tokens) {
		b.tokens = make([]uint32, 0, max(n, min(d.rest()/3, 1<<14)))
	}
	at := len(b.tokens)
	return b.tokens[at : at : at+n]
}

// tokenIDs reads a list of token ids, or of pairs of neighbours. A list of
// anything else is passed over: the event is kept without tokens.
func (d *decoder) tokenIDs(f *fields) {
	f.Tokens, f.Pairs = nil, false
	if d.nil() {
		return
	}
	n := d.header(kArray)
	if n > maxTokens {
		d.fail(errTooMany)
	}
	if d.err != nil || n == 0 {
		return
	}
	start := d.off
	var ok bool
	if d.peek() == kArray {
		f.Tokens, ok = d.pairs(n)
		f.Pairs = ok
	} else {
		f.Tokens, ok = d.plain(n)
	}
	if d.err != nil {
		return
	}
	if !ok {
		d.batch.UnknownTokens++
		f.Tokens = nil
		d.off = start
		d.skip(n)
		return
	}
	d.batch.tokens = d.batch.tokens[:len(d.batch.tokens)+len(f.Tokens)]
}

func (d *decoder) plain(n int) (tokens []uint32, ok bool) {
	tokens = d.space(n)[:n]
	b, off := d.b, d.off
	for i := range tokens {
		if off >= len(b) {
			d.fail(errShort)
			return nil, false
		}
		switch x := b[off]; {
		case x < 0x80:
			tokens[i] = uint32(x)
			off++
		case x == 0xcd && len(b)-off >= 3:
			tokens[i] = uint32(binary.BigEndian.Uint16(b[off+1:]))
			off += 3
		case x == 0xce && len(b)-off >= 5:
			tokens[i] = binary.BigEndian.Uint32(b[off+1:])
			off += 5
		case x == 0xcc && len(b)-off >= 2:
			tokens[i] = uint32(b[off+1])
			off += 2
		default: // 64 bits wide, signed, cut short, or no number
			d.off = off
			t, ok := d.token()
			if !ok {
				return nil, false
			}
			tokens[i] = t
			off = d.off
		}
	}
	d.off = off
	return tokens, true
}

// token reads one id; ok is false if it is none, or after an error.
func (d *decoder) token() (t uint32, ok bool) {
	switch d.peek() {
	case kInt:
	case kNone:
		d.fail(errShort)
		return 0, false
	default:
		return 0, false
	}
	v, wide := d.int()
	if d.err != nil || wide || v < 0 || v > math.MaxUint32 {
		return 0, false
	}
	return uint32(v), true
}

// pairs reads [[a,b],[b,c]...] as a, b, c. Pairs that do not overlap are no
// text.
func (d *decoder) pairs(n int) (tokens []uint32, ok bool) {
	tokens = d.space(n + 1)[:n+1]
	for i := range n {
		if d.peek() != kArray || d.header(kArray) != 2 {
			return nil, false
		}
		a, ok := d.token()
		if !ok || i > 0 && a != tokens[i] {
			return nil, false
		}
		tokens[i] = a
		if tokens[i+1], ok = d.token(); !ok {
			return nil, false
		}
	}
	return tokens, true
}
