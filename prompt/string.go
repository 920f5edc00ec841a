package prompt

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

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

// hex4 reads \u and four hex digits at i.
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
