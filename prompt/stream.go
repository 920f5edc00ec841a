package prompt

import (
	"bytes"
	"unsafe"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/membudget"
)

// stream puts a reply together from events. A part that has come to the limit is
// cut: nothing is added to it any more, and nothing that comes after it in the
// text is used, so that the text is a beginning of the whole.
type stream struct {
	api     api // nil until an event was understood
	limit   int // of the whole text, in bytes
	several bool
	chunks  bool // the events are chunks with choices
	plain   bool // a completion: its text has no marks
	used    int  // bytes in the parts of a chat

	// Chat, and a completion's text. Their parts may come in any order.
	content, refusal part
	calls            []callPart

	// Messages and responses: parts of the text in their order, without the mark
	// of an assistant's turn that opens a message of Messages.
	out   part
	open  openPart
	items bool // an item was seen

	tmp []byte
}

type part struct {
	b   []byte
	cut bool
}

// size returns the bytes that s takes, beyond its first few.
func (s *stream) size() int {
	n := cap(s.content.b) + cap(s.refusal.b) + cap(s.out.b) + cap(s.tmp) + cap(s.open.json.b) + cap(s.open.input)
	if len(s.calls) > 0 {
		n += cap(s.calls)*int(unsafe.Sizeof(callPart{})) + 2*s.used
	}
	return max(n-membudget.Spare, 0)
}

type callPart struct{ name, args part }

// maxCalls bounds the tool calls of one reply that are kept apart.
const maxCalls = 256

// openPart is the block (Messages) or item (Responses) that has not ended.
type openPart struct {
	kind  BlockKind
	there bool
	index int // of the block or item
	piece int // of the content inside an item
	lo    int // its start in out
	fresh bool
	json  part   // a tool call's input as it came
	input []byte // the input that the block's beginning had, canonical
}

// put adds b to a part, as far as left bytes go.
func (p *part) put(b []byte, left int) int {
	if p.cut {
		return 0
	}
	if len(b) > left {
		p.cut = true
		b = b[:jsonscan.Boundary(b, max(left, 0))]
	}
	p.b = append(p.b, b...)
	return len(b)
}

// add reads a string into a part of a chat; anything else is passed.
func (s *stream) add(c *jsonscan.Scanner, p *part) bool {
	if c.Peek() != '"' {
		c.Skip()
		return false
	}
	s.tmp = c.AppendString(s.tmp[:0])
	s.used += p.put(s.tmp, s.limit-s.used)
	return true
}

// append appends to out, as far as the limit allows. A mark is written whole or not
// at all.
func (s *stream) append(b []byte) { s.out.put(b, s.limit-len(s.out.b)) }

// render reads one value of a reply as it would stand in a request and appends
// it to out.
func (s *stream) render(at jsonscan.Scanner, read func(*parse)) {
	p := parses.Get().(*parse)
	defer p.release()
	p.Scanner, p.reply, p.kind, p.index = at, true, kindAssistant, -1
	read(p)
	s.append(p.out)
}

// assemble returns the text so far, in a buffer of its own or in one of s.
func (s *stream) assemble() []byte {
	if s.several || s.api == nil {
		return nil
	}
	return s.api.text(s)
}

// arguments appends the canonical form of a call's input and reports whether
// that is all of it.
func (o *openPart) arguments(dst []byte, ended bool) ([]byte, bool) {
	if len(bytes.TrimSpace(o.json.b)) == 0 {
		if !ended {
			return dst, false // pieces may still come, and count instead of this
		}
		return append(dst, o.input...), true
	}
	c := jsonscan.Scanner{B: o.json.b}
	dst = canon(&c, dst, keepMarkers)
	c.End()
	return dst, c.Fault == 0 && !o.json.cut
}

// event takes the data of one event and reports whether it was understood so far
// that more may still be added.
func (s *stream) event(m *members) bool {
	if s.api == nil {
		s.api = claimed(m)
		_, s.chunks = s.api.(chat) // the first API with choices claims them all
	}
	return s.api == nil || s.api.event(s, m)
}

// claimed returns the API of the reply, or event of a reply, that m is; nil for none.
func claimed(m *members) api {
	for _, a := range apis {
		if a.claims(m) {
			return a
		}
	}
	return nil
}
