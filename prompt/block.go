package prompt

// blockKind is what a content block holds.
type blockKind uint8

const (
	blockOther blockKind = iota
	blockNone            // no type
	blockText
	blockRefusal
	blockThinking
	blockRedacted
	blockCall
	blockResult
	blockMedia
)

func blockKindOf(typ []byte) blockKind {
	switch string(typ) {
	case "":
		return blockNone
	case "text", "input_text", "output_text", "summary_text", "reasoning_text":
		return blockText
	case "refusal":
		return blockRefusal
	case "thinking", "reasoning":
		return blockThinking
	case "redacted_thinking":
		return blockRedacted
	case "tool_use", "server_tool_use", "mcp_tool_use":
		return blockCall
	case "tool_result", "mcp_tool_result":
		return blockResult
	case "image_url", "input_image", "image", "image_embeds", "video_url", "video", "input_video",
		"audio_url", "input_audio", "audio", "audio_embeds", "file", "input_file", "document":
		return blockMedia
	}
	return blockOther
}

// look returns the "type" of the object that is next and leaves it there. Where
// a reply was cut before the type, it is read to its end, as what it is not
// known.
func (p *parse) look() []byte {
	look := p.scanner
	typ := look.member1("type")
	if p.reply && (look.err != nil || look.i == len(look.b)) {
		p.skip()
	}
	return typ
}

// block reads one content block.
func (p *parse) block(base int) {
	switch p.peek() {
	case '{':
	case '"':
		p.textPart(base)
		return
	default:
		if !p.null() {
			p.wrong()
		}
		return
	}
	kind := blockKindOf(p.look())
	if p.err != nil {
		return
	}
	switch kind {
	case blockMedia:
		p.media()
		return
	case blockCall:
		p.call()
		return
	case blockOther:
		p.other()
		return
	case blockRedacted:
		lo := len(p.out)
		p.out = append(p.out, mark, kindReasoning)
		p.media()
		if p.reply {
			p.out = p.out[:lo]
		}
		return
	case blockResult:
		p.out = append(p.out, mark, kindInner)
	}
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		switch key := string(k); {
		case key == "text" && (kind == blockText || kind == blockNone):
			p.textPart(base)
		case key == "refusal" && kind == blockRefusal:
			p.marked(kindRefusal)
		case kind == blockThinking && !p.reply && (key == "thinking" || key == "reasoning" || key == "text"):
			p.marked(kindReasoning)
		case key == "content" && kind == blockResult:
			p.result()
		default:
			p.skip()
		}
	}
}

// other writes an object that this version does not know, as it is.
func (p *parse) other() {
	p.out = append(p.out, mark, kindBlock)
	p.out = p.canon(p.out, ownedMarkers)
}

// result reads the content of a tool's result that stands inside a turn. Its
// parts after the first, and all that are no text, are marked as its own, so
// that they differ from the same parts after it.
func (p *parse) result() {
	base := len(p.out)
	if p.peek() != '[' {
		p.content(base)
		return
	}
	for ok := p.firstElem(); ok; ok = p.nextElem() {
		lo := len(p.out)
		p.peek()
		switch {
		case p.peek() != '{':
			p.block(lo)
		case blockKindOf(p.look()) == blockResult:
			p.other() // no engine nests results; looking ahead at each level would cost the square of the depth
		default:
			p.block(lo)
		}
		if len(p.out) == lo || lo == base && p.out[lo] != mark {
			continue
		}
		p.out = append(p.out, 0, 0)
		copy(p.out[lo+2:], p.out[lo:])
		p.out[lo], p.out[lo+1] = mark, kindMore
	}
}

// calls reads a message's tool calls.
func (p *parse) calls() {
	switch p.peek() {
	case '[':
		for ok := p.firstElem(); ok; ok = p.nextElem() {
			p.call()
		}
	case 'n':
		p.null()
	default:
		p.wrong()
	}
}

// call reads a tool call, of any API: its name and its arguments, which may be
// inside a member named function or custom. Its id is no part of the text: most
// templates leave it out, and it differs between runs of one conversation.
func (p *parse) call() {
	if p.peek() != '{' {
		p.wrong()
		return
	}
	sl := slots{base: len(p.out)}
	p.callMembers(&sl, true)
	if p.err != nil {
		sl.cut(0)
	}
	p.settle(&sl)
}

func (p *parse) callMembers(sl *slots, outer bool) {
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		lo := len(p.out)
		switch key := string(k); {
		case key == "name":
			p.out = append(p.out, mark, kindCall)
			if p.peek() == '"' {
				p.out = p.copyString(p.out)
			} else {
				p.wrong()
			}
			p.put(sl, 0, lo)
		case key == "arguments" || key == "input":
			p.out = append(p.out, mark, kindArguments)
			switch p.peek() {
			case '"':
				p.out = p.copyString(p.out)
			case 'n':
				p.null()
				p.out = p.out[:lo]
			default:
				p.out = p.canon(p.out, keepMarkers)
			}
			p.put(sl, 1, lo)
		case outer && (key == "function" || key == "custom") && p.peek() == '{':
			p.callMembers(sl, false)
		default:
			p.skip()
		}
	}
}

// media reads an object or a string as a digest of what it refers to.
func (p *parse) media() {
	var d digest
	p.peek()
	at := p.scanner
	p.leaves(&d, true)
	if d.n == 0 && p.err == nil {
		// No member we know: all of it is what it is.
		end := p.scanner
		p.scanner = at
		lo := len(p.out)
		p.out = p.canon(p.out, ownedMarkers)
		d.add(p.out[lo:])
		p.out = p.out[:lo]
		p.scanner = end
	}
	if p.err == nil {
		p.out = append(p.out, mark, kindMedia)
		p.out = d.append(p.out)
	}
}

// leaves adds what is next to d: strings that name a source, at any depth.
func (p *parse) leaves(d *digest, source bool) {
	switch p.peek() {
	case '"':
		if !source {
			p.skipString()
			return
		}
		lo := len(p.out)
		p.out = p.copyString(p.out)
		if len(p.out) > lo {
			d.add(p.out[lo:])
		}
		p.out = p.out[:lo]
	case '{':
		for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
			p.leaves(d, isSource(k))
		}
	case '[':
		for ok := p.firstElem(); ok; ok = p.nextElem() {
			p.leaves(d, source)
		}
	default:
		p.skip()
	}
}

func isSource(k []byte) bool {
	switch string(k) {
	case "url", "data", "file_id", "file_data", "file_url", "image_url", "video_url", "audio_url",
		"input_audio", "image", "video", "audio", "image_embeds", "audio_embeds", "text", "id", "uuid":
		return true
	}
	return false
}
