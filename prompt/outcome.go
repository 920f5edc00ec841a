package prompt

import (
	"errors"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/jsonscan"
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

// Outcome returns the outcome of a request by its reply, when that is over: the status, the time that the header asks
// to wait, and the text and the engine's own counts as far as the reply was written to r. The caller adds Err if the
// reply broke off, unless Hold read it, and a Stage that is not to be derived. A nil r stands for a reply of which
// nothing was collected; a nil h has no headers. A reply with a Content-Encoding is not read.
//
// Under a status of 200 to 299, but not 204 and 205, the reply itself decides:
//
//   - One that is an error ([Reply.Err]), empty, or no answer of an API, as the page of a login, has an Err. Its Stage
//     is Failed, so that another target may be asked, or, if a part of the answer had come (Begun), FirstToken, which
//     an Outcome with an Err derives Failed from and which is not sent again. Status stays, unless the error is a
//     status of 400 to 499, 503 or 529 by its code or type: then it is that one.
//   - Empty is a reply without a byte, without an event that is more than a beginning, or with a list of choices that
//     is empty. A choice with an empty text and a reason for its end is an answer, and so are tool calls alone.
//
// A status of 401, 403 or 404 is Lacking, unless r is nil or Opaque: another target may have the key, the model or
// the adapter. So is a redirect, to a login for instance, but not a 304. A 400 with an error that says that the model
// or the adapter is not there, as SGLang answers, counts as a 404, which is the Status then.
func (r *Reply) Outcome(status int, h http.Header) router.Outcome {
	o := router.Outcome{Status: status, RetryAfter: RetryAfter(h)}
	if r == nil {
		return o
	}
	u, cached := r.usage()
	o.Streamed = r.form == formStream
	o.Reply = r.Text()
	o.PromptTokens, o.CachedTokens, o.OutputTokens = u.Prompt, u.Cached, u.Output
	o.CachedReported = cached
	if status >= 200 && status <= 299 {
		o.Made = r.ids(true)
		if status != http.StatusNoContent && status != http.StatusResetContent {
			r.judge(&o, h)
		}
	}
	if o.Status == 400 && r.unknownModel() {
		o.Status = 404
	}
	o.Lacking = !r.Opaque && (o.Status == 401 || o.Status == 403 || o.Status == 404 || redirects(o.Status))
	return o
}

// redirects reports whether a status sends the client elsewhere.
func redirects(status int) bool {
	return status >= 300 && status <= 399 && status != http.StatusNotModified
}

// judge puts into o what is wrong with a reply of a good status.
func (r *Reply) judge(o *router.Outcome, h http.Header) {
	if o.Err = r.broke; o.Err != nil {
		if r.begun || r.written > 0 {
			o.Stage = router.FirstToken
		}
		return
	}
	if o.Err = r.verdict(h); o.Err == nil {
		return
	}
	o.Stage = router.Failed
	if r.form == formStream && r.begun {
		o.Stage = router.FirstToken
	} else {
		o.Reply, o.OutputTokens, o.Made = "", 0, nil
	}
	var e *ReplyError
	if errors.As(o.Err, &e) && (e.Status >= 400 && e.Status <= 499 || e.Status == 503 || e.Status == 529) {
		o.Status = e.Status
	}
}

// ReplyError is a reply that says that it is an error, whatever its status. It is returned by pointer. It quotes
// nothing of the reply, which may hold a prompt.
type ReplyError struct {
	// Status is the HTTP status that the error names as its code, or by its type, as Anthropic's do; 0 if it names
	// none.
	Status int
	// Begun is true if a part of the answer came before it in a stream, as [Reply.Begun] has it, so that a client may
	// have got that.
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
		if !errorTyped(m) && claimed(m) != nil && !hollow(m, "choices") && !hollow(m, "output") {
			return nil // an answer that has such a member too
		}
		return &ReplyError{Status: statusOf(m, m.get("error"))}
	}
	if !errorTyped(m) {
		return nil
	}
	in := jsonscan.Scanner{}
	if at := m.get("response"); at.Peek() == '{' {
		for k, ok := at.FirstKey(); ok; k, ok = at.NextKey() {
			if at.Peek(); string(k) == "error" {
				in = at
			}
			at.Skip()
		}
	}
	return &ReplyError{Status: statusOf(m, in)}
}

// statusOf returns the status of the error at the member e, or of the object that it is a member of.
func statusOf(m *members, e jsonscan.Scanner) int {
	if e.Peek() == '{' {
		if s := httpStatus(e.IntOf("code")); s != 0 {
			return s
		}
		for _, name := range [...]string{"code", "type", "status"} {
			look := e
			if s := namedStatus[string(look.Member(name))]; s != 0 {
				return s
			}
		}
	}
	for _, name := range [...]string{"code", "status", "status_code"} {
		if s := httpStatus(m.int(name)); s != 0 {
			return s
		}
	}
	return namedStatus[string(m.str("type"))]
}

// namedStatus has the types and codes of errors that stand for a status. Sources: Anthropic's and OpenAI's pages on
// errors; vllm/entrypoints/openai of vLLM 0.33.0 (BadRequestError, NotFoundError).
var namedStatus = map[string]int{
	"invalid_request_error": 400, "context_length_exceeded": 400, "BadRequestError": 400,
	"authentication_error": 401, "invalid_api_key": 401,
	"permission_error": 403,
	"not_found_error":  404, "model_not_found": 404, "NotFoundError": 404,
	"request_too_large": 413,
	"rate_limit_error":  429, "rate_limit_exceeded": 429,
	"overloaded_error": 529,
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
