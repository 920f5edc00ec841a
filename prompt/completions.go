package prompt

import "strings"

// completions is OpenAI's completions: a prompt that is a text, an array of token ids, or an array of either.
type completions struct {
	simple
	choices
}

func (completions) name() string { return "completions" }

func (completions) serves(path string) bool { return strings.HasSuffix(path, "/v1/completions") }

func (completions) member(p *parse, k []byte) section {
	switch string(k) {
	case "prompt":
		p.field = "prompt"
		p.batch()
		return secTurns
	case "prompt_embeds": // vLLM's
		p.field = "prompt_embeds"
		if !p.Null() {
			p.media()
			return secSystem
		}
	default:
		p.Skip()
	}
	return noSection
}

// batch reads a completion's prompt or an embedding's input: a text, token ids,
// or an array of either, of which the first counts.
func (p *parse) batch() {
	p.tokens = nil
	switch p.Peek() {
	case '"':
		p.out = p.CopyString(p.out)
	case '[':
		first := true
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			c := p.Peek()
			switch {
			case first && c == '"':
				p.out = p.CopyString(p.out)
			case first && c == '[':
				p.tokenArray()
			case first && (c == '-' || c >= '0' && c <= '9'):
				p.tokenElems()
				return
			case first:
				p.wrong()
			default:
				p.Skip()
			}
			first = false
		}
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}
