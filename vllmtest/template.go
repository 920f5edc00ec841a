package vllmtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
)

// message is one turn of a chat, in OpenAI's or Anthropic's form.
type message struct {
	Role       string     `json:"role"`
	Content    content    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls"`
	Refusal    string     `json:"refusal"`
	ToolCallID string     `json:"tool_call_id"`
}

type toolCall struct {
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// content is a string or a list of parts; null is empty.
type content []part

// part is one block of a message's content.
type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Refusal string          `json:"refusal"`
	Name    string          `json:"name"`    // tool_use
	Input   json.RawMessage `json:"input"`   // tool_use
	Content json.RawMessage `json:"content"` // tool_result

	result content // Content, decoded
	media  string  // the name of an image, audio or file
}

var (
	errContent = errors.New("content is neither a string nor a list of parts")
	errDepth   = errors.New("content is nested too deeply")
)

func (c *content) UnmarshalJSON(b []byte) (err error) {
	*c, err = decodeContent(b, 0)
	return err
}

// decodeContent decodes content inside depth tool results. The depth is bounded
// because each level reads its bytes again.
func decodeContent(b []byte, depth int) (content, error) {
	if depth > 2 {
		return nil, errDepth
	}
	switch b[0] {
	case 'n':
		return nil, nil
	case '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, err
		}
		return content{{Type: "text", Text: s}}, nil
	case '[':
	default:
		return nil, errContent
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	c := make(content, len(raw))
	for i, r := range raw {
		p := &c[i]
		if r[0] == '"' {
			p.Type = "text"
			if err := json.Unmarshal(r, &p.Text); err != nil {
				return nil, err
			}
			continue
		}
		if err := json.Unmarshal(r, p); err != nil {
			return nil, err
		}
		switch p.Type {
		case "text", "input_text", "output_text", "refusal", "tool_use", "thinking", "redacted_thinking":
		case "tool_result":
			if len(p.Content) == 0 {
				continue
			}
			var err error
			if p.result, err = decodeContent(p.Content, depth+1); err != nil {
				return nil, err
			}
		default:
			sum := sha256.Sum256(r)
			p.media = hex.EncodeToString(sum[:16])
		}
	}
	return c, nil
}

// tool is a tool's definition, in OpenAI's form (Function) or Anthropic's.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Function    *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// appendChat renders a chat to tokens: tools, then the turns in their order.
// With generate the last turn is opened for the reply.
func appendChat(dst []uint32, tools []tool, system content, messages []message, generate bool) []uint32 {
	dst = append(dst, tokBOS)
	for _, t := range tools {
		name, desc, schema := t.Name, t.Description, t.InputSchema
		if f := t.Function; f != nil {
			name, desc, schema = f.Name, f.Description, f.Parameters
		}
		dst = append(dst, tokTools)
		dst = append(appendTokens(dst, name), tokSep)
		dst = append(appendTokens(dst, desc), tokSep)
		dst = append(appendTokens(dst, compact(schema)), tokEnd)
	}
	if len(system) > 0 {
		dst = appendContent(append(dst, tokSystem), system, true)
		dst = append(dst, tokEnd)
	}
	for _, m := range messages {
		switch m.Role {
		case "system", "developer":
			dst = append(dst, tokSystem)
		case "user":
			dst = append(dst, tokUser)
		case "assistant":
			dst = append(dst, tokAssistant)
		case "tool", "function":
			dst = append(dst, tokTool)
		default:
			dst = append(dst, tokOtherRole)
			dst = append(appendTokens(dst, m.Role), tokSep)
		}
		dst = appendContent(dst, m.Content, m.Role == "system")
		dst = appendTokens(dst, m.Refusal)
		for _, c := range m.ToolCalls {
			dst = appendCall(dst, c.Function.Name, c.Function.Arguments)
		}
		dst = append(dst, tokEnd)
	}
	if generate {
		dst = append(dst, tokAssistant)
	}
	return dst
}

func appendCall(dst []uint32, name, arguments string) []uint32 {
	dst = append(dst, tokCall)
	dst = append(appendTokens(dst, name), tokSep)
	return appendTokens(dst, arguments)
}

// appendContent renders parts; texts that follow each other are joined with a
// newline, as vLLM does for templates that take strings. Thinking is left out, as most
// templates leave it out of past turns.
func appendContent(dst []uint32, c content, system bool) []uint32 {
	text := false
	for _, p := range c {
		switch {
		case p.media != "":
			dst = appendTokens(append(dst, tokMedia), p.media)
			text = false
		case p.Type == "tool_use":
			dst = appendCall(dst, p.Name, compact(p.Input))
			text = false
		case p.Type == "tool_result":
			dst = appendContent(append(dst, tokResult), p.result, false)
			text = false
		case p.Type == "thinking" || p.Type == "redacted_thinking":
		default:
			t := p.Text
			if p.Type == "refusal" {
				t = p.Refusal
			}
			if system && strings.HasPrefix(t, billingLine) {
				// It changes with every request; vLLM keeps it out of the prompt
				// (vllm#36829).
				_, t, _ = strings.Cut(t, "\n")
				if t == "" {
					continue
				}
			}
			if text {
				t = "\n" + t
			}
			dst = appendTokens(dst, t)
			text = true
		}
	}
	return dst
}

const billingLine = "x-anthropic-billing-header:"

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}
