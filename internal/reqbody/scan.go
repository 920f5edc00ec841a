package reqbody

import (
	"bytes"
	"iter"
)

// Span is a part of a body, from Lo to before Hi.
type Span struct{ Lo, Hi int }

// Members returns the members of the JSON object that body is: each key, in its quotes,
// and the place of its value. There are none after the first mistake.
func Members(body []byte) iter.Seq2[[]byte, Span] {
	return func(yield func(key []byte, value Span) bool) {
		s := scanner{b: body}
		if s.peek() != '{' {
			return
		}
		for key := range s.members {
			lo := s.i
			s.value()
			if s.i > lo && !yield(key, Span{lo, s.i}) {
				return
			}
		}
	}
}

// scanner passes over JSON that it does not check.
type scanner struct {
	b []byte
	i int
}

// members calls yield with the key, in its quotes, of each member of the object that
// begins here, with s at its value, which it passes unless yield does.
func (s *scanner) members(yield func(key []byte) bool) {
	for s.i++; s.peek() == '"'; s.i++ {
		lo := s.i
		s.str()
		key := s.b[lo:s.i]
		if s.peek() != ':' {
			return
		}
		s.i++
		s.peek()
		at := s.i
		if !yield(key) {
			return
		}
		if s.i == at {
			s.value()
		}
		if s.peek() != ',' {
			break
		}
	}
	if s.peek() == '}' {
		s.i++
	}
}

// elements calls yield for each element of the array that begins here, with s at it,
// which it passes unless yield does.
func (s *scanner) elements(yield func() bool) {
	for s.i++; s.i < len(s.b); s.i++ {
		if s.peek() == ']' {
			break
		}
		at := s.i
		if !yield() {
			return
		}
		if s.i == at {
			s.value()
		}
		if s.peek() != ',' {
			break
		}
	}
	if s.peek() == ']' {
		s.i++
	}
}

// peek passes white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// str passes the string that begins here.
func (s *scanner) str() {
	for s.i++; s.i < len(s.b); s.i++ {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			s.i = len(s.b)
			return
		}
		escapes := 0
		for escapes < n && s.b[s.i+n-1-escapes] == '\\' {
			escapes++
		}
		if s.i += n; escapes%2 == 0 {
			s.i++
			return
		}
	}
}

// value passes the value that begins here.
func (s *scanner) value() {
	for depth := 0; s.i < len(s.b); {
		switch s.b[s.i] {
		case '"':
			s.str()
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
				s.i++
				return
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return
			}
		}
		s.i++
	}
}
