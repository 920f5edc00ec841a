package prompt

import (
	"encoding/binary"
	"math/bits"
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
	plain bool // the last key had no escapes
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
	if s.plain = ok; !ok {
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
