package prompt

import (
	"bytes"

	"github.com/warmroute/router/internal/jsonscan"
)

// Canonical JSON: no white space, members in their order, numbers as they were
// written, strings with the least escapes. So an object is one text whether an
// engine streams it in pieces with spaces and \u escapes or a client sends it
// back its own way. It is never longer than the text it was made of, but for bytes
// that need to be made harmless.

// markers says which members named cache_control are a client's caching hints
// and no part of the prompt.
type markers uint8

const (
	keepMarkers  markers = iota // a tool call's own data: all is kept
	deepMarkers                 // those that look like a hint; a schema may have a property of that name
	ownedMarkers                // the object's own, then as deepMarkers
	blockMarkers                // as ownedMarkers, and large data is digested
	itemMarkers                 // as blockMarkers, without the object's own id and status
)

// maxData is the greatest length of data in an unknown block that is copied, in bytes.
const maxData = 1 << 10

// canon reads the value that is next and appends its canonical form.
func canon(s *jsonscan.Scanner, dst []byte, m markers) []byte {
	switch c := s.Peek(); c {
	case '"':
		if m < blockMarkers {
			return s.AppendCanon(dst)
		}
		lo := len(dst)
		return digestData(s.AppendCanon(dst), lo)
	case '{':
		dst = append(dst, '{')
		n := 0
		for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
			if m != keepMarkers && string(k) == "cache_control" && (m >= ownedMarkers || isMarker(s)) {
				s.Skip()
				continue
			}
			if m == itemMarkers && (string(k) == "id" || string(k) == "status") {
				s.Skip()
				continue
			}
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			if s.Plain {
				dst = append(dst, '"')
				dst = append(dst, k...)
				dst = append(dst, '"', ':')
			} else {
				dst = append(jsonscan.AppendQuoted(dst, k), ':')
			}
			inner := m
			switch {
			case m == ownedMarkers && string(k) != "function":
				inner = deepMarkers
			case m == itemMarkers:
				inner = blockMarkers
			}
			dst = canon(s, dst, inner)
		}
		if s.Fault == 0 {
			dst = append(dst, '}')
		}
		return dst
	case '[':
		dst = append(dst, '[')
		n := 0
		for ok := s.FirstElem(); ok; ok = s.NextElem() {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = canon(s, dst, m)
		}
		if s.Fault == 0 {
			dst = append(dst, ']')
		}
		return dst
	default:
		return append(dst, s.Scalar(c)...)
	}
}

// digestData puts a digest in the place of the canonical string that dst ends with from lo on, if it is large data: a
// data URL, or nothing but base64.
func digestData(dst []byte, lo int) []byte {
	data := dst[lo:]
	if len(data) <= maxData || !bytes.HasPrefix(data, []byte(`"data:`)) && !isBase64(data[1:maxData]) {
		return dst
	}
	var d digest
	d.add(data)
	return d.append(append(dst[:lo], mark, kindMedia))
}

func isBase64(b []byte) bool {
	for _, c := range b {
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '-', c == '_', c == '=':
		default:
			return false
		}
	}
	return true
}

// isMarker reports whether the value that is next is null or a caching hint,
// {"type":"ephemeral"} and maybe a lifetime, and does not consume it.
func isMarker(s *jsonscan.Scanner) bool {
	look := *s
	switch look.Peek() {
	case 'n':
		return true
	case '{':
	default:
		return false
	}
	// A hint is short and flat: objects in it are not looked into, since hints nested in hints would be read once for
	// each level.
	look.B = look.B[:min(len(look.B), look.I+256)]
	is := false
	for k, ok := look.FirstKey(); ok && !is; k, ok = look.NextKey() {
		if c := look.Peek(); c == '{' || c == '[' {
			break
		}
		lo := look.I
		typ := string(k) == "type"
		look.Skip()
		if typ {
			is = string(look.B[lo:look.I]) == `"ephemeral"`
			break
		}
	}
	s.Ahead += look.I - s.I
	return is
}
