package prompt

import "bytes"

// DefaultReply is how much of a reply's text the zero Reply keeps, in bytes.
const DefaultReply = 64 << 10

// maxRaw bounds what a Reply holds of bytes that it has not read yet: a JSON
// reply, or one event of a stream. Of a longer JSON reply the first part counts.
const maxRaw = 1 << 20

// Reply collects a reply of any API of this package, as it passes by: one JSON
// object or a stream of server-sent events, told apart by how they begin. Its
// text is what the next request of the conversation will add to its own, where
// the client sends the reply back as it was. Reasoning is left out, because most
// clients do not send it back. The zero Reply is ready to use, for one reply;
// its methods are not safe for concurrent use.
type Reply struct {
	// Limit is the greatest length of Text in bytes; 0 and less: DefaultReply. It
	// is set before the first Write.
	Limit int

	usage  usageFinder
	form   replyForm
	raw    []byte // JSON: all of it; a stream: the line that has not ended
	over   bool   // raw has reached its bound
	data   []byte // the data lines of the event that has not ended
	hasCR  bool   // the last byte was a CR, so a LF that follows is no new line
	broken bool   // an event could not be read: nothing after it is taken

	stream
}

type replyForm uint8

const (
	formUnknown replyForm = iota
	formJSON
	formStream
	formOther // neither: nothing is collected
)

// Write takes the next bytes of the reply's body, cut anywhere. It keeps no
// reference to b, always takes all of it and never fails.
func (r *Reply) Write(b []byte) (int, error) {
	n := len(b)
	r.usage.write(b)
	if r.form == formUnknown {
		b = bytes.TrimLeft(b, " \t\r\n\ufeff")
		if len(b) == 0 {
			return n, nil
		}
		switch b[0] {
		case '{':
			r.form = formJSON
		case '[', '<', '"':
			r.form = formOther
		default:
			r.form = formStream
		}
	}
	switch r.form {
	case formJSON:
		r.hold(b)
	case formStream:
		r.lines(b)
	}
	return n, nil
}

// hold appends b to raw, as far as it goes.
func (r *Reply) hold(b []byte) {
	if room := maxRaw - len(r.raw); len(b) > room {
		b = b[:room]
		r.over = true
	}
	r.raw = append(r.raw, b...)
}

// Text returns the canonical text of what has come so far. It is "" where
// nothing was understood and where the reply has several choices, of which
// nobody knows the one that the conversation goes on with. A text that was cut,
// by Limit or because the reply was, is a beginning of the whole one.
func (r *Reply) Text() string {
	var b []byte
	switch r.form {
	case formJSON:
		p := parses.Get().(*parse)
		defer p.release()
		p.b, p.reply, p.index = r.raw, true, -1
		if !p.answer() {
			return ""
		}
		b = p.out
	case formStream:
		b = r.assemble()
	}
	return string(b[:boundary(b, r.limit())])
}

func (r *Reply) limit() int {
	if r.Limit <= 0 {
		return DefaultReply
	}
	return r.Limit
}

// answer reads a JSON reply and reports whether its text is one.
func (p *parse) answer() bool {
	if p.peek() != '{' {
		return false
	}
	var content scanner // Anthropic's; its type may come after it
	message := false
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		switch string(k) {
		case "choices":
			if p.peek() != '[' {
				return false
			}
			n := 0
			for ok := p.firstElem(); ok; ok = p.nextElem() {
				if n++; n > 1 {
					return false
				}
				p.choice()
			}
		case "output":
			p.array(p.item)
		case "content":
			p.peek()
			content = p.scanner
			p.skip()
		case "type":
			p.tmp = p.tmp[:0]
			if p.peek() == '"' {
				p.tmp = p.appendString(p.tmp)
			} else {
				p.skip()
			}
			message = message || string(p.tmp) == "message"
		default:
			p.skip()
		}
	}
	if message && content.b != nil {
		p.scanner = content
		p.out = append(p.out[:0], mark, kindAssistant)
		p.kind = kindAssistant
		p.content(2)
		if len(p.out) == 2 {
			p.out = p.out[:0]
		}
	}
	return true
}

// choice reads the only choice of a JSON reply.
func (p *parse) choice() {
	if p.peek() != '{' {
		p.skip()
		return
	}
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		switch string(k) {
		case "message":
			p.message()
			if len(p.out) == 2 {
				p.out = p.out[:0]
			}
		case "text":
			if p.peek() == '"' {
				p.out = p.appendString(p.out)
			} else {
				p.skip()
			}
		default:
			p.skip()
		}
	}
}

// lines takes bytes of a stream and hands on each event that ends in them.
func (r *Reply) lines(b []byte) {
	for len(b) > 0 {
		if r.hasCR {
			r.hasCR = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		i := bytes.IndexByte(b, '\n')
		rest := b
		if i >= 0 {
			rest = b[:i]
		}
		if cr := bytes.IndexByte(rest, '\r'); cr >= 0 {
			i = cr
		}
		if i < 0 {
			r.hold(b)
			return
		}
		r.hasCR = b[i] == '\r'
		line := b[:i]
		if len(r.raw) > 0 || r.over {
			r.hold(line)
			line = r.raw
		}
		r.line(line)
		r.raw, r.over = r.raw[:0], false
		b = b[i+1:]
	}
}

// line takes one line of a stream.
func (r *Reply) line(l []byte) {
	if len(l) == 0 {
		if len(r.data) > 0 && !r.broken {
			r.broken = !r.event(r.data, r.limit())
		}
		r.data = r.data[:0]
		return
	}
	v, ok := bytes.CutPrefix(l, []byte("data:"))
	if !ok {
		return
	}
	v = bytes.TrimPrefix(v, []byte(" "))
	if len(r.data) > 0 {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(v) > maxRaw+16 {
		r.broken = true
		return
	}
	r.data = append(r.data, v...)
}
