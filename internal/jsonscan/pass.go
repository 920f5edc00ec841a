package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Pass passes the value that is next, of any type and depth, without checking it: it finds the end of every
// value that Skip passes, many times as fast. Of a value with a mistake it passes a part or all. It sets no
// Fault.
func (s *Scanner) Pass() {
	s.Peek()
	for depth := 0; s.I < len(s.B); {
		switch s.B[s.I] {
		case '"':
			s.passString()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return
			}
			if depth--; depth == 0 {
				s.I++
				return
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return
			}
		}
		s.I++
	}
}

// passString passes the string that is next, to the first quote after an even number of backslashes.
func (s *Scanner) passString() {
	b, i := s.B, s.I+1
	lo, none := i, 0 // none: words without a quote
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:]) ^ '"'*lows
		m := ^((x&^highs + sevens) | x) & highs // of each quote
		if m == 0 {
			i += 8
			if none++; none < nearWords {
				continue
			}
			// A text with quotes has them close together. A search for a distant one has a start-up time.
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				break
			}
			i += n
		}
		none = 0
		for ; m != 0; m &= m - 1 {
			if q := i + bits.TrailingZeros64(m)>>3; !escaped(b[lo:q]) {
				s.I = q + 1
				return
			}
			if m&(m-1) == 0 {
				i += 8
			}
		}
	}
	for ; i < len(b); i++ {
		if b[i] == '"' && !escaped(b[lo:i]) {
			s.I = i + 1
			return
		}
	}
	s.I = len(b)
}

const (
	nearWords = 8
	sevens    = 0x7f7f7f7f7f7f7f7f
)

// escaped reports whether b ends with an odd number of backslashes.
func escaped(b []byte) bool {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return (len(b)-n)%2 == 1
}
