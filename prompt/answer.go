package prompt

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/internal/jsonscan"
)

// Errors of replies with a good status that are no answers, as [Reply.Outcome] has them.
var (
	ErrEmptyReply = errors.New("prompt: the reply is empty")
	ErrNoAnswer   = errors.New("prompt: the reply is no answer of an API")
)

// MaxHold is the number of bytes after which [Reply.Begun] is true, whatever they are.
const MaxHold = 16 << 10

// HoldFor is the time after which Hold returns with the next bytes: they may be there to keep a connection alive.
const HoldFor = 2 * time.Second

// Begun reports whether a part of the answer was written to r: a token, a part of a tool call, an end by itself, of a
// stream; not the events that come before these, as the role, message_start or response.created, and no error. A JSON
// reply is one piece, which has begun after MaxHold bytes.
//
// A host that passes nothing on before can send the request elsewhere if an error, or nothing, comes in place of an
// answer. See Hold.
func (r *Reply) Begun() bool {
	switch {
	case r.page && !r.Opaque:
		return false
	case r.written >= MaxHold:
		return true
	case r.form == formOther, r.text, r.Opaque && r.form == formStream:
		return r.err == nil
	}
	return r.begun
}

// Pending reports whether neither a part of the answer (Begun) nor an error was seen yet, nor a comment at the
// beginning of a stream, which is there to keep a connection alive. A host that does not use Hold holds a reply back
// while it is Pending.
func (r *Reply) Pending() bool { return !r.Begun() && !r.Wrong() && !r.comment }

// Wrong reports whether r was seen to be no answer: it is an error, or the page of a site.
func (r *Reply) Wrong() bool { return r.err != nil || r.page && !r.Opaque }

// Ended reports whether the part of r that has come is a whole reply: a stream with its last event, or a JSON value
// with its end. A reply may end without that, and one of another form never says so.
func (r *Reply) Ended() bool {
	switch r.form {
	case formStream:
		return r.done
	case formObject:
		m := &r.members
		m.scan(r.object(), nil)
		m.end.End()
		return m.end.Fault == 0
	}
	return false
}

// ReplyTo returns a Reply to a request with this path and prompt, Opaque if the path is of no API of this package or
// the prompt is empty.
func ReplyTo(path string, p router.Prompt) Reply {
	n, _ := p.Length()
	return Reply{Opaque: n == 0 || apiOf(path) == nil}
}

// Hold holds a reply back until it has begun, ends, or says that it is an error, so that the request can be sent
// elsewhere until then, and returns the outcome so far:
//
//   - A reply that goes on has its Status and nothing else.
//   - One that is over, or an error, has the outcome of [Reply.Outcome].
//   - One that broke off has an Err and no Status.
//
// It returns earlier, with the part that has come, at a comment and if that took longer than HoldFor. Hold replaces
// resp.Body by one that has all of the reply. r learns from the body as it is read, so the caller does not write to r;
// if a Read fails, Outcome has its error as Err.
func (r *Reply) Hold(resp *http.Response) router.Outcome {
	if resp.StatusCode >= 400 || resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil {
		return r.Outcome(resp.StatusCode, resp.Header)
	}
	b := &heldBody{reply: r, ReadCloser: resp.Body, sealed: encoded(resp.Header)}
	resp.Body = b
	b.fill()
	switch {
	case len(b.held) > 0 && (b.sealed || r.Begun()):
	case b.err != nil && b.err != io.EOF:
		return router.Outcome{Err: b.err}
	case b.err == io.EOF || r.Wrong():
		return r.Outcome(resp.StatusCode, resp.Header)
	}
	return router.Outcome{Status: resp.StatusCode}
}

// heldBody is the body of a reply that Hold has begun to read.
type heldBody struct {
	io.ReadCloser
	reply  *Reply
	sealed bool // it is encoded: the reply cannot be read
	held   []byte
	err    error // of the Read behind held
}

// fill reads until the reply has begun.
func (b *heldBody) fill() {
	var first time.Time
	for b.err == nil && len(b.held) < MaxHold {
		b.held = slices.Grow(b.held, 2<<10)
		n, err := b.ReadCloser.Read(b.held[len(b.held):cap(b.held)])
		b.learn(b.held[len(b.held):len(b.held)+n], err)
		b.held, b.err = b.held[:len(b.held)+n], err
		if n == 0 {
			continue
		}
		if b.sealed || !b.reply.Pending() {
			return
		}
		if now := time.Now(); first.IsZero() {
			first = now
		} else if now.Sub(first) >= HoldFor {
			return
		}
	}
}

func (b *heldBody) learn(p []byte, err error) {
	if !b.sealed {
		_, _ = b.reply.Write(p) // never fails
	}
	if err != nil && err != io.EOF {
		b.reply.broke = errclass.Wrap(err)
	}
}

