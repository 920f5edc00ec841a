package prompt

import "github.com/warmroute/router/internal/jsonscan"

// choices are the replies of OpenAI's chat completions and completions, and of vLLM's generate: a list of choices,
// whole or in pieces.
type choices struct{}

func (choices) claims(m *members) bool { return m.at("choices") != nil }

// answer reads a JSON reply. One with several choices has no text.
func (choices) answer(p *parse, m *members) {
	p.Scanner = m.get("choices")
	if p.Peek() != '[' {
		return
	}
	n := 0
	for ok := p.FirstElem(); ok; ok = p.NextElem() {
		if n++; n > 1 {
			p.out = p.out[:0]
			return
		}
		p.choice()
	}
}

// choice reads the only choice of a JSON reply.
func (p *parse) choice() {
	if p.Peek() != '{' {
		p.Skip()
		return
	}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		switch string(k) {
		case "message":
			p.message()
			if len(p.out) == 2 {
				p.out = p.out[:0]
			}
		case "text":
			if p.Peek() == '"' {
				p.out = p.AppendString(p.out)
			} else {
				p.Skip()
			}
		default:
			p.Skip()
		}
	}
}

// event reads a chunk of a stream.
func (choices) event(s *stream, m *members) bool {
	if m.read {
		return true
	}
	c := m.get("choices")
	if c.Peek() == '[' {
		s.choices(&c)
	}
	return c.Fault == 0
}

// choices reads the choices of a chunk.
func (s *stream) choices(c *jsonscan.Scanner) {
	if c.Peek() != '[' {
		c.Skip()
		return
	}
	n := 0
	for ok := c.FirstElem(); ok; ok = c.NextElem() {
		if n++; n > 1 {
			s.several = true
		}
		if c.Peek() != '{' {
			c.Skip()
			continue
		}
		for k, ok := c.FirstKey(); ok; k, ok = c.NextKey() {
			switch string(k) {
			case "index":
				if c.Int() > 0 {
					s.several = true
				}
			case "text":
				if s.add(c, &s.content) {
					s.plain = true
				}
			case "delta", "message":
				s.chatDelta(c)
			default:
				c.Skip()
			}
		}
	}
}

func (s *stream) chatDelta(c *jsonscan.Scanner) {
	if c.Peek() != '{' {
		c.Skip()
		return
	}
	for k, ok := c.FirstKey(); ok; k, ok = c.NextKey() {
		switch string(k) {
		case "content":
			s.add(c, &s.content)
		case "refusal":
			s.add(c, &s.refusal)
		case "tool_calls":
			if c.Peek() != '[' {
				c.Skip()
				continue
			}
			for ok := c.FirstElem(); ok; ok = c.NextElem() {
				s.chatCall(c)
			}
		case "function_call":
			if c.Peek() == '{' {
				s.function(c, 0)
			} else {
				c.Skip()
			}
		default:
			c.Skip()
		}
	}
}

// chatCall reads a piece of a tool call. Its index may come after it.
func (s *stream) chatCall(c *jsonscan.Scanner) {
	if c.Peek() != '{' {
		c.Skip()
		return
	}
	var at jsonscan.Scanner
	index := 0
	for k, ok := c.FirstKey(); ok; k, ok = c.NextKey() {
		switch string(k) {
		case "index":
			index = c.Int()
		case "function", "custom":
			c.Peek()
			at = *c
			c.Skip()
		default:
			c.Skip()
		}
	}
	if at.B != nil && c.Fault == 0 && at.Peek() == '{' {
		s.function(&at, index)
	}
}

func (s *stream) function(c *jsonscan.Scanner, index int) {
	if index >= maxCalls {
		c.Skip()
		return
	}
	for len(s.calls) <= index {
		s.calls = append(s.calls, callPart{})
	}
	for k, ok := c.FirstKey(); ok; k, ok = c.NextKey() {
		switch string(k) {
		case "name":
			s.add(c, &s.calls[index].name)
		case "arguments", "input":
			s.add(c, &s.calls[index].args)
		default:
			c.Skip()
		}
	}
}

// text puts the pieces together: content, refusal, calls.
func (choices) text(s *stream) []byte {
	if s.plain {
		return s.content.b
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

func (choices) usage(m *members, u *counts) { u.member(m, "usage") }
