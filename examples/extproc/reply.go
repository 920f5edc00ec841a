package main

import (
	"net/http"
	"strconv"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// reply learns from a reply as it passes by.
type reply struct {
	status int
	seen   bool        // a part of the body came here
	kept   http.Header // those that an outcome is made of
	text   prompt.Reply
}

func (r *reply) header(key, v string) {
	switch key {
	case ":status":
		r.status, _ = strconv.Atoi(v)
	case "content-encoding", "content-type", "retry-after":
		if r.kept == nil {
			r.kept = http.Header{}
		}
		r.kept.Set(key, v)
	}
}

// write takes the next bytes and reports whether the engine has begun to answer.
func (r *reply) write(b []byte) bool {
	r.seen = true
	if r.status < 200 || r.status > 299 {
		return false
	}
	if r.encoded() {
		return true
	}
	r.text.Write(b) // never fails
	return r.text.Begun()
}

// encoded reports whether the reply is compressed, so that its text cannot be read.
func (r *reply) encoded() bool {
	v := r.kept.Get("Content-Encoding")
	return v != "" && v != "identity"
}

// outcome is that of a reply that came to its end.
func (r *reply) outcome() router.Outcome { return r.text.Outcome(r.status, r.kept) }
