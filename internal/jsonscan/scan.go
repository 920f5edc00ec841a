// Package jsonscan reads JSON in one pass and without a copy: the reader that package prompt and
// others share. It takes the texts that Python's reader takes, since engines use that: RFC 8259 and
// NaN, Infinity and -Infinity, and a byte order mark before it.
//
// It is our own because the text of a conversation is nearly all of its body, so
// speed is decided by how a string goes from the body to the canonical text.
// Readers in the field give a string as a copy of its own or raw and unchecked,
// both a second pass over every byte, and none makes the mark byte harmless on
// the way. This one finds the next byte that needs care eight bytes at a time
// and writes straight into the result.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
)

// MaxDepth is how deep a text may nest. The engines' own JSON readers give up at
// about as much (CPython's recursion limit is 1,000).
const MaxDepth = 1000

// Fault says why a Scanner went no further. The zero Fault is none.
type Fault uint8

// The faults.
const (
	Syntax  Fault = iota + 1 // the text is not JSON
	TooDeep                  // it nests deeper than MaxDepth
)

// Start returns a Scanner of the text b, behind a byte order mark if there is one.
func Start(b []byte) Scanner {
	s := Scanner{B: b}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		s.I = 3
	}
	return s
}

// Scanner is a pull reader of the JSON text B, from byte I on. The zero Scanner reads nothing; a copy
// reads on by itself, so a copy made before a value can look ahead into it. After a fault every method reports
// that nothing follows.
type Scanner struct {
	B []byte
	I int
	// Ahead counts the bytes that were read more than once, by copies that looked ahead: those who look add them.
	// With I it bounds the work that was done.
	Ahead int
	depth int
	Fault Fault
	At    int  // the byte at which Fault was seen
	Plain bool // the last key had no escapes
}

func (s *Scanner) fail(f Fault) {
	if s.Fault == 0 {
		s.Fault, s.At = f, s.I
	}
}

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.I < len(s.B) {
		if c := s.B[s.I]; c > ' ' {
			return c
		}
	}
	return s.peekSpace()
}

func (s *Scanner) peekSpace() byte {
	for s.I < len(s.B) {
		switch c := s.B[s.I]; c {
		case ' ', '\n', '\r', '\t':
			s.I++
		default:
			return c
		}
	}
	return 0
}

func (s *Scanner) enter() bool {
	s.I++
	if s.depth++; s.depth > MaxDepth {
		s.fail(TooDeep)
		return false
	}
	return true
}

// FirstKey enters the object that is next and returns its first key and true,
// or false if it has none; NextKey goes on after the member's value was
// read. The key is good until the next call.
func (s *Scanner) FirstKey() ([]byte, bool) {
	if s.Fault != 0 || !s.enter() {
		return nil, false
	}
	switch s.Peek() {
	case '}':
		s.I++
		s.depth--
		return nil, false
	case '"':
		return s.member()
	}
	s.fail(Syntax)
	return nil, false
}

// NextKey returns the next key of the object that FirstKey entered, or false at its end.
func (s *Scanner) NextKey() ([]byte, bool) {
	if s.Fault != 0 {
		return nil, false
	}
	switch s.Peek() {
	case '}':
		s.I++
		s.depth--
		return nil, false
	case ',':
		s.I++
		if s.Peek() == '"' {
			return s.member()
		}
	}
	s.fail(Syntax)
	return nil, false
}

// member reads a key and its colon.
func (s *Scanner) member() ([]byte, bool) {
	k, ok := s.Raw()
	if s.Plain = ok; !ok {
		k = s.AppendString(nil)
		if s.Fault != 0 {
			return nil, false
		}
	}
	if s.I < len(s.B) && s.B[s.I] == ':' {
		s.I++
		return k, true
	}
	if s.Peek() != ':' {
		s.fail(Syntax)
		return nil, false
	}
	s.I++
	return k, true
}

// Raw reads the string that is next and returns the bytes between its quotes,
// if these are its text. Otherwise it reads nothing.
func (s *Scanner) Raw() ([]byte, bool) {
	lo := s.I + 1
	i := lo
	if len(s.B)-i >= 8 { // most are short
		i += bits.TrailingZeros64(special(binary.LittleEndian.Uint64(s.B[i:]))) >> 3
		if i < len(s.B) && s.B[i] == '"' {
			s.I = i + 1
			return s.B[lo:i], true
		}
	}
	i = plainRun(s.B, i)
	if i == len(s.B) || s.B[i] != '"' {
		return nil, false
	}
	s.I = i + 1
	return s.B[lo:i], true
}

// FirstElem enters the array that is next and reports whether it has an element. NextElem goes on after that
// was read.
func (s *Scanner) FirstElem() bool {
	if s.Fault != 0 || !s.enter() {
		return false
	}
	if s.Peek() == ']' {
		s.I++
		s.depth--
		return false
	}
	return true
}

