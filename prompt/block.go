package prompt

// BlockKind is the kind of a content block.
type BlockKind uint8

// The kinds of blocks.
const (
	BlockOther    BlockKind = iota // of a type that this version does not know
	BlockNone                      // without a type
	BlockText                      // a text
	BlockRefusal                   // the text of a refusal
	BlockThinking                  // reasoning, as a text
	BlockRedacted                  // reasoning that only the engine can read
	BlockCall                      // a call of a tool
	BlockResult                    // the result of a call, inside a turn
	BlockMedia                     // an image, audio, a video or a file
)

// look returns the "type" of the object that is next and leaves it there. If
// a reply was cut before the type, the object is passed, because its kind is not
// known.
func (p *parse) look() []byte {
	look := p.Scanner
	typ := look.Member("type")
	p.Ahead += look.I - p.I
	if p.reply && (look.Fault != 0 || look.I == len(look.B)) {
		p.Skip()
	}
	return typ
}

// block reads one content block.
func (p *parse) block(base int) {
	switch p.Peek() {
	case '{':
	case '"':
		p.textPart(base)
		return
	default:
		if !p.Null() {
			p.wrong()
		}
		return
	}
	kind := BlockKindOf(string(p.look()))
	if p.Fault != 0 {
		return
	}
	if kind == BlockNone && p.namesMedia() {
		kind = BlockMedia
	}
	switch kind {
	case BlockMedia:
		p.media()
		return
	case BlockCall:
		p.call()
		return
	case BlockOther:
		p.other()
		return
	case BlockRedacted:
		lo := len(p.out)
		p.out = append(p.out, mark, kindReasoning)
		p.media()
		if p.reply {
			p.out = p.out[:lo]
		}
		return
	case BlockResult:
		p.out = append(p.out, mark, kindInner)
	}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		switch key := string(k); {
		case key == "text" && (kind == BlockText || kind == BlockNone):
			p.textPart(base)
		case key == "refusal" && (kind == BlockRefusal || kind == BlockNone):
			p.marked(kindRefusal)
		case kind == BlockThinking && !p.reply && (key == "thinking" || key == "reasoning" || key == "text"):
			p.marked(kindReasoning)
		case key == "content" && kind == BlockResult:
			p.result()
		default:
			p.Skip()
		}
	}
}

// namesMedia reports whether the object that is next, which has no type, has a member with media, and
// leaves it there.
func (p *parse) namesMedia() bool {
	look, found, none, named := p.Scanner, false, false, false
	for k, ok := look.FirstKey(); ok && !found; k, ok = look.NextKey() {
		c := look.Peek()
		media := BlockKindOf(string(k)) == BlockMedia
		if found = media && (c == '{' || c == '[' || c == '"'); !found {
			none = none || media && c == 'n'
			named = named || c == '"' && string(k) == "uuid"
			look.Skip()
		}
	}
	p.Ahead += look.I - p.I
	return found || none && named
}

// other writes an object that this version does not know, as it is, but for large data.
func (p *parse) other() { p.unknown(blockMarkers) }

func (p *parse) unknown(m markers) {
	p.out = append(p.out, mark, kindBlock)
	p.out = canon(&p.Scanner, p.out, m)
}

// result reads the content of a tool's result that stands inside a turn. Its
// parts after the first, and all that are no text, are marked as its own, so
// that they differ from the same parts after it.
func (p *parse) result() {
	base := len(p.out)
	if p.Peek() != '[' {
		p.content(base)
		return
	}
	for ok := p.FirstElem(); ok; ok = p.NextElem() {
		lo := len(p.out)
		p.Peek()
		switch {
		case p.Peek() != '{':
			p.block(lo)
		case BlockKindOf(string(p.look())) == BlockResult:
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
	switch p.Peek() {
	case '[':
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			p.call()
		}
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}

// call reads a tool call, of any API: its name and its arguments, which may be
// inside a member named function or custom. Its id is no part of the text: most
// templates leave it out, and it differs between runs of one conversation.
func (p *parse) call() {
	if p.Peek() != '{' {
		p.wrong()
		return
	}
	sl := slots{base: len(p.out)}
	p.callMembers(&sl, true)
	if p.Fault != 0 {
		sl.cut(0)
	}
	p.settle(&sl)
}

func (p *parse) callMembers(sl *slots, outer bool) {
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		lo := len(p.out)
		switch key := string(k); {
		case key == "name":
			p.out = append(p.out, mark, kindCall)
			if p.Peek() == '"' {
				p.out = p.CopyString(p.out)
			} else {
				p.wrong()
			}
			p.put(sl, 0, lo)
		case key == "arguments" || key == "input":
			p.out = append(p.out, mark, kindArguments)
			switch p.Peek() {
			case '"':
				p.out = p.CopyString(p.out)
			case 'n':
				p.Null()
				p.out = p.out[:lo]
			default:
				p.out = canon(&p.Scanner, p.out, keepMarkers)
			}
			p.put(sl, 1, lo)
		case outer && (key == "function" || key == "custom") && p.Peek() == '{':
			p.callMembers(sl, false)
		default:
			p.Skip()
		}
	}
}

// media reads an object or a string as a digest of the media that it refers to.
func (p *parse) media() {
	var d digest
	p.Peek()
	at := p.Scanner
	p.name = p.name[:0]
	p.leaves(&d, true)
	if !p.medium(&d) && d.n == 0 && p.Fault == 0 {
		// No member that names a source: all of it counts.
		end := p.Scanner
		end.Ahead += end.I - at.I
		p.Scanner = at
		lo := len(p.out)
		p.out = canon(&p.Scanner, p.out, ownedMarkers)
		d.add(p.out[lo:])
		p.out = p.out[:lo]
		p.Scanner = end
	}
	if p.Fault == 0 {
		p.out = append(p.out, mark, kindMedia)
		p.out = d.append(p.out)
	}
}

// leaves adds the value that is next to d: the strings in it that name a source, at any depth.
func (p *parse) leaves(d *digest, source bool) {
	switch p.Peek() {
	case '"':
		if !source {
			p.SkipString()
			return
		}
		lo := len(p.out)
		p.out = p.CopyString(p.out)
		if len(p.out) > lo {
			d.add(p.out[lo:])
		}
		p.out = p.out[:lo]
	case '{':
		for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
			switch c := p.Peek(); {
			case c == '"' && string(k) == "uuid":
				p.name = p.AppendString(p.name[:0])
			case c == '"' && string(k) == "file_id":
				lo := len(p.out)
				p.out = p.AppendString(p.out)
				p.held.files = addHeld(p.held.files, string(p.out[lo:]))
				if len(p.out) > lo {
					d.add(p.out[lo:])
				}
				p.out = p.out[:lo]
			default:
				p.leaves(d, isSource(k))
			}
		}
	case '[':
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			p.leaves(d, source)
		}
	default:
		p.Skip()
	}
}

func isSource(k []byte) bool {
	switch string(k) {
	case "url", "data", "file_id", "file_data", "file_url", "image_url", "video_url", "audio_url",
		"input_audio", "image", "video", "audio", "image_embeds", "audio_embeds", "text", "id":
		return true
	}
	return false
}