func (b *heldBody) Read(p []byte) (n int, err error) {
	if len(b.held) > 0 {
		n = copy(p, b.held)
		b.held = b.held[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.ReadCloser.Read(p)
	b.learn(p[:n], err)
	return n, err
}

// encoded reports whether a reply with these headers cannot be read.
func encoded(h http.Header) bool {
	e := h.Get("Content-Encoding")
	return e != "" && e != "identity"
}

// verdict returns the error that a whole reply with a status of 200 to 299 is, nil if it is an answer.
func (r *Reply) verdict(h http.Header) error {
	if encoded(h) {
		return nil
	}
	if err := r.Err(); err != nil {
		return err
	}
	if r.Opaque {
		return nil
	}
	switch r.form {
	case formUnknown:
		return ErrEmptyReply
	case formOther:
		return foreign(h, r.page)
	case formObject:
		return r.whole()
	case formArray:
		s := jsonscan.Scanner{B: r.raw}
		if !s.FirstElem() {
			return ErrEmptyReply
		}
	case formStream:
		return r.ended(h)
	}
	return nil
}

// foreign returns ErrNoAnswer for a reply that is neither JSON nor a stream if it is a page, or of a type that no
// answer has. A text may be an answer of an engine of one's own.
func foreign(h http.Header, page bool) error {
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	main, sub, _ := strings.Cut(t, "/")
	if page || strings.HasSuffix(sub, "html") || strings.HasSuffix(sub, "xml") || main == "image" {
		return ErrNoAnswer
	}
	return nil
}

// ended is verdict of a stream.
func (r *Reply) ended(h http.Header) error {
	if r.begun || r.broken || r.long != nil {
		return nil
	}
	if held := r.events.Held(); len(held) > 0 && held[0] == '{' { // the last event, which may lack its end
		r.members.scan(held, nil)
		if errorIn(&r.members) == nil && !prelude(&r.members) {
			return nil
		}
	}
	if r.any || r.done || r.comment || strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		return ErrEmptyReply
	}
	return foreign(h, false)
}

// whole is verdict of a JSON object. One of an API that is not known here passes, but not one that is a message of
// a proxy and nothing else.
func (r *Reply) whole() error {
	m := &r.members
	m.scan(r.object(), nil)
	switch {
	case r.long != nil: // a part was not read
		return nil
	case hollow(m, "choices"):
		return ErrEmptyReply
	case claimed(m) != nil:
		return nil
	}
	failed := false
	for i := range m.list {
		s := m.in
		s.I = m.list[i].at
		switch c := s.Peek(); c {
		case '[', '{': // data of embeddings, results of a reranker, a message …
			return nil
		case '"', 't', 'f':
			switch string(m.list[i].name) {
			case "text", "content", "response", "generated_text", "output_text", "completion":
				return nil
			case "message", "msg", "detail", "success":
				failed = true
			}
		}
	}
	if failed {
		return ErrNoAnswer
	}
	return nil
}

// hollow reports whether there is a member of this name that is no list with an element.
func hollow(m *members, name string) bool {
	s := m.get(name)
	return s.B != nil && (s.Peek() != '[' || !s.FirstElem())
}

// prelude reports whether an event of a stream comes before the answer: no part of it is a token, a call or an end.
func prelude(m *members) bool {
	switch t := string(m.str("type")); t {
	case "message_start", "message_stop", "ping", "response.created", "response.queued", "response.in_progress":
		return true
	case "content_block_start":
		b := m.get("content_block")
		return b.Peek() == '{' && quiet(&b)
	case "response.output_item.added":
		b := m.get("item")
		if b.Peek() != '{' {
			return false
		}
		look := b
		item := string(look.Member("type"))
		return item == "message" || item == "reasoning"
	}
	s := m.get("choices")
	if s.B == nil {
		return len(m.list) == 0
	}
	if s.Peek() != '[' {
		return true
	}
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		if s.Peek() != '{' {
			s.Skip()
		} else if !quiet(&s) {
			return false
		}
	}
	return true
}

// quiet reports whether the object that is next, a choice, its delta or a block, says nothing yet: its members are
// names, numbers of places, empty or null.
func quiet(s *jsonscan.Scanner) bool {
	silent := true
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		name := string(k)
		switch c := s.Peek(); {
		case name == "role" || name == "index" || name == "type" && !isCall(*s) || name == "prompt_token_ids":
			s.Skip()
		case c == '{':
			silent = quiet(s) && silent
		case c == '"':
			v, plain := s.Raw()
			if silent = silent && plain && len(v) == 0; !plain {
				s.Skip()
			}
		case c == '[':
			n := 0
			for ok := s.FirstElem(); ok; ok = s.NextElem() {
				s.Skip()
				n++
			}
			silent = silent && n == 0
		case c == 'n':
			s.Skip()
		default:
			silent = false
			s.Skip()
		}
	}
	return silent && s.Fault == 0
}

// isCall reports whether the type that is next is one of a block that is an answer by itself.
func isCall(s jsonscan.Scanner) bool {
	t, _ := s.Raw()
	k := BlockKindOf(string(t))
	return k != BlockText && k != BlockThinking
}
