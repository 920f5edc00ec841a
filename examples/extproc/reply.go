package main

import (
	"net/http"
	"strconv"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// reply learns from a reply as it passes by.
type reply struct {
	status  int
	encoded bool        // compressed: its text cannot be read
	kept    http.Header // those that an outcome is made of
	text    prompt.Reply
}

func (r *reply) header(key, v string) {
	switch key {
	case ":status":
		r.status, _ = strconv.Atoi(v)
	case "content-encoding":
		r.encoded = v != "" && v != "identity"
	case "retry-after":
		r.kept = http.Header{"Retry-After": {v}}
	}
}

// write takes the next bytes and reports whether the engine has begun to answer.
func (r *reply) write(b []byte) bool {
	if r.status < 200 || r.status > 299 {
		return false
	}
	if !r.encoded {
		r.text.Write(b) // never fails
	}
	return true
}

// outcome is that of a reply that came to its end.
func (r *reply) outcome() router.Outcome { return r.text.Outcome(r.status, r.kept) }
