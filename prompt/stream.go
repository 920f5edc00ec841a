package prompt

import "bytes"

// stream puts a reply together from events. A part that has come to the limit is
// cut: nothing is added to it any more, and nothing that comes after it in the
// text is used, so that what is there is a beginning of the whole.
type stream struct {
	several bool // more than one choice
	plain   bool // a completion: its text has no marks
	used    int  // bytes in the parts of a chat

	// Chat, and a completion's text. Their parts may come in any order.
	content, refusal part
	calls            []callPart

	// Messages and responses: parts of the text in their order, without the mark
	// of an assistant's turn that opens a message of Messages.
	anthropic bool
	out       part
	open      openPart
	items     bool // an item was seen

	tmp []byte
}

type part struct {
	b   []byte
	cut bool
}

type callPart struct{ name, args part }

// maxCalls bounds the tool calls of one reply that are told apart.
const maxCalls = 256

// openPart is the block (Messages) or item (Responses) that has not ended.
type openPart struct {
	kind  blockKind
	there bool
	index int // of the block or item
	piece int // of the content inside an item
	lo    int // where it begins in out
	fresh bool
	json  part   // a tool call's input as it came
	input []byte // what stood in the block's beginning, canonical
}

// put adds b to a part, as far as the limit allows.
func (p *part) put(b []byte, room int) int {
	if p.cut {
		return 0
	}
	if len(b) > room {
		p.cut = true
		b = b[:boundary(b, max(room, 0))]
	}
	p.b = append(p.b, b...)
	return len(b)
}

// assemble returns the text so far, in a buffer of its own or in out's.
func (s *stream) assemble() []byte {
	if s.several {
		return nil
	}
	if s.plain {
		return s.content.b
	}
	if len(s.out.b) > 0 || s.anthropic {
		b := s.tmp[:0]
		if s.anthropic {
			b = append(b, mark, kindAssistant)
		}
		b = append(b, s.out.b...)
		if s.open.there && s.open.kind == blockCall && s.anthropic && !s.out.cut {
			b = append(b, mark, kindArguments)
			b, _ = s.open.arguments(b, false)
		}
		if s.tmp = b; len(b) == 2 && s.anthropic {
			return nil
		}
		return b
	}
	if len(s.content.b)+len(s.refusal.b)+len(s.calls) == 0 {
		return nil
	}
	b := append(s.tmp[:0], mark, kindAssistant)
	b = append(b, s.content.b...)
	cut := s.content.cut
	if len(s.refusal.b) > 0 && !cut {
		b = append(b, mark, kindRefusal)
		b = append(b, s.refusal.b...)
		cut = s.refusal.cut
	}
	for i := range s.calls {
		c := &s.calls[i]
		if cut || len(c.name.b) == 0 {
			break
		}
		b = append(b, mark, kindCall)
		b = append(b, c.name.b...)
		if cut = c.name.cut; cut {
			break
		}
		b = append(b, mark, kindArguments)
		b = append(b, c.args.b...)
		cut = c.args.cut
	}
	s.tmp = b
	return b
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
	c := scanner{b: o.json.b}
	dst = c.canon(dst, keepMarkers)
	c.end()
	return dst, c.err == nil && !o.json.cut
}

