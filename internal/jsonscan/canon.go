package jsonscan

import "unicode/utf8"

// AppendCanon reads the string that is next and appends it, quoted.
func (s *Scanner) AppendCanon(dst []byte) []byte {
	b := s.B
	lo := s.I
	i := lo + 1
	for {
		i = plainRun(b, i)
		if i >= len(b) {
			s.I = i
			s.fail(Syntax)
			return Trim(append(dst, b[lo:]...))
		}
		switch c := b[i]; {
		case c == '"':
			s.I = i + 1
			return append(dst, b[lo:s.I]...)
		case c == '\\':
			if i+1 < len(b) && b[i+1] != '/' && escapes[b[i+1]] != 0 {
				i += 2 // the short escapes are the canonical ones
				continue
			}
			dst = append(dst, b[lo:i]...)
			s.I = i
			r, ok := s.escape()
			if !ok {
				return dst
			}
			dst = appendQuotedRune(dst, r)
			i, lo = s.I, s.I
		case c >= Harmless:
			dst = append(dst, b[lo:i]...)
			dst = AppendHarmless(dst, c)
			i++
			lo = i
		default:
			dst = append(dst, b[lo:i]...)
			s.I = i
			s.fail(Syntax)
			return dst
		}
	}
}

// AppendQuoted appends text k, which has been made harmless or is UTF-8, as a canonical
// string.
func AppendQuoted(dst, k []byte) []byte {
	dst = append(dst, '"')
	for lo, i := 0, 0; ; lo = i {
		i = plainRun(k, i)
		for i < len(k) && k[i] >= Harmless {
			i = plainRun(k, i+1)
		}
		dst = append(dst, k[lo:i]...)
		if i == len(k) {
			return append(dst, '"')
		}
		dst = appendQuotedRune(dst, rune(k[i]))
		i++
	}
}

func appendQuotedRune(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r == '\b':
		return append(dst, '\\', 'b')
	case r == '\f':
		return append(dst, '\\', 'f')
	case r == '\n':
		return append(dst, '\\', 'n')
	case r == '\r':
		return append(dst, '\\', 'r')
	case r == '\t':
		return append(dst, '\\', 't')
	case r < ' ':
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}
