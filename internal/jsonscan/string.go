package jsonscan

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

// Mark cannot occur in valid UTF-8, nor in a string that a Scanner appends: there both bytes are written as
// Harmless and a small number.
const (
	Mark     = 0xFF
	Harmless = 0xFE
)

// AppendHarmless appends the two bytes that stand for c, Mark or Harmless, in a text.
func AppendHarmless(dst []byte, c byte) []byte { return append(dst, Harmless, c-Harmless+1) }

// Trim cuts off the bytes that cannot stand at the end of a text that was cut: a part
// of a rune, of a mark or of a byte made harmless.
func Trim(b []byte) []byte { return b[:Boundary(b, len(b))] }

// Boundary returns the greatest index up to n at which text b may be cut.
func Boundary[T string | []byte](b T, n int) int {
	if n >= len(b) {
		n = len(b)
	} else if n < 0 {
		n = 0
	}
	if n > 0 && b[n-1] >= Harmless {
		return n - 1
	}
	for i := n - 1; i >= 0 && i > n-utf8.UTFMax; i-- {
		c := b[i]
		if c < utf8.RuneSelf {
			break
		}
		if utf8.RuneStart(c) {
			if !utf8.FullRune([]byte(b[i:n])) {
				return i
			}
			break
		}
	}
	return n
}

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

// plainRun returns the first index at or after i with a byte that needs care,
// or the end.
func plainRun(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= Harmless {
			return i
		}
	}
	return i
}

// CopyString does what AppendString does, faster and with more memory: dst gets
// scratch for the rest of the body, so that each step can store the bytes it
// looked at and see afterwards how many of them count.
func (s *Scanner) CopyString(dst []byte) []byte {
	b := s.B
	i := s.I + 1
	// Text never takes more bytes than its JSON, so there is enough to
	// the end; bytes that may take more are left to AppendString.
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
			s.I = i + 1
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
			s.I = i
			r, ok := s.escape()
			if !ok {
				return d[:n]
			}
			n += utf8.EncodeRune(d[n:], r)
			i = s.I
		}
	}
	return s.appendRest(d[:n], i)
}

// AppendString reads the string that is next and appends its text to dst. The
// text cannot contain the mark byte. If the body ends inside the string, the part
// that was there is appended.
func (s *Scanner) AppendString(dst []byte) []byte { return s.appendRest(dst, s.I+1) }

// appendRest is AppendString from byte i on.
func (s *Scanner) appendRest(dst []byte, i int) []byte {
	b := s.B
	for {
		lo := i
		i = plainRun(b, i)
		dst = append(dst, b[lo:i]...)
		if i >= len(b) {
			s.I = i
			s.fail(Syntax)
			return Trim(dst)
		}
		switch c := b[i]; {
		case c == '"':
			s.I = i + 1
			return dst
		case c == '\\':
			if i+1 < len(b) {
				if e := escapes[b[i+1]]; e != 0 {
					dst = append(dst, e)
					i += 2
					continue
				}
			}
			s.I = i
			r, ok := s.escape()
			if !ok {
				return dst
			}
			dst = utf8.AppendRune(dst, r)
			i = s.I
		case c >= Harmless:
			dst = AppendHarmless(dst, c)
			i++
		default:
			s.I = i
			s.fail(Syntax)
			return dst
		}
	}
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads the escape that is next. A surrogate without its other half is
// the replacement character, as in encoding/json.
func (s *Scanner) escape() (rune, bool) {
	if s.I+1 >= len(s.B) {
		s.I = len(s.B)
		s.fail(Syntax)
		return 0, false
	}
	if e := escapes[s.B[s.I+1]]; e != 0 {
		s.I += 2
		return rune(e), true
	}
	r, ok := hex4(s.B, s.I)
	if !ok {
		s.fail(Syntax)
		return 0, false
	}
	s.I += 6
	if utf16.IsSurrogate(r) {
		if r2, ok := hex4(s.B, s.I); ok {
			if d := utf16.DecodeRune(r, r2); d != utf8.RuneError {
				s.I += 6
				return d, true
			}
		} else if rest := s.B[s.I:]; len(rest) < 6 &&
			(len(rest) == 0 || rest[0] == '\\' && (len(rest) == 1 || rest[1] == 'u')) {
			s.I = len(s.B) // cut before the other half could come
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

// SkipString passes the string that is next and reports whether its text is the
// bytes between its quotes.
func (s *Scanner) SkipString() (plain bool) {
	plain = true
	i := s.I + 1
	for {
		i = plainRun(s.B, i)
		if i >= len(s.B) {
			s.I = i
			s.fail(Syntax)
			return false
		}
		switch c := s.B[i]; {
		case c == '"':
			s.I = i + 1
			return plain
		case c == '\\':
			plain = false
			if i+1 < len(s.B) && escapes[s.B[i+1]] != 0 {
				i += 2
				continue
			}
			if _, ok := hex4(s.B, i); !ok {
				s.I = i
				s.fail(Syntax)
				return false
			}
			i += 6
		case c >= Harmless:
			plain = false
			i++
		default:
			s.I = i
			s.fail(Syntax)
			return false
		}
	}
}
