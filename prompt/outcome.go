package prompt

import (
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	router "github.com/warmroute/router"
)

// MaxRetryAfter is the greatest time that [RetryAfter] returns.
const MaxRetryAfter = time.Hour

// RetryAfter returns the time that the header Retry-After of a reply asks to wait, in seconds or until a date (RFC
// 9110, section 10.2.3), at most MaxRetryAfter. It is 0 if there is no such header, if it is not understood
// and if the date has passed.
func RetryAfter(h http.Header) time.Duration {
	v := textproto.TrimString(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	var d time.Duration
	if s, err := strconv.ParseUint(v, 10, 63); err == nil {
		d = time.Duration(min(s, uint64(MaxRetryAfter/time.Second))) * time.Second
	} else if t, err := http.ParseTime(v); err == nil {
		d = time.Until(t)
	}
	return min(max(d, 0), MaxRetryAfter)
}

// Outcome returns the outcome of a request by its reply: the status, the time that the header asks to wait, and the
// text and the engine's own counts as far as the reply was written to r. The caller adds Err if the
// reply broke off, and a Stage that is not to be derived. A nil r stands for a reply of which nothing was collected; a
// nil h has no headers.
//
// That a reply is an error under a good status ([Reply.Err]) is not in the outcome.
func (r *Reply) Outcome(status int, h http.Header) router.Outcome {
	o := router.Outcome{Status: status, RetryAfter: RetryAfter(h)}
	if r != nil {
		u, cached := r.usage()
		o.Reply = r.Text()
		o.PromptTokens, o.CachedTokens, o.OutputTokens = u.Prompt, u.Cached, u.Output
		o.CachedReported = cached
		if status >= 200 && status <= 299 {
			o.Made = r.ids(true)
		}
	}
	return o
}

// ReplyError is a reply that says that it is an error, whatever its status. It is returned by pointer. It quotes
// nothing of the reply, which may hold a prompt.
type ReplyError struct {
	// Status is the HTTP status that the error names as its code; 0 if it names none.
	Status int
	// Begun is true if events of a stream that are no errors came before it, so that a client may have got a part
	// of the reply.
	Begun bool
}

// Error describes e in one line.
func (e *ReplyError) Error() string {
	s := "prompt: the reply is an error"
	if e.Status != 0 {
		s += " of status " + strconv.Itoa(e.Status)
	}
	if e.Begun {
		s += ", after a part of it had come"
	}
	return s
}

// Err returns a *ReplyError if the reply says that it is an error: a JSON reply that is an error object, or an event
// of a stream that is one; nil otherwise. Engines answer so with status 200 if they had begun a stream before they
// failed, and some gateways do it always.
func (r *Reply) Err() error {
	if r == nil {
		return nil
	}
	if r.form == formObject {
		r.members.scan(r.object(), nil)
		if e := errorIn(&r.members); e != nil {
			return e
		}
		return nil
	}
	if r.err == nil {
		return nil
	}
	return r.err
}

// errorIn returns the error that a JSON reply or an event is, nil if it is none. OpenAI, vLLM, SGLang and llama.cpp
// have it under "error", Anthropic in an object of type "error", Responses too, or in a response that failed; older
// vLLM sent an object "error".
func errorIn(m *members) *ReplyError {
	if m.has("error", '{') || m.has("error", '"') {
		if !errorTyped(m) && claimed(m) != nil {
			return nil // an answer that has such a member too
		}
		at := m.get("error")
		e := &ReplyError{Status: httpStatus(at.IntOf("code"))}
		if e.Status == 0 {
			e.Status = httpStatus(m.int("code"))
		}
		return e
	}
	if !errorTyped(m) {
		return nil
	}
	return &ReplyError{Status: httpStatus(m.int("code"))}
}

func errorTyped(m *members) bool {
	t := m.at("type")
	return begins(t, `"error"`) || begins(t, `"response.failed"`) || begins(t, `"response.error`) ||
		begins(m.at("object"), `"error"`)
}

func begins(b []byte, s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }

func httpStatus(code int) int {
	if code < 100 || code > 599 {
		return 0
	}
	return code
}
