package prompt

import "github.com/warmroute/router/internal/jsonscan"

// message reads one message of a chat or of Anthropic's messages: its mark, then
// its parts in the order of their ranks.
func (p *parse) message() {
	if p.Peek() != '{' {
		p.wrong()
		return
	}
	const (
		rankRole = iota
		rankName
		rankReasoning
		rankContent
		rankRefusal
		rankCalls
		rankCall
		rankAudio
	)
	p.at, p.kind = p.I, 0
	if p.reply {
		p.kind = kindAssistant
	}
	base := len(p.out)
	p.out = append(p.out, mark, kindOther)
	sl := slots{base: base + 2}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		lo := len(p.out)
		switch string(k) {
		case "role":
			if p.reply { // always an assistant's
				p.Skip()
				continue
			}
			p.role()
			p.put(&sl, rankRole, lo)
		case "name":
			p.marked(kindName)
			p.put(&sl, rankName, lo)
		case "reasoning", "reasoning_content":
			if p.reply {
				p.Skip()
			} else if !p.Null() {
				p.marked(kindReasoning)
				p.put(&sl, rankReasoning, lo)
			}
		case "content":
			p.content(sl.base)
			p.put(&sl, rankContent, lo)
		case "refusal":
			p.marked(kindRefusal)
			p.put(&sl, rankRefusal, lo)
		case "tool_calls":
			p.calls()
			p.put(&sl, rankCalls, lo)
		case "function_call":
			if !p.Null() {
				p.call()
			}
			p.put(&sl, rankCall, lo)
		case "audio":
			if !p.Null() {
				p.media()
			}
			p.put(&sl, rankAudio, lo)
		default:
			p.Skip()
		}
	}
	if p.Fault != 0 && p.reply {
		sl.cut(rankContent)
	}
	if p.kind != 0 {
		p.out[base+1] = p.kind
	}
	p.settle(&sl)
}

// role reads a role. One that has no kind of its own is written out.
func (p *parse) role() {
	p.kind = kindOther
	if p.Peek() != '"' {
		p.wrong()
		return
	}
	r, ok := p.Raw()
	if ok {
		p.kind = roleKind(r)
	}
	if p.kind != kindOther {
		return
	}
	lo := len(p.out)
	if ok {
		p.out = append(p.out, r...)
		return
	}
	p.out = p.CopyString(p.out)
	if k := roleKind(p.out[lo:]); k != kindOther {
		p.kind = k
		p.out = p.out[:lo]
	}
}

// marked reads a string and writes it behind a mark; nothing for null and "".
func (p *parse) marked(kind byte) {
	switch p.Peek() {
	case '"':
		lo := len(p.out)
		p.out = append(p.out, mark, kind)
		p.out = p.CopyString(p.out)
		if len(p.out) == lo+2 {
			p.out = p.out[:lo]
		}
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}

// content reads a string or an array of blocks. The parts of its turn begin at
// base: a text there has no mark of its own, so that a string and one block
// are the same.
func (p *parse) content(base int) {
	switch p.Peek() {
	case '"':
		p.textPart(base)
	case '[':
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			p.block(base)
		}
	case '{':
		p.block(base)
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}

// textPart reads a string as a text of the turn with parts that begin at base.
func (p *parse) textPart(base int) {
	if p.Peek() != '"' {
		if !p.Null() {
			p.wrong()
		}
		return
	}
	lo := len(p.out)
	if lo > base {
		p.out = append(p.out, mark, kindText)
	}
	start := len(p.out)
	p.out = p.CopyString(p.out)
	if t := p.out[start:]; len(t) >= len(billing) && string(t[:len(billing)]) == billing && p.isSystem() {
		p.out = append(p.out[:start], afterLine(t)...)
	}
	if len(p.out) == start {
		p.out = p.out[:lo]
	}
}

// billing begins a line that Claude Code puts first in its system prompt and
// changes with every request. vLLM leaves it out too (vllm-project/vllm#36829).
const billing = "x-anthropic-billing-header:"

func afterLine(t []byte) []byte {
	for i, c := range t {
		if c == '\n' {
			return t[i+1:]
		}
	}
	return nil
}

// isSystem reports whether the message being read is a system prompt, looking
// ahead if its role has not come yet.
func (p *parse) isSystem() bool {
	if p.kind != 0 {
		return p.kind == kindSystem
	}
	look := jsonscan.Scanner{B: p.B, I: p.at}
	p.kind = kindOther // looked up once; the member itself, if any, has the last word
	if look.Peek() == '{' && string(look.Member("role")) == "system" {
		p.kind = kindSystem
	}
	p.Ahead += look.I - p.at
	return p.kind == kindSystem
}
