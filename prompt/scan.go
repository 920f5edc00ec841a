package prompt

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep a body may nest. The engines' own JSON readers give up at
// about as much (CPython's recursion limit is 1,000).
const MaxDepth = 1000

// scanner is a strict pull reader of one JSON text.
//
// It is our own because the text of a conversation is nearly all of its body, so
// speed is decided by how a string goes from the body to the canonical text.
// Readers in the field give a string as a copy of its own or raw and unchecked,
// both a second pass over every byte, and none makes the mark byte harmless on
// the way. This one finds the next byte that needs care eight bytes at a time
// and writes straight into the result.
//
// After a failure err is set, and every method reports that nothing follows.
type scanner struct {
	b     []byte
	i     int
	depth int
	err   *Error
}

func (s *scanner) fail(k ErrorKind) {
	if s.err == nil {
		s.err = &Error{Kind: k, Offset: s.i}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		if c := s.b[s.i]; c > ' ' {
			return c
		}
	}
	return s.peekSpace()
}

func (s *scanner) peekSpace() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) enter() bool {
	s.i++
	if s.depth++; s.depth > MaxDepth {
		s.fail(TooDeep)
		return false
	}
	return true
}

// firstKey enters the object that is next and returns its first key and true,
// or false where it has none; nextKey goes on after the member's value was
// read. The key is good until the next call.
func (s *scanner) firstKey() ([]byte, bool) {
	if s.err != nil || !s.enter() {
		return nil, false
	}
	switch s.peek() {
	case '}':
		s.i++
		s.depth--
		return nil, false
	case '"':
		return s.member()
	}
	s.fail(Syntax)
	return nil, false
}

func (s *scanner) nextKey() ([]byte, bool) {
	if s.err != nil {
		return nil, false
	}
	switch s.peek() {
	case '}':
		s.i++
		s.depth--
		return nil, false
	case ',':
		s.i++
		if s.peek() == '"' {
			return s.member()
		}
	}
	s.fail(Syntax)
	return nil, false
}

// member reads a key and its colon.
func (s *scanner) member() ([]byte, bool) {
	k, ok := s.raw()
	if !ok {
		k = s.appendString(nil)
		if s.err != nil {
			return nil, false
		}
	}
	if s.i < len(s.b) && s.b[s.i] == ':' {
		s.i++
		return k, true
	}
	if s.peek() != ':' {
		s.fail(Syntax)
		return nil, false
	}
	s.i++
	return k, true
}

// raw reads the string that is next and returns the bytes between its quotes,
// where these are its text. Otherwise it reads nothing.
func (s *scanner) raw() ([]byte, bool) {
	lo := s.i + 1
	i := lo
	if len(s.b)-i >= 8 { // most are short
		i += bits.TrailingZeros64(special(binary.LittleEndian.Uint64(s.b[i:]))) >> 3
		if i < len(s.b) && s.b[i] == '"' {
			s.i = i + 1
			return s.b[lo:i], true
		}
	}
	i = plainRun(s.b, i)
	if i == len(s.b) || s.b[i] != '"' {
		return nil, false
	}
	s.i = i + 1
	return s.b[lo:i], true
}

// firstElem and nextElem do for arrays what firstKey and nextKey do for objects.
func (s *scanner) firstElem() bool {
	if s.err != nil || !s.enter() {
		return false
	}
	if s.peek() == ']' {
		s.i++
		s.depth--
		return false
	}
	return true
}

func (s *scanner) nextElem() bool {
	if s.err != nil {
		return false
	}
	switch s.peek() {
	case ']':
		s.i++
		s.depth--
		return false
	case ',':
		s.i++
		return true
	}
	s.fail(Syntax)
	return false
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special sets the high bit of the first byte of x that ends a run of plain text
// in a string: a quote, a backslash, a control character or a byte from 0xFE on.
// Bits above that first one mean nothing (a subtraction may have borrowed).
func special(x uint64) uint64 {
	// The three differences go below zero, so to a high bit, for the ASCII that is
	// looked for; the sum reaches one only from 0x7E on, which x's own high bit
	// makes 0xFE.
	m := (x - ' '*lows) | ((x ^ '"'*lows) - lows) | ((x ^ '\\'*lows) - lows)
	return (m&^x | ((x&^highs)+2*lows)&x) & highs
}

// plainRun returns the first index at or after i whose byte needs care, or the
// end.
func plainRun(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= 0xFE {
			return i
		}
	}
	return i
}

