package prompt

import "strings"

// embeddings is OpenAI's embeddings, also with messages as vLLM takes them.
type embeddings struct {
	simple
	noReply
}

func (embeddings) name() string { return "embeddings" }

func (embeddings) serves(path string) bool { return strings.HasSuffix(path, "/v1/embeddings") }

func (embeddings) member(p *parse, k []byte) section {
	switch string(k) {
	case "input":
		p.field = "input"
		p.batch()
		return secTurns
	case "messages":
		p.field = "messages"
		p.array(p.message)
		return secTurns
	}
	p.Skip()
	return noSection
}
