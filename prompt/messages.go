package prompt

import (
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// messages is Anthropic's messages, as vLLM and SGLang take them too.
type messages struct{ simple }

var messagesWords = words{
	blocks: map[string]BlockKind{
		"text": BlockText, "thinking": BlockThinking, "redacted_thinking": BlockRedacted,
		"tool_use": BlockCall, "server_tool_use": BlockCall, "mcp_tool_use": BlockCall,
		"tool_result": BlockResult, "mcp_tool_result": BlockResult,
		"image": BlockMedia, "document": BlockMedia,
	},
}

func (messages) name() string { return "messages" }

func (messages) serves(path string) bool { return strings.HasSuffix(path, "/v1/messages") }

func (messages) member(p *parse, k []byte) section {
	switch string(k) {
	case "tools":
		p.field = "tools"
		p.tools()
		return secTools
	case "chat_template":
		return p.template()
	case "system":
		p.field = "system"
		p.system()
		return secSystem
	case "messages":
		p.field = "messages"
		p.array(p.message)
		return secTurns
	}
	p.Skip()
	return noSection
}

func (messages) claims(m *members) bool {
	t := string(m.str("type"))
	return t == "message" || strings.HasPrefix(t, "message_") || strings.HasPrefix(t, "content_block_")
}

// answer reads a JSON reply: an assistant's message.
func (messages) answer(p *parse, m *members) {
	p.Scanner = m.get("content")
	if p.B == nil || string(m.str("type")) != "message" {
		return
	}
	p.out = append(p.out[:0], mark, kindAssistant)
	p.kind = kindAssistant
	p.content(2)
	if len(p.out) == 2 {
		p.out = p.out[:0]
	}
}

func (messages) event(s *stream, m *members) bool {
	switch string(m.str("type")) {
	case "content_block_start":
		s.blockStart(m.get("content_block"), m.int("index"))
	case "content_block_delta":
		s.blockDelta(m.get("delta"), m.int("index"))
	case "content_block_stop":
		s.blockStop()
	}
	return true
}

// text returns the blocks, the one that has not ended included.
func (messages) text(s *stream) []byte {
	b := append(s.tmp[:0], mark, kindAssistant)
	b = append(b, s.out.b...)
	if s.open.there && s.open.kind == BlockCall && !s.out.cut {
		b = append(b, mark, kindArguments)
		b, _ = s.open.arguments(b, false)
	}
	if s.tmp = b; len(b) == 2 {
		return nil
	}
	return b
}

func (messages) usage(m *members, u *counts) {
	u.member(m, "usage")
	u.nested(m, "message")
}

// blockStart takes the beginning of a block of Messages.
func (s *stream) blockStart(block jsonscan.Scanner, index int) {
	s.blockStop()
	if block.B == nil || block.Peek() != '{' {
		s.out.cut = true
		return
	}
	look := block
	kind := BlockKindOf(string(look.Member("type")))
	s.open = openPart{kind: kind, there: true, index: index, fresh: true}
	switch kind {
	case BlockText, BlockNone:
		s.open.kind = BlockText
		for k, ok := block.FirstKey(); ok; k, ok = block.NextKey() {
			if string(k) == "text" && block.Peek() == '"' {
				s.BlockText(&block)
			} else {
				block.Skip()
			}
		}
	case BlockThinking, BlockRedacted:
	case BlockCall:
		for k, ok := block.FirstKey(); ok; k, ok = block.NextKey() {
			switch {
			case string(k) == "name" && block.Peek() == '"':
				s.tmp = append(s.tmp[:0], mark, kindCall)
				s.tmp = block.AppendString(s.tmp)
				s.append(s.tmp)
			case string(k) == "input":
				s.open.input = canon(&block, nil, keepMarkers)
			default:
				block.Skip()
			}
		}
	default:
		s.render(block, func(p *parse) { p.block(0) })
	}
}

// BlockText adds the string that is next to the text block that is open.
func (s *stream) BlockText(c *jsonscan.Scanner) {
	s.tmp = s.tmp[:0]
	if s.open.fresh && len(s.out.b) > 0 {
		s.tmp = append(s.tmp, mark, kindText)
	}
	n := len(s.tmp)
	if s.tmp = c.AppendString(s.tmp); len(s.tmp) > n {
		s.open.fresh = false
		s.append(s.tmp)
	}
}

// blockDelta takes a piece of a block of Messages.
func (s *stream) blockDelta(delta jsonscan.Scanner, index int) {
	if !s.open.there || s.open.index != index || delta.B == nil || delta.Peek() != '{' {
		s.out.cut = true // a piece of an unknown block: no text after it is sure
		return
	}
	for k, ok := delta.FirstKey(); ok; k, ok = delta.NextKey() {
		switch {
		case string(k) == "text" && s.open.kind == BlockText && delta.Peek() == '"':
			s.BlockText(&delta)
		case string(k) == "partial_json" && s.open.kind == BlockCall && delta.Peek() == '"':
			s.tmp = delta.AppendString(s.tmp[:0])
			// White space between the pieces' tokens does not count, so more is
			// held than the limit.
			s.open.json.put(s.tmp, 2*s.limit-len(s.open.json.b))
		default:
			delta.Skip()
		}
	}
}

// blockStop takes the end of a block of Messages.
func (s *stream) blockStop() {
	if s.open.there && s.open.kind == BlockCall {
		b, whole := s.open.arguments(append(s.tmp[:0], mark, kindArguments), true)
		s.tmp = b
		s.append(b)
		s.out.cut = s.out.cut || !whole
	}
	s.open = openPart{}
}
