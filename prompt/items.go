package prompt

// add appends to out, as far as the limit allows. A mark is written whole or not
// at all.
func (s *stream) add(b []byte, limit int) { s.out.put(b, limit-len(s.out.b)) }

// render reads one value of a reply as it would stand in a request and appends
// it to out.
func (s *stream) render(at scanner, limit int, read func(*parse)) {
	p := parses.Get().(*parse)
	defer p.release()
	p.scanner, p.reply, p.kind, p.index = at, true, kindAssistant, -1
	read(p)
	s.add(p.out, limit)
}

// blockStart takes the beginning of a block of Messages.
func (s *stream) blockStart(block scanner, index, limit int) {
	s.blockStop(limit)
	s.anthropic = true
	if block.b == nil || block.peek() != '{' {
		s.out.cut = true
		return
	}
	look := block
	kind := blockKindOf(look.member1("type"))
	s.open = openPart{kind: kind, there: true, index: index, fresh: true}
	switch kind {
	case blockText, blockNone:
		s.open.kind = blockText
		for k, ok := block.firstKey(); ok; k, ok = block.nextKey() {
			if string(k) == "text" && block.peek() == '"' {
				s.blockText(&block, limit)
			} else {
				block.skip()
			}
		}
	case blockThinking, blockRedacted:
	case blockCall:
		for k, ok := block.firstKey(); ok; k, ok = block.nextKey() {
			switch {
			case string(k) == "name" && block.peek() == '"':
				s.tmp = append(s.tmp[:0], mark, kindCall)
				s.tmp = block.appendString(s.tmp)
				s.add(s.tmp, limit)
			case string(k) == "input":
				s.open.input = block.canon(nil, keepMarkers)
			default:
				block.skip()
			}
		}
	default:
		s.render(block, limit, func(p *parse) { p.block(0) })
	}
}

// blockText adds the string that is next to the text block that is open.
func (s *stream) blockText(c *scanner, limit int) {
	s.tmp = s.tmp[:0]
	if s.open.fresh && len(s.out.b) > 0 {
		s.tmp = append(s.tmp, mark, kindText)
	}
	n := len(s.tmp)
	if s.tmp = c.appendString(s.tmp); len(s.tmp) > n {
		s.open.fresh = false
		s.add(s.tmp, limit)
	}
}

// blockDelta takes a piece of a block of Messages.
func (s *stream) blockDelta(delta scanner, index, limit int) {
	if !s.open.there || s.open.index != index || delta.b == nil || delta.peek() != '{' {
		s.out.cut = true // a piece of what we do not know: no text after it is sure
		return
	}
	for k, ok := delta.firstKey(); ok; k, ok = delta.nextKey() {
		switch {
		case string(k) == "text" && s.open.kind == blockText && delta.peek() == '"':
			s.blockText(&delta, limit)
		case string(k) == "partial_json" && s.open.kind == blockCall && delta.peek() == '"':
			s.tmp = delta.appendString(s.tmp[:0])
			// White space between the pieces' tokens does not count, so more is
			// held than the limit.
			s.open.json.put(s.tmp, 2*limit-len(s.open.json.b))
		default:
			delta.skip()
		}
	}
}

// blockStop takes the end of a block of Messages.
func (s *stream) blockStop(limit int) {
	if s.open.there && s.open.kind == blockCall && s.anthropic {
		b, whole := s.open.arguments(append(s.tmp[:0], mark, kindArguments), true)
		s.tmp = b
		s.add(b, limit)
		s.out.cut = s.out.cut || !whole
	}
	s.open = openPart{}
}

// itemStart takes the beginning of an item of Responses.
func (s *stream) itemStart(item scanner, index, limit int) {
	if s.open.there { // its end was not told
		s.out.cut = true
	}
	s.items = true
	s.open = openPart{there: true, index: index, lo: len(s.out.b)}
	if item.b == nil || item.peek() != '{' {
		return
	}
	look := item
	if t := string(look.member1("type")); t != "function_call" && t != "custom_tool_call" {
		return
	}
	for k, ok := item.firstKey(); ok; k, ok = item.nextKey() {
		if string(k) == "name" && item.peek() == '"' {
			s.tmp = append(s.tmp[:0], mark, kindCall)
			s.tmp = item.appendString(s.tmp)
			s.add(s.tmp, limit)
			s.open.kind = blockCall
		} else {
			item.skip()
		}
	}
}

// itemDelta takes a piece of an item of Responses. What it adds stands until the
// whole item comes.
func (s *stream) itemDelta(delta scanner, kind blockKind, index, piece, limit int) {
	if !s.open.there {
		s.open = openPart{there: true, index: index, lo: len(s.out.b)}
		s.items = true
	}
	if s.open.index != index || delta.b == nil || delta.peek() != '"' {
		return
	}
	o := &s.open
	first := len(s.out.b) == o.lo
	s.tmp = s.tmp[:0]
	switch {
	case kind == blockCall && first:
		return // no name: only the whole item can tell
	case kind == blockCall && !o.fresh:
		s.tmp = append(s.tmp, mark, kindArguments)
	case kind == blockText && first:
		s.tmp = append(s.tmp, mark, kindAssistant)
	case kind == blockText && o.piece != piece:
		s.tmp = append(s.tmp, mark, kindText)
	case kind == blockRefusal && (first || o.piece != piece):
		if first {
			s.tmp = append(s.tmp, mark, kindAssistant)
		}
		s.tmp = append(s.tmp, mark, kindRefusal)
	}
	n := len(s.tmp)
	if s.tmp = delta.appendString(s.tmp); len(s.tmp) > n {
		o.fresh, o.piece = true, piece
		s.add(s.tmp, limit)
	}
}

// itemDone takes a whole item of Responses in place of its pieces.
func (s *stream) itemDone(item scanner, index, limit int) {
	if item.b == nil || s.out.cut {
		return
	}
	s.items = true
	if s.open.there && s.open.index == index {
		s.out.b = s.out.b[:s.open.lo]
	}
	s.open = openPart{}
	s.render(item, limit, (*parse).item)
}

// whole takes the response that ends a stream without items.
func (s *stream) whole(response scanner, limit int) {
	if response.b == nil {
		return
	}
	s.render(response, limit, func(p *parse) { p.answer() })
}
