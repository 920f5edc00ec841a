package prompt

import (
	"bytes"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/internal/sse"
)

// DefaultReply is how much of a reply's text the zero Reply keeps, in bytes.
const DefaultReply = 64 << 10

// maxRaw bounds the bytes that a Reply holds and has not read yet: a JSON
// reply, or one event of a stream. Of a longer JSON reply the first part counts.
const maxRaw = 1 << 20

// Reply collects a reply of any API of this package, as it passes by: one JSON
// value or a stream of server-sent events, distinguished by how they begin. Its
// text is the part that the next request of the conversation will have in addition, if
// the client sends the reply back as it was. Reasoning is left out, because most
// clients do not send it back. The zero Reply is ready to use, for one reply;
// its methods are not safe for concurrent use.
type Reply struct {
	// Limit is the greatest length of Text in bytes; 0 and less: DefaultReply. It
	// is set before the first Write.
	Limit int
	// Opaque says that the request is of no API of this package, so that a reply of any form, or an empty one, may be
	// a good answer to it. Only a reply that says so is an error then.
	Opaque bool

	form    replyForm
	written int   // bytes, up to MaxHold
	begun   bool  // a part of the answer was seen in a stream
	done    bool  // the mark that ends a stream was seen
	page    bool  // the reply begins as HTML or XML does
	text    bool  // it is neither JSON nor a stream
	comment bool  // a stream begins with a comment
	broke   error // of the body that Hold read

	raw    []byte // JSON: all of it, up to maxRaw
	long   *skim  // of the JSON, or of an event, that is longer than maxRaw; nil: it is not
	events sse.Reader
	broken bool // an event could not be read: nothing after it is added to the text
	any    bool // an event that is no error was seen

	made    made
	counts  counts
	err     *ReplyError // of a stream
	members members     // of the event at hand
	stream  stream
}

type replyForm uint8

const (
	formUnknown replyForm = iota
	formObject
	formArray // of replies, to a batch
	formStream
	formOther // neither: nothing is collected
)

// Write takes the next bytes of the reply's body, cut anywhere. It keeps no
// reference to b, always takes all of it and never fails.
func (r *Reply) Write(b []byte) (int, error) {
	n := len(b)
	r.written += min(n, MaxHold-r.written)
	if r.form == formUnknown {
		b = bytes.TrimLeft(b, " \t\r\n\ufeff")
		if len(b) == 0 {
			return n, nil
		}
		switch b[0] {
		case '{':
			r.form = formObject
		case '[':
			r.form = formArray
		case '<', '"':
			r.form = formOther
			r.page = b[0] == '<'
		default:
			r.form = formStream
			r.comment = b[0] == ':'
			r.text = !bytes.ContainsRune([]byte("deir:"), rune(b[0])) // data, event, id, retry, a comment
			r.events.Max = maxRaw
		}
	}
	switch r.form {
	case formObject, formArray:
		r.hold(b)
	case formStream:
		r.stream.limit = r.limit()
		r.events.Write(b, r.event, r.rest)
	}
	return n, nil
}

// hold appends b to raw, as far as it goes.
func (r *Reply) hold(b []byte) {
	left := maxRaw - len(r.raw)
	if len(b) > left {
		r.raw = append(r.raw, b[:left]...)
		if r.long == nil {
			r.long = new(skim)
			r.long.write(r.raw)
		}
		r.long.write(b[left:])
		return
	}
	r.raw = append(r.raw, b...)
}

// rest takes the part of an event that is beyond maxRaw.
func (r *Reply) rest(b []byte) {
	if r.long == nil {
		r.long = new(skim)
		r.long.write(r.events.Held())
	}
	r.long.write(b)
}

