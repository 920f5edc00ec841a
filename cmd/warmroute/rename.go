package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

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

// namePlace is where a request names its model.
type namePlace uint8

const (
	inJSON  namePlace = iota // a member of the body
	inForm                   // a field of a multipart form
	inPairs                  // a field of a form in one line
	inQuery                  // a parameter of the URL
)

// rename returns the edit that makes name the model of a JSON body.
func rename(at []reqbody.Span, name string) edit {
	v, err := json.Marshal(name)
	if err != nil {
		return edit{} // no string fails
	}
	return edit{at: at, value: v}
}

// renameQuery returns u with name for the model.
func renameQuery(u *url.URL, name string) *url.URL {
	q := u.Query()
	q.Set("model", name)
	out := *u
	out.RawQuery = q.Encode()
	return &out
}

// named is the model of a request.
type named struct {
	model string
	where namePlace
	at    []reqbody.Span // in the body
}

// elsewhere returns the model of a request of which the body is no JSON object with one: that of a form, or of the URL.
// It is false if it is named too often.
func elsewhere(r *http.Request, body []byte) (named, bool) {
	if ct := r.Header.Get("Content-Type"); len(body) > 0 && ct != "" && !isJSON(ct) {
		model, at, ok := formModel(ct, body)
		if model != "" || !ok {
			n := named{model, inForm, at}
			if strings.HasPrefix(strings.ToLower(ct), "application/x-www-form-urlencoded") {
				n.where = inPairs
			}
			return n, ok
		}
	}
	return named{model: r.URL.Query().Get("model"), where: inQuery}, true
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
