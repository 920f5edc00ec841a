package main

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// span is where something stands in a body.
type span struct{ lo, hi int }

// maxNames bounds how often a body may name its model. Once is right; the engines
// take the last.
const maxNames = 16

// modelSpans finds the values of all members "model" of the object that body is.
// What comes after a mistake is not looked at: the engines refuse such a body. It is
// false where there are more than maxNames.
func modelSpans(body []byte) ([]span, bool) {
	s := skipper{b: body}
	if s.peek() != '{' {
		return nil, true
	}
	var found []span
	for s.i++; s.peek() == '"'; s.i++ {
		lo := s.i
		s.str()
		key := body[lo:s.i]
		if s.peek() != ':' {
			return found, true
		}
		s.i++
		s.peek()
		lo = s.i
		s.value()
		if isModel(key) && s.i > lo {
			if len(found) == maxNames {
				return nil, false
			}
			found = append(found, span{lo, s.i})
		}
		if s.peek() != ',' {
			break
		}
	}
	return found, true
}

// isModel reports whether a key, with its quotes, is "model" in any spelling.
func isModel(key []byte) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key) == `"model"`
	}
	var k string
	return len(key) <= len(`"model"`)*6 && json.Unmarshal(key, &k) == nil && k == "model"
}

// skipper passes over JSON that it does not check.
type skipper struct {
	b []byte
	i int
}

// peek passes white space and returns the next byte, 0 at the end.
func (s *skipper) peek() byte {
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
func (s *skipper) str() {
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
func (s *skipper) value() {
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

// edit is a body in which some spans are replaced. The zero edit changes nothing.
type edit struct {
	at    []span // in order
	value []byte
}

// rename returns the edit that makes name the model.
func rename(at []span, name string) edit {
	v, err := json.Marshal(name)
	if err != nil {
		return edit{} // no string fails
	}
	return edit{at: at, value: v}
}

// size returns the length of a body of n bytes with the edit.
func (e edit) size(n int) int {
	for _, s := range e.at {
		n += len(e.value) - (s.hi - s.lo)
	}
	return n
}

// piece returns the i-th piece of the edited body, false after the last.
func (e edit) piece(body []byte, i int) ([]byte, bool) {
	n, second := i/2, i%2 == 1
	switch {
	case n > len(e.at) || n == len(e.at) && second:
		return nil, false
	case second:
		return e.value, true
	}
	lo, hi := 0, len(body)
	if n > 0 {
		lo = e.at[n-1].hi
	}
	if n < len(e.at) {
		hi = e.at[n].lo
	}
	return body[lo:hi], true
}

// apply returns a copy of body with the edit.
func (e edit) apply(body []byte) []byte {
	out := make([]byte, 0, e.size(len(body)))
	for i := 0; ; i++ {
		p, ok := e.piece(body, i)
		if !ok {
			return out
		}
		out = append(out, p...)
	}
}

// withHeader returns h with the headers of set, which replace those of the same
// names. h itself is not changed.
func withHeader(h, set http.Header) http.Header {
	if len(set) == 0 {
		return h
	}
	out := make(http.Header, len(h)+len(set))
	for k, v := range h {
		out[k] = v
	}
	for k, v := range set {
		out[k] = v
	}
	return out
}
