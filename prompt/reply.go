package prompt

import (
	"bytes"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/internal/sse"
	"github.com/warmroute/router/membudget"
)

// DefaultReply is how much of a reply's text the zero Reply keeps, in bytes.
const DefaultReply = 64 << 10

// maxRaw bounds the bytes that a Reply holds and has not read yet: a JSON
// reply, or one event of a stream. Of a longer JSON reply the first part counts.
const maxRaw = 1 << 20

// ReplyBase bounds the bytes that a Reply keeps without asking its Memory. A host that takes a reply reserves them with
// its own buffers.
const ReplyBase = 16 << 10

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
	// Memory has the bytes of a reply that are kept, beyond ReplyBase; nil: they are bounded for each reply alone. If it
	// has no more, the reply is passed on all the same, and the text, and at worst the counts, of that reply are not
	// learned. It is set before the first Write. Close releases the bytes.
	Memory *membudget.Account

	memory  membudget.Hold
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

	made     made
	counts   counts
	textHeld int         // bytes of memory for the text of a stream
	err      *ReplyError // of a stream
	members  members     // of the event at hand
	stream   stream
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
		r.memory = r.Memory.Hold()
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
			if r.Memory != nil {
				r.events.Grow = r.grow
			}
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
	if r.long != nil {
		r.long.write(b)
		return
	}
	left := maxRaw - len(r.raw)
	if r.Memory != nil {
		r.raw = r.grow(r.raw, min(len(b), left), maxRaw)
		left = min(left, cap(r.raw)-len(r.raw))
	}
	if len(b) > left {
		r.raw = append(r.raw, b[:left]...)
		r.skim(r.raw)
		r.long.write(b[left:])
		return
	}
	r.raw = append(r.raw, b...)
}

func (r *Reply) grow(b []byte, n, most int) []byte { return r.memory.Grow(b, n, most) }

// skim begins to read no more than the counts of a text that begins with b.
func (r *Reply) skim(b []byte) {
	r.long = &skim{most: maxSkim}
	if r.memory.Add(maxSkim) != nil {
		r.long.most = membudget.Spare
	}
	r.long.write(b)
}

// rest takes the part of an event that is beyond maxRaw.
func (r *Reply) rest(b []byte) {
	if r.long == nil {
		r.skim(r.events.Held())
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
			if r.long.most == maxSkim {
				_ = r.memory.Add(-maxSkim) // releasing does not fail
			}
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
	if r.Memory != nil {
		r.charge()
	}
	if r.stream.api == (responses{}) {
		r.made.event(m)
	}
	r.counts.take(r.stream.api, m)
}

// charge brings the memory to the size of the text of a stream. If there is none, nothing is added to the text any
// more, and what it has is dropped.
func (r *Reply) charge() {
	n := r.stream.size()
	if n <= r.textHeld {
		return
	}
	if r.memory.Add(int64(n-r.textHeld)) == nil {
		r.textHeld = n
		return
	}
	_ = r.memory.Add(-int64(r.textHeld)) // releasing does not fail
	r.textHeld, r.broken = 0, true
	r.stream = stream{api: r.stream.api, several: r.stream.several, chunks: r.stream.chunks, limit: r.stream.limit}
}

// Close drops what is kept of the reply and gives its memory back. No other method is to be called after it; it may be
// called again.
func (r *Reply) Close() {
	r.memory.Release()
	r.raw, r.long, r.events, r.stream, r.members = nil, nil, sse.Reader{}, stream{}, members{}
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
