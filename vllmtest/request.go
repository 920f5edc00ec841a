package vllmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// body is a request's, of all paths: a field that a path does not have is
// ignored there.
type body struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	System    content   `json:"system"`
	Tools     []tool    `json:"tools"`
	Prompt    prompts   `json:"prompt"`
	CacheSalt string    `json:"cache_salt"`

	Stream        bool `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N                   *int `json:"n"`
	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	MinTokens           int  `json:"min_tokens"`
	IgnoreEOS           bool `json:"ignore_eos"`

	ReturnTokenIDs      bool  `json:"return_token_ids"`
	AddGenerationPrompt *bool `json:"add_generation_prompt"` // /tokenize
	AddSpecialTokens    *bool `json:"add_special_tokens"`

	KVTransferParams *transferParams `json:"kv_transfer_params"`
	BootstrapRoom    *int64          `json:"bootstrap_room"`
}

// prompts is a completion's prompt: a text, token ids, or a list of either.
type prompts struct {
	texts  []string
	tokens [][]uint32
}

const maxPrompts = 256

func (p *prompts) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		p.texts = make([]string, 1)
		return json.Unmarshal(b, &p.texts[0])
	}
	if b[0] != '[' {
		return errPrompt
	}
	inner := bytes.TrimLeft(b[1:], " \t\r\n")
	switch inner[0] {
	case '"':
		if err := json.Unmarshal(b, &p.texts); err != nil {
			return err
		}
	case '[':
		if err := json.Unmarshal(b, &p.tokens); err != nil {
			return err
		}
	case ']':
		return errPrompt
	default:
		p.tokens = make([][]uint32, 1)
		if err := json.Unmarshal(b, &p.tokens[0]); err != nil {
			return err
		}
	}
	if len(p.texts)+len(p.tokens) > maxPrompts {
		return fmt.Errorf("prompt has more than %d members", maxPrompts)
	}
	return nil
}

var errPrompt = fmt.Errorf("prompt is neither a text, nor token ids, nor a list of them, or it is empty")

// job is a request that generates, understood.
type job struct {
	model        string
	root         blockKey
	prompts      [][]uint32
	replies      []reply
	stream       bool
	includeUsage bool
	returnIDs    bool
}

// requestError is a request that is refused.
type requestError struct {
	status int
	msg    string
}

func (e *requestError) Error() string { return e.msg }

func badRequest(format string, args ...any) error {
	return &requestError{status: http.StatusBadRequest, msg: fmt.Sprintf(format, args...)}
}

// decode reads a body. Its errors are the client's.
func decode(raw []byte) (*body, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, badRequest("the body is not understood: %v", err)
	}
	return &b, nil
}

// scope returns the model's name for the reply and the root of the cache's keys.
func (c *Config) scope(b *body) (string, blockKey, error) {
	switch {
	case b.Model == "":
		return c.modelName(), rootKey("", b.CacheSalt), nil
	case c.served.has(b.Model):
		return b.Model, rootKey(b.Model, b.CacheSalt), nil
	case c.Model == "" || c.Model == b.Model:
		return b.Model, rootKey("", b.CacheSalt), nil
	}
	msg := fmt.Sprintf("The model %q does not exist.", b.Model)
	return "", blockKey{}, &requestError{status: http.StatusNotFound, msg: msg}
}

// promptTokens returns the prompts of a body of one path.
func (b *body) promptTokens(path string) ([][]uint32, error) {
	if path == pathCompletions || path == pathTokenize && len(b.Messages) == 0 {
		var bos []uint32
		if b.AddSpecialTokens == nil || *b.AddSpecialTokens {
			bos = []uint32{tokBOS}
		}
		all := slices.Clone(b.Prompt.tokens)
		for _, t := range b.Prompt.texts {
			all = append(all, appendTokens(slices.Clone(bos), t))
		}
		if len(all) == 0 {
			return nil, badRequest("prompt is missing")
		}
		for _, p := range all {
			if len(p) == 0 {
				return nil, badRequest("a prompt is empty")
			}
		}
		return all, nil
	}
	if len(b.Messages) == 0 {
		return nil, badRequest("messages is missing or empty")
	}
	generate := b.AddGenerationPrompt == nil || *b.AddGenerationPrompt
	var system content
	if path == pathMessages {
		system = b.System
	}
	return [][]uint32{appendChat(nil, b.Tools, system, b.Messages, generate)}, nil
}

// job makes a request that generates out of a body.
func (c *Config) job(path string, b *body) (*job, error) {
	j := &job{stream: b.Stream, returnIDs: b.ReturnTokenIDs}
	j.includeUsage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	var err error
	if j.model, j.root, err = c.scope(b); err != nil {
		return nil, err
	}
	if b.N != nil && *b.N != 1 {
		return nil, badRequest("n is not 1, which this replica does not simulate")
	}
	b.AddGenerationPrompt = nil
	if j.prompts, err = b.promptTokens(path); err != nil {
		return nil, err
	}
	limit := b.MaxTokens
	switch {
	case b.MaxCompletionTokens != nil && path == pathChat:
		limit = b.MaxCompletionTokens
	case limit == nil && path == pathMessages:
		return nil, badRequest("max_tokens is missing")
	case limit == nil && path == pathCompletions:
		limit = new(int)
		*limit = 16 // OpenAI's default
	}
	for _, p := range j.prompts {
		room := c.MaxModelLen - len(p)
		if room < 1 {
			return nil, badRequest("This model's maximum context length is %d tokens. However, the prompt has %d.",
				c.MaxModelLen, len(p))
		}
		n := room
		if limit != nil {
			if n = *limit; n < 1 || n > room {
				return nil, badRequest("max_tokens must be 1 to %d here, not %d: "+
					"this model's maximum context length is %d tokens and the prompt has %d.", room, n, c.MaxModelLen, len(p))
			}
		}
		natural := max(c.ReplyTokens, b.MinTokens)
		ignoreEnd := b.IgnoreEOS
		if limit == nil {
			n = min(room, natural) // ignore_eos alone does not mean the whole context
		}
		j.replies = append(j.replies, newReply(p, natural, n, ignoreEnd, path == pathCompletions))
	}
	return j, nil
}
