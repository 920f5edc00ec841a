package main

import (
	"encoding/json"
	"net/http"

	"github.com/warmroute/router/internal/reqbody"
)

// maxNames bounds how often a body may name its model. Once is right; the engines
// take the last.
const maxNames = 16

// modelSpans returns the values of all members "model" of the object that body is, up to
// the first mistake: engines refuse such a body. It is false if there are more than
// maxNames.
func modelSpans(body []byte) ([]reqbody.Span, bool) {
	var found []reqbody.Span
	for key, value := range reqbody.Members(body) {
		if string(key) != "model" {
			continue
		}
		if len(found) == maxNames {
			return nil, false
		}
		found = append(found, value)
	}
	return found, true
}

// edit is a body in which some spans are replaced. The zero edit changes nothing.
type edit struct {
	at    []reqbody.Span // in order
	value []byte
}

// rename returns the edit that makes name the model.
func rename(at []reqbody.Span, name string) edit {
	v, err := json.Marshal(name)
	if err != nil {
		return edit{} // no string fails
	}
	return edit{at: at, value: v}
}

// size returns the length of a body of n bytes with the edit.
func (e edit) size(n int) int {
	for _, s := range e.at {
		n += len(e.value) - (s.Hi - s.Lo)
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
		lo = e.at[n-1].Hi
	}
	if n < len(e.at) {
		hi = e.at[n].Lo
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
