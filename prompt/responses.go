package prompt

import (
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// responses is OpenAI's responses. The items that the server remembers from a previous
// response are not in the text.
type responses struct{ simple }

var responsesWords = words{
	blocks: map[string]BlockKind{
		"input_text": BlockText, "output_text": BlockText, "summary_text": BlockText, "reasoning_text": BlockText,
		"input_image": BlockMedia, "input_video": BlockMedia, "input_audio": BlockMedia, "input_file": BlockMedia,
	},
}

func (responses) name() string { return "responses" }

func (responses) serves(path string) bool { return strings.HasSuffix(path, "/v1/responses") }

func (responses) member(p *parse, k []byte) section {
	switch string(k) {
	case "tools":
		p.field = "tools"
		p.tools()
		return secTools
	case "instructions":
		p.field = "instructions"
		p.system()
		return secSystem
	case "prompt":
		p.field = "prompt"
		if p.Peek() == '{' {
			p.other()
			return secTemplate
		}
		p.Skip()
		return noSection
	case "previous_input_messages": // vLLM's
		p.field = "previous_input_messages"
		p.array(p.item)
		return secBefore
	case "input":
		p.field = "input"
		p.input()
		return secTurns
	}
	p.Skip()
	return noSection
}

func (responses) claims(m *members) bool {
	return m.at("output") != nil || strings.HasPrefix(string(m.str("type")), "response.")
}

// answer reads a JSON reply: a list of items.
func (responses) answer(p *parse, m *members) {
	p.Scanner = m.get("output")
	if p.B != nil {
		p.array(p.item)
	}
}

func (responses) event(s *stream, m *members) bool {
	index := m.int("output_index")
	switch string(m.str("type")) {
	case "response.output_item.added":
		s.itemStart(m.get("item"), index)
	case "response.output_text.delta":
		s.itemDelta(m.get("delta"), BlockText, index, m.int("content_index"))
	case "response.refusal.delta":
		s.itemDelta(m.get("delta"), BlockRefusal, index, m.int("content_index"))
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		s.itemDelta(m.get("delta"), BlockCall, index, m.int("content_index"))
	case "response.output_item.done":
		s.itemDone(m.get("item"), index)
	case "response.completed", "response.incomplete":
		if !s.items {
			s.whole(m.get("response"))
		}
	}
	return true
}

func (responses) text(s *stream) []byte { return s.out.b }

func (responses) usage(m *members, u *counts) {
	u.member(m, "usage")
	u.nested(m, "response")
}

// input reads the input of a responses request: a text, or items.
func (p *parse) input() {
	if p.Peek() == '"' {
		p.out = append(p.out, mark, kindUser)
		p.kind = kindUser
		p.content(len(p.out))
		return
	}
	p.array(p.item)
}

// item reads one item of a responses request or reply.
func (p *parse) item() {
	if p.Peek() == '"' {
		p.out = append(p.out, mark, kindUser)
		p.kind = kindUser
		p.textPart(len(p.out))
		return
	}
	if p.Peek() != '{' {
		p.wrong()
		return
	}
	switch string(p.look()) {
	case "", "message":
		if p.Fault == 0 {
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
		p.unknown(itemMarkers)
	}
}

// output reads the output of a call: a tool's turn.
func (p *parse) output() {
	p.out = append(p.out, mark, kindResult)
	p.kind = kindResult
	base := len(p.out)
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		if string(k) != "output" {
			p.Skip()
			continue
		}
		p.out = p.out[:base]
		p.content(base)
	}
}

// reasoning reads a reasoning item: its texts, or, if there are none, a digest of the part
// that only the engine can read.
func (p *parse) reasoning() {
	lo := len(p.out)
	p.out = append(p.out, mark, kindReasoning)
	p.kind = kindAssistant
	sl := slots{base: len(p.out)}
	var d digest
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
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
			p.Skip()
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

// itemStart takes the beginning of an item of Responses.
func (s *stream) itemStart(item jsonscan.Scanner, index int) {
	if s.open.there { // its end did not come
		s.out.cut = true
	}
	s.items = true
	s.open = openPart{there: true, index: index, lo: len(s.out.b)}
	if item.B == nil || item.Peek() != '{' {
		return
	}
	look := item
	if t := string(look.Member("type")); t != "function_call" && t != "custom_tool_call" {
		return
	}
	for k, ok := item.FirstKey(); ok; k, ok = item.NextKey() {
		if string(k) == "name" && item.Peek() == '"' {
			s.tmp = append(s.tmp[:0], mark, kindCall)
			s.tmp = item.AppendString(s.tmp)
			s.append(s.tmp)
			s.open.kind = BlockCall
		} else {
			item.Skip()
		}
	}
}

// itemDelta takes a piece of an item of Responses. Its text is kept until the
// whole item comes.
func (s *stream) itemDelta(delta jsonscan.Scanner, kind BlockKind, index, piece int) {
	if !s.open.there {
		s.open = openPart{there: true, index: index, lo: len(s.out.b)}
		s.items = true
	}
	if s.open.index != index || delta.B == nil || delta.Peek() != '"' {
		return
	}
	o := &s.open
	first := len(s.out.b) == o.lo
	s.tmp = s.tmp[:0]
	switch {
	case kind == BlockCall && first:
		return // no name: only the whole item has it
	case kind == BlockCall && !o.fresh:
		s.tmp = append(s.tmp, mark, kindArguments)
	case kind == BlockText && first:
		s.tmp = append(s.tmp, mark, kindAssistant)
	case kind == BlockText && o.piece != piece:
		s.tmp = append(s.tmp, mark, kindText)
	case kind == BlockRefusal && (first || o.piece != piece):
		if first {
			s.tmp = append(s.tmp, mark, kindAssistant)
		}
		s.tmp = append(s.tmp, mark, kindRefusal)
	}
	n := len(s.tmp)
	if s.tmp = delta.AppendString(s.tmp); len(s.tmp) > n {
		o.fresh, o.piece = true, piece
		s.append(s.tmp)
	}
}

// itemDone takes a whole item of Responses in place of its pieces.
func (s *stream) itemDone(item jsonscan.Scanner, index int) {
	if item.B == nil || s.out.cut {
		return
	}
	s.items = true
	if s.open.there && s.open.index == index {
		s.out.b = s.out.b[:s.open.lo]
	}
	s.open = openPart{}
	s.render(item, (*parse).item)
}

// whole takes the response that ends a stream without items.
func (s *stream) whole(response jsonscan.Scanner) {
	if response.Peek() != '{' {
		return
	}
	for k, ok := response.FirstKey(); ok; k, ok = response.NextKey() {
		if string(k) == "output" {
			s.render(response, func(p *parse) { p.array(p.item) })
			return
		}
		response.Skip()
	}
}