// copyString does what appendString does, faster and with more memory: dst gets
// room for the rest of the body, so that each step can store the bytes it
// looked at and see afterwards how many of them count.
func (s *scanner) copyString(dst []byte) []byte {
	b := s.b
	i := s.i + 1
	// Text never takes more room than what it was made of, so there is enough to
	// the end; what may take more is left to appendString.
	dst = slices.Grow(dst, len(b)-i+16)
	d, n := dst[:cap(dst)], len(dst)
	for len(b)-i >= 16 && len(d)-n >= 16 {
		src, dst := (*[16]byte)(b[i:]), (*[16]byte)(d[n:])
		x := binary.LittleEndian.Uint64(src[:8])
		binary.LittleEndian.PutUint64(dst[:8], x)
		m := special(x)
		if m == 0 {
			i += 8
			n += 8
			x = binary.LittleEndian.Uint64(src[8:])
			binary.LittleEndian.PutUint64(dst[8:], x)
			if m = special(x); m == 0 {
				i += 8
				n += 8
				continue
			}
		}
		k := bits.TrailingZeros64(m) >> 3
		i += k
		n += k
		c := b[i]
		if c == '"' {
			s.i = i + 1
			return d[:n]
		}
		if c != '\\' {
			break
		}
		for i+1 < len(b) && b[i] == '\\' { // escapes come in rows
			if e := escapes[b[i+1]]; e != 0 {
				d[n] = e
				i += 2
				n++
				continue
			}
			s.i = i
			r, ok := s.escape()
			if !ok {
				return d[:n]
			}
			n += utf8.EncodeRune(d[n:], r)
			i = s.i
		}
	}
	return s.appendRest(d[:n], i)
}

// appendString reads the string that is next and appends its text to dst. The
// text cannot contain the mark byte. Where the body ends inside the string, what
// was there is appended.
func (s *scanner) appendString(dst []byte) []byte { return s.appendRest(dst, s.i+1) }

// appendRest is appendString from byte i on.
func (s *scanner) appendRest(dst []byte, i int) []byte {
	b := s.b
	for {
		lo := i
		i = plainRun(b, i)
		dst = append(dst, b[lo:i]...)
		if i >= len(b) {
			s.i = i
			s.fail(Syntax)
			return trimRune(dst)
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return dst
		case c == '\\':
			if i+1 < len(b) {
				if e := escapes[b[i+1]]; e != 0 {
					dst = append(dst, e)
					i += 2
					continue
				}
			}
			s.i = i
			r, ok := s.escape()
			if !ok {
				return dst
			}
			dst = utf8.AppendRune(dst, r)
			i = s.i
		case c >= 0xFE:
			dst = appendHarmless(dst, c)
			i++
		default:
			s.i = i
			s.fail(Syntax)
			return dst
		}
	}
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads the escape that is next. A surrogate without its other half is
// the replacement character, as in encoding/json.
func (s *scanner) escape() (rune, bool) {
	if s.i+1 >= len(s.b) {
		s.i = len(s.b)
		s.fail(Syntax)
		return 0, false
	}
	if e := escapes[s.b[s.i+1]]; e != 0 {
		s.i += 2
		return rune(e), true
	}
	r, ok := hex4(s.b, s.i)
	if !ok {
		s.fail(Syntax)
		return 0, false
	}
	s.i += 6
	if utf16.IsSurrogate(r) {
		if r2, ok := hex4(s.b, s.i); ok {
			if d := utf16.DecodeRune(r, r2); d != utf8.RuneError {
				s.i += 6
				return d, true
			}
		} else if rest := s.b[s.i:]; len(rest) < 6 && (len(rest) == 0 || rest[0] == '\\' && (len(rest) == 1 || rest[1] == 'u')) {
			s.i = len(s.b) // cut before the other half could come
			s.fail(Syntax)
			return 0, false
		}
		return utf8.RuneError, true
	}
	return r, true
}

// hex4 reads \uXXXX at i.
func hex4(b []byte, i int) (rune, bool) {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// skipString passes the string that is next and reports whether its text is the
// bytes between its quotes.
func (s *scanner) skipString() (plain bool) {
	plain = true
	i := s.i + 1
	for {
		i = plainRun(s.b, i)
		if i >= len(s.b) {
			s.i = i
			s.fail(Syntax)
			return false
		}
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return plain
		case c == '\\':
			plain = false
			if i+1 < len(s.b) && escapes[s.b[i+1]] != 0 {
				i += 2
				continue
			}
			if _, ok := hex4(s.b, i); !ok {
				s.i = i
				s.fail(Syntax)
				return false
			}
			i += 6
		case c >= 0xFE:
			plain = false
			i++
		default:
			s.i = i
			s.fail(Syntax)
			return false
		}
	}
}

// skip passes the value that is next, of any type.
func (s *scanner) skip() {
	switch c := s.peek(); c {
	case '"':
		if _, ok := s.raw(); !ok {
			s.skipString()
		}
	case '{':
		for _, ok := s.firstKey(); ok; _, ok = s.nextKey() {
			s.skip()
		}
	case '[':
		for ok := s.firstElem(); ok; ok = s.nextElem() {
			s.skip()
		}
	default:
		s.scalar(c)
	}
}

// scalar passes a number, true, false or null that begins with c and returns its
// literal.
func (s *scanner) scalar(c byte) []byte {
	lo := s.i
	switch c {
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.number()
	}
	return s.b[lo:s.i]
}

func (s *scanner) word(w string) {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.fail(Syntax)
		return
	}
	s.i += len(w)
}

// null passes a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return true
}

// number passes a number as RFC 8259 writes it.
func (s *scanner) number() {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		s.digits()
	}
}

func (s *scanner) digits() bool {
	lo := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	if s.i == lo {
		s.fail(Syntax)
		return false
	}
	return true
}

// end reports a failure where anything but white space follows.
func (s *scanner) end() {
	if s.err == nil && (s.peek() != 0 || s.i < len(s.b)) {
		s.fail(Syntax)
	}
}