// event takes the data of an event.
func (r *Reply) event(data []byte, whole bool) {
	if !whole {
		r.broken, r.begun = true, true
		if r.long != nil {
			r.members.scan(r.long.out, nil)
			r.counts.take(r.stream.api, &r.members)
			r.long = nil
		}
		return
	}
	if data[0] != '{' {
		if string(data) == "[DONE]" {
			r.done = true
		} else {
			r.begun = true
		}
		return
	}
	m := &r.members
	var into *stream
	if r.stream.chunks && !r.broken {
		into = &r.stream
	}
	m.scan(data, into)
	if m.end.End(); m.end.Fault != 0 {
		r.broken, r.begun = true, true
		return
	}
	if e := errorIn(m); e != nil {
		if r.err == nil {
			e.Begun = r.begun
			r.err = e
		}
		return
	}
	r.any = true
	r.begun = r.begun || !prelude(m)
	switch string(m.str("type")) {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		r.done = true
	}
	if !r.broken {
		r.broken = !r.stream.event(m)
	}
	if r.stream.api == (responses{}) {
		r.made.event(m)
	}
	r.counts.take(r.stream.api, m)
}

// Text returns the canonical text of the part that has come so far. It is "" if
// nothing was understood and if the reply has several choices, of which
// nobody knows the one that the conversation goes on with. A text that was cut,
// by Limit or because the reply was, is a beginning of the whole one.
func (r *Reply) Text() string {
	var b []byte
	switch r.form {
	case formObject:
		r.members.scan(r.raw, nil)
		a := claimed(&r.members)
		if a == nil {
			return ""
		}
		p := parses.Get().(*parse)
		defer p.release()
		p.reply, p.index = true, -1
		a.answer(p, &r.members)
		b = p.out
	case formStream:
		b = r.stream.assemble()
	}
	return string(b[:jsonscan.Boundary(b, r.limit())])
}

// Usage returns the engine's own count of tokens as far as it has come, of any API
// of this package: at the end of a JSON reply, and of a stream if the client
// asked for it (stream_options.include_usage) or the engine reports it anyway. For the replies
// to a batch it is their sum.
func (r *Reply) Usage() Usage {
	u, _ := r.usage()
	return u
}

// usage is Usage and reports whether the engine named the cached tokens, if only as 0.
func (r *Reply) usage() (u Usage, cached bool) {
	switch r.form {
	case formObject:
		r.members.scan(r.object(), nil)
		var u counts
		u.take(nil, &r.members)
		return u.usage(), u.reported
	case formArray:
		return r.batch()
	}
	if r.stream.api == (sglangGenerate{}) && r.stream.several {
		return Usage{}, false // each reply counts for itself
	}
	return r.streamed()
}

// streamed is usage of a stream.
func (r *Reply) streamed() (Usage, bool) {
	u := r.counts
	if held := r.events.Held(); len(held) > 0 && held[0] == '{' { // the last event, which may lack its end
		r.members.scan(held, nil)
		u.take(r.stream.api, &r.members)
	}
	return u.usage(), u.reported
}

// object returns a JSON reply, or its skim if it is too long.
func (r *Reply) object() []byte {
	if r.long != nil {
		return r.long.out
	}
	return r.raw
}

// batch adds up the replies of an array; nothing is known if one of them was cut.
func (r *Reply) batch() (sum Usage, cached bool) {
	cached = true
	s := jsonscan.Scanner{B: r.raw}
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		s.Peek()
		at := s.I
		s.Skip()
		r.members.scan(r.raw[at:s.I], nil)
		var c counts
		c.take(nil, &r.members)
		u := c.usage()
		cached = cached && c.reported
		sum.Prompt += min(u.Prompt, maxTokens-sum.Prompt)
		sum.Cached += min(u.Cached, maxTokens-sum.Cached)
		sum.Output += min(u.Output, maxTokens-sum.Output)
	}
	if s.End(); s.Fault != 0 {
		return Usage{}, false
	}
	return sum, cached && sum.Prompt > 0
}

// maxTokens bounds sums of counts.
const maxTokens = 1<<31 - 1

func (r *Reply) limit() int {
	if r.Limit <= 0 {
		return DefaultReply
	}
	return r.Limit
}
