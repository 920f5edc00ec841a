package prompt

import (
	"bytes"
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// sglangGenerate is SGLang's own API, /generate. Of a batch, of texts or of ids, the first member counts.
//
// Sources, of SGLang 0.5.23: python/sglang/srt/managers/io_struct.py (GenerateReqInput: text,
// input_ids, image_data, lora_path, cache_salt, extra_key),
// python/sglang/srt/managers/tokenizer_manager.py (the members of replies and of the events of
// streams: text, output_ids, meta_info; index in a batch),
// python/sglang/srt/entrypoints/http_server.py (an error is an event of a stream with status 200).
type sglangGenerate struct{ simple }

func (sglangGenerate) name() string { return "sglang_generate" }

func (sglangGenerate) serves(path string) bool {
	// Ollama's /api/generate is another API.
	return strings.HasSuffix(path, "/generate") && !strings.HasSuffix(path, "/api/generate")
}

func (sglangGenerate) member(p *parse, k []byte) section {
	switch string(k) {
	case "text":
		p.field = "text"
		if p.Peek() == '"' || p.Peek() == '[' {
			lo := len(p.out)
			p.firstText()
			if len(p.out) > lo {
				return secTurns
			}
		} else if !p.Null() {
			p.wrong()
		}
	case "input_ids":
		p.field = "input_ids"
		p.ids()
	case "image_data":
		return p.sglangMedia("image_data", secTools)
	case "video_data":
		return p.sglangMedia("video_data", secFunctions)
	case "audio_data":
		return p.sglangMedia("audio_data", secSystem)
	default:
		p.Skip()
	}
	return noSection
}

// sglangMedia reads media. The text has placeholders in their places, the same for every picture,
// so they come before it.
func (p *parse) sglangMedia(field string, sec section) section {
	p.field = field
	if p.Null() {
		return noSection
	}
	p.media()
	return sec
}

// ids reads an array of token ids, or the first one of an array of them.
func (p *parse) ids() {
	p.tokens = nil
	switch p.Peek() {
	case '[':
	case 'n':
		p.Null()
		return
	default:
		p.wrong()
		return
	}
	for i, ok := 0, p.FirstElem(); ok; i, ok = i+1, p.NextElem() {
		switch {
		case i > 0:
			p.Skip()
		case p.Peek() == '[':
			p.tokenArray()
		default:
			p.tokenElems()
			return
		}
	}
}

// firstText reads a text, or the first one of an array.
func (p *parse) firstText() {
	if p.Peek() == '"' {
		p.out = p.CopyString(p.out)
		return
	}
	for i, ok := 0, p.FirstElem(); ok; i, ok = i+1, p.NextElem() {
		switch {
		case i > 0:
			p.Skip()
		case p.Peek() == '"':
			p.out = p.CopyString(p.out)
		default:
			p.wrong()
		}
	}
}

func (sglangGenerate) claims(m *members) bool {
	return m.has("meta_info", '{') && (m.at("text") != nil || m.at("output_ids") != nil)
}

func (sglangGenerate) answer(p *parse, m *members) {
	if m.has("text", '"') {
		p.Scanner = m.get("text")
		p.out = p.AppendString(p.out)
	}
}

// event takes an event. It has all of the text so far, or with --incremental-streaming-output only the text that is
// new. Its ids decide which: of the whole text there are as many as were generated in all. Without ids, a text that
// begins with the text so far is the whole one.
func (sglangGenerate) event(s *stream, m *members) bool {
	if m.int("index") > 0 {
		s.several = true
	}
	text := m.get("text")
	if text.Peek() != '"' {
		return true // null while nothing new has come
	}
	s.tmp = text.AppendString(s.tmp[:0])
	meta := m.get("meta_info")
	ids, total := count(m.get("output_ids")), meta.IntOf("completion_tokens")
	all := bytes.HasPrefix(s.tmp, s.content.b)
	if ids > 0 && total > 0 {
		all = ids >= total
	}
	if all {
		s.content, s.used = part{}, 0
	}
	s.used += s.content.put(s.tmp, s.limit-s.used)
	return true
}

func (sglangGenerate) text(s *stream) []byte { return s.content.b }

func (sglangGenerate) usage(m *members, u *counts) {
	if s := m.get("meta_info"); s.Peek() == '{' {
		u.object(s)
	}
}

// count returns the number of elements of the array that is next.
func count(s jsonscan.Scanner) (n int) {
	if s.Peek() != '[' {
		return 0
	}
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		s.Skip()
		n++
	}
	return n
}
