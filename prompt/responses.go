package prompt

// input reads the input of a responses request: a text, or items.
func (p *parse) input() {
	if p.peek() == '"' {
		p.out = append(p.out, mark, kindUser)
		p.kind = kindUser
		p.content(len(p.out))
		return
	}
	p.array(p.item)
}

// item reads one item of a responses request or reply.
func (p *parse) item() {
	if p.peek() == '"' {
		p.out = append(p.out, mark, kindUser)
		p.kind = kindUser
		p.textPart(len(p.out))
		return
	}
	if p.peek() != '{' {
		p.wrong()
		return
	}
	switch string(p.look()) {
	case "", "message":
		if p.err == nil {
			p.message()
		}
	case "function_call", "custom_tool_call":
		p.call()
	case "function_call_output", "custom_tool_call_output":
		p.output()
	case "reasoning":
		lo := len(p.out)
		p.reasoning()
		if p.reply {
			p.out = p.out[:lo]
		}
	default:
		p.other()
	}
}

// output reads the output of a call: a tool's turn.
func (p *parse) output() {
	p.out = append(p.out, mark, kindResult)
	p.kind = kindResult
	base := len(p.out)
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		if string(k) != "output" {
			p.skip()
			continue
		}
		p.out = p.out[:base]
		p.content(base)
	}
}

// reasoning reads a reasoning item: its texts, or a digest of what only the
// engine can read where there are none.
func (p *parse) reasoning() {
	lo := len(p.out)
	p.out = append(p.out, mark, kindReasoning)
	p.kind = kindAssistant
	sl := slots{base: len(p.out)}
	var d digest
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		at := len(p.out)
		switch string(k) {
		case "summary":
			p.content(sl.base)
			p.put(&sl, 0, at)
		case "content":
			p.content(sl.base)
			p.put(&sl, 1, at)
		case "encrypted_content":
			p.leaves(&d, true)
		default:
			p.skip()
		}
	}
	p.settle(&sl)
	if len(p.out) > sl.base {
		return
	}
	p.out = p.out[:lo]
	if d.n > 0 {
		p.out = append(p.out, mark, kindReasoning, mark, kindMedia)
		p.out = d.append(p.out)
	}
}
