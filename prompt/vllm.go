package prompt

import (
	"strconv"
	"strings"
)

// vllmGenerate is vLLM's token-in, token-out API, /inference/v1/generate, as disaggregated servers and trainers send
// it. Its replies are those of completions, with a text only in the output mode "text" and a message only in
// "derender".
//
// Source: vllm/entrypoints/scale_out/token_in_token_out/protocol.py of vLLM 0.33.0 (GenerateRequest,
// GenerateResponseBase, GenerateStreamResponseBase); its usage is UsageInfo of
// vllm/entrypoints/serve/engine/protocol.py.
type vllmGenerate struct{ choices }

func (vllmGenerate) name() string { return "vllm_generate" }

func (vllmGenerate) serves(path string) bool {
	return strings.HasSuffix(path, "/inference/v1/generate")
}

func (vllmGenerate) member(p *parse, k []byte) section {
	switch string(k) {
	case "token_ids":
		p.field = "token_ids"
		p.tokens = nil
		if p.Peek() == '[' {
			p.tokenArray()
		} else if !p.Null() {
			p.wrong()
		}
	case "features":
		p.field = "features"
		if p.Peek() == '{' {
			return p.features()
		}
		if !p.Null() {
			p.wrong()
		}
	case "content_parts":
		p.field = "content_parts"
		if !p.Null() {
			p.media()
			return secSystem
		}
	default:
		p.Skip()
	}
	return noSection
}

// features reads the hashes of the media that stand in the prompt. The ids have placeholders at
// their places, the same for every picture, and their tensors may be left out of a later request.
func (p *parse) features() section {
	var d digest
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		if string(k) == "mm_hashes" {
			p.leavesOf(&d)
		} else {
			p.Skip()
		}
	}
	if d.n == 0 || p.Fault != 0 {
		return noSection
	}
	p.out = append(p.out, mark, kindMedia)
	p.out = d.append(p.out)
	return secSystem
}

// leavesOf adds every string of the value that is next to d, at any depth.
func (p *parse) leavesOf(d *digest) {
	switch p.Peek() {
	case '{':
		for _, ok := p.FirstKey(); ok; _, ok = p.NextKey() {
			p.leavesOf(d)
		}
	case '[':
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			p.leavesOf(d)
		}
	default:
		p.leaves(d, true)
	}
}

// done makes ids that stand for media a text: the engine's blocks of these ids are others for other media, so no index
// of ids may be asked for them.
func (vllmGenerate) done(p *parse) {
	if p.sections[secSystem].empty() || p.tokens == nil {
		return
	}
	lo := len(p.out)
	p.out = append(p.out, mark, kindTokens)
	for _, id := range p.tokens {
		p.out = append(strconv.AppendUint(p.out, uint64(id), 10), ',')
	}
	p.tokens, p.sections[secTurns] = nil, span{lo, len(p.out)}
}