// NextElem reports whether another element follows in the array that FirstElem entered.
func (s *Scanner) NextElem() bool {
	if s.Fault != 0 {
		return false
	}
	switch s.Peek() {
	case ']':
		s.I++
		s.depth--
		return false
	case ',':
		s.I++
		return true
	}
	s.fail(Syntax)
	return false
}

// Skip passes the value that is next, of any type.
func (s *Scanner) Skip() {
	switch c := s.Peek(); c {
	case '"':
		if _, ok := s.Raw(); !ok {
			s.SkipString()
		}
	case '{':
		for _, ok := s.FirstKey(); ok; _, ok = s.NextKey() {
			s.Skip()
		}
	case '[':
		for ok := s.FirstElem(); ok; ok = s.NextElem() {
			s.Skip()
		}
	default:
		s.Scalar(c)
	}
}

// Scalar passes a number, true, false or null that begins with c and returns its
// literal.
func (s *Scanner) Scalar(c byte) []byte {
	lo := s.I
	switch c {
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	case 'N':
		s.word("NaN")
	case 'I':
		s.word("Infinity")
	default:
		s.number()
	}
	return s.B[lo:s.I]
}

func (s *Scanner) word(w string) {
	if len(s.B)-s.I < len(w) || string(s.B[s.I:s.I+len(w)]) != w {
		s.fail(Syntax)
		return
	}
	s.I += len(w)
}

// Null passes a null and reports whether there was one.
func (s *Scanner) Null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.word("null")
	return true
}

// number passes a number as RFC 8259 writes it, or -Infinity.
func (s *Scanner) number() {
	if s.I < len(s.B) && s.B[s.I] == '-' {
		if s.I++; s.I < len(s.B) && s.B[s.I] == 'I' {
			s.word("Infinity")
			return
		}
	}
	if s.I < len(s.B) && s.B[s.I] == '0' {
		s.I++
	} else if !s.digits() {
		return
	}
	if s.I < len(s.B) && s.B[s.I] == '.' {
		s.I++
		if !s.digits() {
			return
		}
	}
	if s.I < len(s.B) && s.B[s.I]|0x20 == 'e' {
		s.I++
		if s.I < len(s.B) && (s.B[s.I] == '+' || s.B[s.I] == '-') {
			s.I++
		}
		s.digits()
	}
}

func (s *Scanner) digits() bool {
	lo := s.I
	for s.I < len(s.B) && s.B[s.I]-'0' <= 9 {
		s.I++
	}
	if s.I == lo {
		s.fail(Syntax)
		return false
	}
	return true
}

// End fails if anything but white space follows.
func (s *Scanner) End() {
	if s.Fault == 0 && (s.Peek() != 0 || s.I < len(s.B)) {
		s.fail(Syntax)
	}
}

// Int reads a number of at most 32 bits; any other value is 0.
func (s *Scanner) Int() int {
	c := s.Peek()
	if c < '0' || c > '9' {
		s.Skip()
		return 0
	}
	n, _ := Uint32(s.Scalar(c))
	return int(min(n, math.MaxInt32))
}

// Uint32 reads a decimal number that fits 32 bits.
func Uint32[T string | []byte](s T) (uint32, bool) {
	if len(s) == 0 {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		if n = n*10 + uint64(c); n > 1<<32-1 {
			return 0, false
		}
	}
	return uint32(n), true
}

// Member returns the string value of the first member of this name in the
// object that is next, raw; nil if there is none or it has escapes. It moves
// s.
func (s *Scanner) Member(name string) []byte {
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		if string(k) != name {
			s.Skip()
			continue
		}
		if s.Peek() != '"' {
			return nil
		}
		lo := s.I + 1
		if !s.SkipString() {
			return nil
		}
		return s.B[lo : s.I-1]
	}
	return nil
}

// IntOf returns the number that the object that is next has under name, as Int has it; 0 if there is none. It
// does not move s.
func (s *Scanner) IntOf(name string) int {
	n, _ := s.FindInt(name)
	return n
}

// FindInt is IntOf and reports whether there is a number.
func (s *Scanner) FindInt(name string) (n int, found bool) {
	look := *s
	if look.Peek() != '{' {
		return 0, false
	}
	for k, ok := look.FirstKey(); ok; k, ok = look.NextKey() {
		if string(k) == name {
			found = look.AtDigit()
			n = look.Int()
		} else {
			look.Skip()
		}
	}
	return n, found
}

// AtDigit reports whether a number that is not negative is next.
func (s *Scanner) AtDigit() bool {
	c := s.Peek()
	return c >= '0' && c <= '9'
}