// event takes the data of one event and reports whether it was understood so far
// that what follows may still be added.
func (s *stream) event(data []byte, limit int) bool {
	if len(data) > 0 && data[0] != '{' {
		return true // [DONE]
	}
	var typ []byte
	var delta, block, item, response scanner
	var index, outIndex, piece int
	c := scanner{b: data}
	keep := func(at *scanner) {
		c.peek()
		*at = c
		c.skip()
	}
	if c.peek() != '{' {
		return false
	}
	for k, ok := c.firstKey(); ok; k, ok = c.nextKey() {
		switch string(k) {
		case "choices":
			if !s.choices(&c, limit) {
				return false
			}
		case "type":
			c.peek()
			lo := c.i
			c.skip()
			typ = bytes.Trim(c.b[lo:c.i], `"`)
		case "delta":
			keep(&delta)
		case "content_block":
			keep(&block)
		case "item":
			keep(&item)
		case "response":
			keep(&response)
		case "index":
			index = c.int()
		case "output_index":
			outIndex = c.int()
		case "content_index":
			piece = c.int()
		default:
			c.skip()
		}
	}
	if c.end(); c.err != nil {
		return false
	}
	switch string(typ) {
	case "content_block_start":
		s.blockStart(block, index, limit)
	case "content_block_delta":
		s.blockDelta(delta, index, limit)
	case "content_block_stop":
		s.blockStop(limit)
	case "response.output_item.added":
		s.itemStart(item, outIndex, limit)
	case "response.output_text.delta":
		s.itemDelta(delta, blockText, outIndex, piece, limit)
	case "response.refusal.delta":
		s.itemDelta(delta, blockRefusal, outIndex, piece, limit)
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		s.itemDelta(delta, blockCall, outIndex, piece, limit)
	case "response.output_item.done":
		s.itemDone(item, outIndex, limit)
	case "response.completed", "response.incomplete":
		if !s.items {
			s.whole(response, limit)
		}
	}
	return true
}

// int reads a small number; anything else is 0.
func (s *scanner) int() int {
	c := s.peek()
	if c < '0' || c > '9' {
		s.skip()
		return 0
	}
	n, _ := parseID(s.scalar(c))
	return int(n)
}

// choices reads the choices of a chunk of a chat or completion.
func (s *stream) choices(c *scanner, limit int) bool {
	if c.peek() != '[' {
		c.skip()
		return true
	}
	n := 0
	for ok := c.firstElem(); ok; ok = c.nextElem() {
		if n++; n > 1 {
			s.several = true
		}
		if c.peek() != '{' {
			c.skip()
			continue
		}
		for k, ok := c.firstKey(); ok; k, ok = c.nextKey() {
			switch string(k) {
			case "index":
				if c.int() > 0 {
					s.several = true
				}
			case "text":
				if s.text(c, &s.content, limit) {
					s.plain = true
				}
			case "delta", "message":
				s.chatDelta(c, limit)
			default:
				c.skip()
			}
		}
	}
	return c.err == nil
}

// text reads a string into a part of a chat; anything else is passed.
func (s *stream) text(c *scanner, p *part, limit int) bool {
	if c.peek() != '"' {
		c.skip()
		return false
	}
	s.tmp = c.appendString(s.tmp[:0])
	s.used += p.put(s.tmp, limit-s.used)
	return true
}

func (s *stream) chatDelta(c *scanner, limit int) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	for k, ok := c.firstKey(); ok; k, ok = c.nextKey() {
		switch string(k) {
		case "content":
			s.text(c, &s.content, limit)
		case "refusal":
			s.text(c, &s.refusal, limit)
		case "tool_calls":
			if c.peek() != '[' {
				c.skip()
				continue
			}
			for ok := c.firstElem(); ok; ok = c.nextElem() {
				s.chatCall(c, limit)
			}
		case "function_call":
			if c.peek() == '{' {
				s.function(c, 0, limit)
			} else {
				c.skip()
			}
		default:
			c.skip()
		}
	}
}

// chatCall reads a piece of a tool call. Its index may come after it.
func (s *stream) chatCall(c *scanner, limit int) {
	if c.peek() != '{' {
		c.skip()
		return
	}
	var at scanner
	index := 0
	for k, ok := c.firstKey(); ok; k, ok = c.nextKey() {
		switch string(k) {
		case "index":
			index = c.int()
		case "function", "custom":
			c.peek()
			at = *c
			c.skip()
		default:
			c.skip()
		}
	}
	if at.b != nil && c.err == nil && at.peek() == '{' {
		s.function(&at, index, limit)
	}
}

func (s *stream) function(c *scanner, index, limit int) {
	if index >= maxCalls {
		c.skip()
		return
	}
	for len(s.calls) <= index {
		s.calls = append(s.calls, callPart{})
	}
	for k, ok := c.firstKey(); ok; k, ok = c.nextKey() {
		switch string(k) {
		case "name":
			s.text(c, &s.calls[index].name, limit)
		case "arguments", "input":
			s.text(c, &s.calls[index].args, limit)
		default:
			c.skip()
		}
	}
}
