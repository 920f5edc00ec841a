package prompt

import "unicode/utf8"

// Canonical JSON: no white space, members in their order, numbers as they were
// written, strings with the least escapes. So an object is one text whether an
// engine streams it in pieces with spaces and \u escapes or a client sends it
// back its own way. It is never longer than what it was made of, but for bytes
// that need to be made harmless.

// markers says which members named cache_control are a client's caching hints
// and no part of the prompt.
type markers uint8

const (
	keepMarkers  markers = iota // a tool call's own data: all is kept
	deepMarkers                 // those that look like a hint; a schema may have a property of that name
	ownedMarkers                // the object's own, then as deepMarkers
)

// canon reads the value that is next and appends its canonical form.
func (s *scanner) canon(dst []byte, m markers) []byte {
	switch c := s.peek(); c {
	case '"':
		return s.canonString(dst)
	case '{':
		dst = append(dst, '{')
		n := 0
		for k, ok := s.firstKey(); ok; k, ok = s.nextKey() {
			if m != keepMarkers && string(k) == "cache_control" && (m == ownedMarkers || s.isMarker()) {
				s.skip()
				continue
			}
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			if s.plain {
				dst = append(dst, '"')
				dst = append(dst, k...)
				dst = append(dst, '"', ':')
			} else {
				dst = append(appendQuoted(dst, k), ':')
			}
			inner := m
			if m == ownedMarkers && string(k) != "function" {
				inner = deepMarkers
			}
			dst = s.canon(dst, inner)
		}
		if s.err == nil {
			dst = append(dst, '}')
		}
		return dst
	case '[':
		dst = append(dst, '[')
		n := 0
		for ok := s.firstElem(); ok; ok = s.nextElem() {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = s.canon(dst, m)
		}
		if s.err == nil {
			dst = append(dst, ']')
		}
		return dst
	default:
		return append(dst, s.scalar(c)...)
	}
}

// isMarker reports whether the value that is next is null or a caching hint,
// {"type":"ephemeral"}, and leaves it where it is.
func (s *scanner) isMarker() bool {
	look := *s
	// A hint is short. Without the bound, hints nested in hints would be read once
	// for each level.
	look.b = look.b[:min(len(look.b), look.i+256)]
	switch look.peek() {
	case 'n':
		return true
	case '{':
		return string(look.member1("type")) == `ephemeral`
	}
	return false
}

// member1 returns the string value of the first member of this name in the
// object that is next, raw; nil where there is none or it has escapes. It moves
// s.
func (s *scanner) member1(name string) []byte {
	for k, ok := s.firstKey(); ok; k, ok = s.nextKey() {
		if string(k) != name {
			s.skip()
			continue
		}
		if s.peek() != '"' {
			return nil
		}
		lo := s.i + 1
		if !s.skipString() {
			return nil
		}
		return s.b[lo : s.i-1]
	}
	return nil
}

// canonString reads the string that is next and appends it, quoted.
func (s *scanner) canonString(dst []byte) []byte {
	b := s.b
	lo := s.i
	i := lo + 1
	for {
		i = plainRun(b, i)
		if i >= len(b) {
			s.i = i
			s.fail(Syntax)
			return trimRune(append(dst, b[lo:]...))
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return append(dst, b[lo:s.i]...)
		case c == '\\':
			if i+1 < len(b) && b[i+1] != '/' && escapes[b[i+1]] != 0 {
				i += 2 // the short escapes are the canonical ones
				continue
			}
			dst = append(dst, b[lo:i]...)
			s.i = i
			r, ok := s.escape()
			if !ok {
				return dst
			}
			dst = appendQuotedRune(dst, r)
			i, lo = s.i, s.i
		case c >= 0xFE:
			dst = append(dst, b[lo:i]...)
			dst = appendHarmless(dst, c)
			i++
			lo = i
		default:
			dst = append(dst, b[lo:i]...)
			s.i = i
			s.fail(Syntax)
			return dst
		}
	}
}

// appendQuoted appends text k, which has been made harmless, as a canonical
// string.
func appendQuoted(dst, k []byte) []byte {
	dst = append(dst, '"')
	lo := 0
	for i, c := range k {
		if c < ' ' || c == '"' || c == '\\' {
			dst = append(dst, k[lo:i]...)
			dst = appendQuotedRune(dst, rune(c))
			lo = i + 1
		}
	}
	dst = append(dst, k[lo:]...)
	return append(dst, '"')
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
