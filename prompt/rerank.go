package prompt

import (
	"path"
	"strings"
)

// rerank is the API of Jina's and Cohere's rerankers, which vLLM, SGLang and llama.cpp serve too: a query and the
// documents to order by it. An engine computes one prompt for each pair of them, all of which begin with the query.
//
// Sources: vllm/entrypoints/pooling/scoring/protocol.py of vLLM 0.33.0 (query and documents; one document or several,
// each a text or an object with content parts), tools/server/README.md of llama.cpp at 00dc8057 (/reranking, texts).
type rerank struct {
	simple
	noReply
}

func (rerank) name() string { return "rerank" }

func (rerank) serves(p string) bool {
	last := path.Base(p)
	return strings.Contains(p, "/") && (last == "rerank" || last == "reranking")
}

func (rerank) member(p *parse, k []byte) section {
	switch string(k) {
	case "query":
		p.field = "query"
		p.content(len(p.out))
		return secSystem
	case "documents", "texts":
		p.field = string(k)
		if p.Peek() == '"' || p.Peek() == '{' {
			p.document()
		} else {
			p.array(p.document)
		}
		return secTurns
	}
	p.Skip()
	return noSection
}

// document reads one document: a text, or an object that has it as text or as content.
func (p *parse) document() {
	p.out = append(p.out, mark, kindText)
	base := len(p.out)
	if p.Peek() != '{' {
		p.content(base)
		return
	}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		switch string(k) {
		case "text", "content":
			p.content(base)
		default:
			p.Skip()
		}
	}
}
