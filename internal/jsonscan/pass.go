package jsonscan

import "bytes"

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
	for s.I++; s.I < len(s.B); s.I++ {
		n := bytes.IndexByte(s.B[s.I:], '"')
		if n < 0 {
			s.I = len(s.B)
			return
		}
		escapes := 0
		for escapes < n && s.B[s.I+n-1-escapes] == '\\' {
			escapes++
		}
		if s.I += n; escapes%2 == 0 {
			s.I++
			return
		}
	}
}
