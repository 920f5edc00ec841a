package prompt

import "strings"

// llamaCompletion is llama.cpp's own API, /completion. A prompt is a text, an array of ids, an array of both, or an
// object with a text and media; of an array of prompts the first counts.
//
// Sources, of llama.cpp at 00dc8057: tools/server/README.md (POST /completion: the shapes of prompt, lora, the
// members of a reply), tools/server/server-task.cpp (server_task_result_cmpl_final::to_json_non_oaicompat,
// result_timings::to_json). tokens_cached of a reply counts the tokens in the slot at its end, the output included,
// whatever the page says: the tokens that were in the cache are cache_n of timings, or, in versions without it, the
// prompt less prompt_n.
type llamaCompletion struct{ simple }

func (llamaCompletion) name() string { return "llamacpp_completion" }

func (llamaCompletion) serves(path string) bool {
	return strings.HasSuffix(path, "/completion") || strings.HasSuffix(path, "/completions")
}

func (llamaCompletion) member(p *parse, k []byte) section {
	switch string(k) {
	case "prompt":
		p.field = "prompt"
		p.llamaPrompt()
		return secTurns
	case "lora":
		// Which adapters apply, and how much: a slot's cache is used again only if they are the same.
		p.field = "lora"
		if p.Peek() == '[' {
			p.tmp = canon(&p.Scanner, p.tmp[:0], keepMarkers)
			if p.Fault == 0 && string(p.tmp) != "[]" {
				p.adapter = string(p.tmp)
			}
			return noSection
		}
		if !p.Null() {
			p.wrong()
		}
	default:
		p.Skip()
	}
	return noSection
}

// llamaPrompt reads a prompt, or the first one of an array of prompts: an array of texts alone is one of prompts, and
// one of both texts and ids is one prompt.
func (p *parse) llamaPrompt() {
	p.tokens = nil
	switch p.Peek() {
	case '"':
		p.out = p.CopyString(p.out)
	case '{':
		p.llamaObject()
	case '[':
		if p.mixed() {
			p.mixedPrompt()
			return
		}
		for i, ok := 0, p.FirstElem(); ok; i, ok = i+1, p.NextElem() {
			c := p.Peek()
			switch {
			case i > 0:
				p.Skip()
			case c == '"':
				p.out = p.CopyString(p.out)
			case c == '{':
				p.llamaObject()
			case c == '[' && p.mixed():
				p.mixedPrompt()
			case c == '[':
				p.tokenArray()
			case c == '-' || c >= '0' && c <= '9':
				p.tokenElems()
				return
			default:
				p.wrong()
			}
		}
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}

// mixed reports whether the array that is next has both texts and numbers and nothing else, and leaves it there.
func (p *parse) mixed() bool {
	look := p.Scanner
	texts, numbers, others := false, false, false
	for ok := look.FirstElem(); ok && !others; ok = look.NextElem() {
		switch c := look.Peek(); {
		case c == '"':
			texts = true
		case c >= '0' && c <= '9' || c == '-':
			numbers = true
		default:
			others = true
		}
		look.Skip()
	}
	p.Ahead += look.I - p.I
	return texts && numbers && !others
}

// mixedPrompt reads an array of texts and ids: each run of ids, and each text behind another part, has a mark.
func (p *parse) mixedPrompt() {
	base, ids := len(p.out), false
	for ok := p.FirstElem(); ok; ok = p.NextElem() {
		c := p.Peek()
		if c == '"' {
			p.textPart(base)
			ids = false
			continue
		}
		if c < '0' || c > '9' {
			p.wrong()
			continue
		}
		if !ids {
			p.out = append(p.out, mark, kindTokens)
			ids = true
		}
		p.out = append(append(p.out, p.Scalar(c)...), ',')
	}
}

// llamaObject reads a prompt with media. The text has placeholders in their places, the same for
// every picture, so the digest of the media comes first.
func (p *parse) llamaObject() {
	base := len(p.out)
	sl := slots{base: base}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		lo := len(p.out)
		switch string(k) {
		case "prompt_string":
			p.textPart(base)
			p.put(&sl, 1, lo)
		case "multimodal_data":
			if !p.Null() {
				p.media()
			}
			p.put(&sl, 0, lo)
		default:
			p.Skip()
		}
	}
	p.settle(&sl)
}

func (llamaCompletion) claims(m *members) bool {
	return m.has("content", '"') &&
		(m.at("tokens_evaluated") != nil || m.at("id_slot") != nil || m.at("stop") != nil)
}

func (llamaCompletion) answer(p *parse, m *members) {
	p.Scanner = m.get("content")
	p.out = p.AppendString(p.out)
}

func (llamaCompletion) event(s *stream, m *members) bool {
	if m.int("index") > 0 {
		s.several = true
	}
	c := m.get("content")
	s.add(&c, &s.content)
	return true
}

func (llamaCompletion) text(s *stream) []byte { return s.content.b }

func (llamaCompletion) usage(m *members, u *counts) {
	n := m.int("tokens_evaluated")
	u.prompt, u.output = max(u.prompt, n), max(u.output, m.int("tokens_predicted"))
	t := m.get("timings")
	if t.Peek() != '{' {
		return
	}
	cached, found := t.FindInt("cache_n")
	u.cached, u.reported = max(u.cached, cached), u.reported || found
	if done := t.IntOf("prompt_n"); done > 0 && done <= n {
		u.cached = max(u.cached, n-done)
	}
}
