package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// reply learns from a reply as it passes by.
type reply struct {
	status     int
	encoded    bool // compressed: its text cannot be read
	retryAfter time.Duration
	text       prompt.Reply
}

func (r *reply) header(key, v string) {
	switch key {
	case ":status":
		r.status, _ = strconv.Atoi(v)
	case "content-encoding":
		r.encoded = v != "" && v != "identity"
	case "retry-after":
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			r.retryAfter = time.Duration(min(n, 1<<20)) * time.Second
		} else if t, err := http.ParseTime(v); err == nil {
			r.retryAfter = max(0, time.Until(t))
		}
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
func (r *reply) outcome() router.Outcome {
	o := router.Outcome{Status: r.status, RetryAfter: r.retryAfter, Reply: r.text.Text()}
	u := r.text.Usage()
	o.PromptTokens, o.CachedTokens, o.OutputTokens = u.Prompt, u.Cached, u.Output
	return o
}
