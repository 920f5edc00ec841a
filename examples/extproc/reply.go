package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// tail is how much of a reply's end is searched for the engine's count of tokens,
// which comes last but for a few short fields.
const tail = 2 << 10

// reply learns from a reply as it passes by.
type reply struct {
	status     int
	encoded    bool // compressed: its text cannot be read
	retryAfter time.Duration
	text       prompt.Reply
	seen       []byte // the last bytes
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
		r.seen = append(r.seen, b[max(0, len(b)-tail):]...)
		if n := len(r.seen); n > 2*tail {
			r.seen = r.seen[:copy(r.seen, r.seen[n-tail:])]
		}
	}
	return true
}

// outcome is that of a reply that came to its end.
func (r *reply) outcome() router.Outcome {
	o := router.Outcome{Status: r.status, RetryAfter: r.retryAfter, Reply: r.text.Text()}
	var u struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	key := []byte(`"usage":`)
	if i := bytes.LastIndex(r.seen, key); i >= 0 && json.NewDecoder(bytes.NewReader(r.seen[i+len(key):])).Decode(&u) == nil {
		o.PromptTokens, o.CachedTokens, o.OutputTokens = max(0, u.Prompt), max(0, u.Details.Cached), max(0, u.Output)
	}
	return o
}
