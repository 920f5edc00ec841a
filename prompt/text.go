package prompt

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/warmroute/router/internal/jsonscan"
)

// The canonical text.
//
// A mark separates things and is written before them: the byte 0xFF, which
// cannot occur in valid UTF-8, and a byte for the kind of thing that begins. Nothing is
// written after a text, so a conversation that grows extends its text byte for
// byte. A 0xFF or 0xFE that comes in a body (no valid one has it) is written as
// two bytes, 0xFE and a small number, so that no text has a mark in it.
const (
	mark = jsonscan.Mark
)

// The kinds of marks.
const (
	kindTool      = 'd' // a tool definition, canonical JSON
	kindSystem    = 's' // turns, by role
	kindDeveloper = 'v'
	kindUser      = 'u'
	kindAssistant = 'a'
	kindResult    = 't' // role tool, and Responses' outputs of calls
	kindFunction  = 'f'
	kindOther     = 'o' // any other role, its name first
	kindText      = 'x' // a text that is not the first thing in its turn
	kindName      = 'n' // the speaker's name
	kindReasoning = 'r'
	kindRefusal   = 'k'
	kindCall      = 'c' // a tool call: its name
	kindArguments = 'j' // and its arguments
	kindInner     = 'R' // a tool's result inside a turn (Anthropic)
	kindMore      = 'y' // a further part of that result
	kindMedia     = 'i' // image, audio, file: a digest
	kindTokens    = 'T' // token ids, in decimal, each with a comma
	kindBlock     = 'z' // a block that this version does not know, canonical JSON
)

// span is a part of a parse's out.
type span struct{ lo, hi int }

func (s span) empty() bool { return s.hi <= s.lo }

// slots are the parts of a turn by their rank. Clients order members as they
// like; the text has them in the order of their ranks.
type slots struct {
	base int // the start of the first part
	last int // the rank of the part that was put last
	sp   [8]span
}

// cut leaves out, if reading ended inside or after the last part, the parts that are not
// sure to stand right behind the one before them: all of them if the main
// part has not come, else those after the last part, which may be cut.
func (sl *slots) cut(main int) {
	if sl.sp[main].empty() {
		clear(sl.sp[:])
		return
	}
	clear(sl.sp[sl.last+1:])
}

// put notes that the bytes written from lo on are rank's part. A member that
// comes twice counts as it came last, as the engines' readers have it.
func (p *parse) put(sl *slots, rank, lo int) {
	sl.sp[rank], sl.last = span{lo, len(p.out)}, rank
}

// settle puts the parts in order if they are not.
func (p *parse) settle(sl *slots) {
	at := sl.base
	for _, sp := range sl.sp {
		if sp.empty() {
			continue
		}
		if sp.lo != at {
			p.reorder(sl)
			return
		}
		at = sp.hi
	}
	if at != len(p.out) {
		p.reorder(sl)
	}
}

func (p *parse) reorder(sl *slots) {
	t := p.tmp[:0]
	for _, sp := range sl.sp {
		if sp.empty() {
			continue
		}
		part := p.out[sp.lo:sp.hi]
		// A text was written with or without a mark, depending on the part before it.
		switch text := part[0] == mark && part[1] == kindText; {
		case len(t) == 0 && text:
			part = part[2:]
		case len(t) > 0 && part[0] != mark:
			t = append(t, mark, kindText)
		}
		t = append(t, part...)
	}
	p.out = append(p.out[:sl.base], t...)
	p.tmp = t
}

// digest is a sum of 128-bit digests, so that the order of members does not
// matter. The hash is SHA-256 because clients choose the input, and a
// collision would route one user's image as another's.
type digest struct {
	hi, lo uint64
	n      int
}

func (d *digest) add(b []byte) {
	h := sha256.Sum256(b)
	d.hi += binary.BigEndian.Uint64(h[:8])
	d.lo += binary.BigEndian.Uint64(h[8:16])
	d.n++
}

// append writes the digest as 22 characters.
func (d *digest) append(dst []byte) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], d.hi)
	binary.BigEndian.PutUint64(b[8:], d.lo)
	return base64.RawURLEncoding.AppendEncode(dst, b[:])
}
