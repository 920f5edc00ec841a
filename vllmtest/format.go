package vllmtest

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// usage is the usage that a reply reports.
type usage struct{ prompt, cached, output int }

// format writes the replies of one path.
type format struct {
	// open begins a stream; it is written with the first token.
	open func(b []byte, h *replyHead, u usage) []byte
	// delta streams a piece of text.
	delta func(b []byte, h *replyHead, index int, text []byte) []byte
	// finish ends one choice of a stream.
	finish func(b []byte, h *replyHead, index int, reason string) []byte
	// close ends the stream.
	close func(b []byte, h *replyHead, u usage, reason string) []byte
	// whole is a reply that is not streamed.
	whole func(b []byte, h *replyHead, choices []choice, u usage) []byte
}

type choice struct {
	text   []byte
	reason string
}

// replyHead has the members that all parts of one reply share.
type replyHead struct {
	id           string
	created      int64
	model        string // as a JSON string
	includeUsage bool
	ids          *tokenIDs // nil: none are returned
}

// appendString writes a text of a reply as a JSON string. Replies are made of
// letters, blanks, full stops and newlines.
func appendString(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		if c == '\n' {
			b = append(b, `\n`...)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendNum(b []byte, key string, n int) []byte {
	return strconv.AppendInt(append(b, key...), int64(n), 10)
}

// head opens an object of OpenAI's API up to its choices.
func (h *replyHead) head(b []byte, prefix, object string) []byte {
	b = append(b, `{"id":"`...)
	b = append(append(b, prefix...), h.id...)
	b = append(append(b, `","object":"`...), object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, h.created, 10)
	b = append(append(b, `,"model":`...), h.model...)
	return append(b, `,"choices":[`...)
}

func (u usage) openAI(b []byte) []byte {
	b = appendNum(b, `{"prompt_tokens":`, u.prompt)
	b = appendNum(b, `,"total_tokens":`, u.prompt+u.output)
	b = appendNum(b, `,"completion_tokens":`, u.output)
	b = appendNum(b, `,"prompt_tokens_details":{"cached_tokens":`, u.cached)
	return append(b, `}}`...)
}

func openAIFormat(prefix, streamed, object string, chat bool) format {
	content, end := `,"text":`, `,"text":""`
	if chat {
		content, end = `,"delta":{"content":`, `,"delta":{}`
	}
	return format{
		open: func(b []byte, h *replyHead, _ usage) []byte {
			if !chat {
				return b
			}
			b = h.head(append(b, "data: "...), prefix, streamed)
			b = append(b, `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
			b = h.ids.prompt(b, 0)
			return append(b, "}\n\n"...)
		},
		delta: func(b []byte, h *replyHead, index int, text []byte) []byte {
			b = h.head(append(b, "data: "...), prefix, streamed)
			b = append(appendNum(b, `{"index":`, index), content...)
			b = appendString(b, text)
			if chat {
				b = append(b, '}')
			}
			b = append(b, `,"logprobs":null,"finish_reason":null`...)
			b = h.ids.piece(b, index, chat)
			return append(b, "}]}\n\n"...)
		},
		finish: func(b []byte, h *replyHead, index int, reason string) []byte {
			b = h.head(append(b, "data: "...), prefix, streamed)
			b = append(appendNum(b, `{"index":`, index), end...)
			b = append(append(b, `,"logprobs":null,"finish_reason":"`...), reason...)
			b = h.ids.piece(append(b, `","stop_reason":null`...), index, chat)
			return append(b, "}]}\n\n"...)
		},
		close: func(b []byte, h *replyHead, u usage, _ string) []byte {
			if h.includeUsage {
				b = h.head(append(b, "data: "...), prefix, streamed)
				b = u.openAI(append(b, `],"usage":`...))
				b = append(b, "}\n\n"...)
			}
			return append(b, "data: [DONE]\n\n"...)
		},
		whole: func(b []byte, h *replyHead, choices []choice, u usage) []byte {
			b = h.head(b, prefix, object)
			for i, c := range choices {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendNum(b, `{"index":`, i)
				if chat {
					b = appendString(append(b, `,"message":{"role":"assistant","content":`...), c.text)
					b = append(b, `,"refusal":null,"tool_calls":[]}`...)
				} else {
					b = appendString(append(b, `,"text":`...), c.text)
				}
				b = append(append(b, `,"logprobs":null,"finish_reason":"`...), c.reason...)
				b = append(b, `","stop_reason":null`...)
				if !chat {
					b = h.ids.prompt(b, i)
				}
				b = append(h.ids.output(b, i), '}')
			}
			b = u.openAI(append(b, `],"usage":`...))
			if chat {
				b = h.ids.prompt(b, 0)
			}
			return append(b, '}')
		},
	}
}

// The Messages API counts tokens from the cache apart: input_tokens is
// the rest.
func (u usage) anthropic(b []byte) []byte {
	b = appendNum(b, `{"input_tokens":`, u.prompt-u.cached)
	b = appendNum(b, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`, u.cached)
	b = appendNum(b, `,"output_tokens":`, u.output)
	return append(b, '}')
}

func stopReason(reason string) string {
	if reason == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

func (h *replyHead) anthropic(b []byte) []byte {
	b = append(append(b, `{"id":"msg_`...), h.id...)
	return append(append(b, `","type":"message","role":"assistant","model":`...), h.model...)
}

var messagesFormat = format{
	open: func(b []byte, h *replyHead, u usage) []byte {
		b = h.anthropic(append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...))
		u.output = 0
		b = u.anthropic(append(b, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...))
		b = append(b, "}}\n\n"...)
		return append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"+
			"\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"...)
	},
	delta: func(b []byte, _ *replyHead, _ int, text []byte) []byte {
		b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"+
			"\"delta\":{\"type\":\"text_delta\",\"text\":"...)
		return append(appendString(b, text), "}}\n\n"...)
	},
	finish: func(b []byte, _ *replyHead, _ int, _ string) []byte {
		return append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	},
	close: func(b []byte, _ *replyHead, u usage, reason string) []byte {
		b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
		b = append(append(b, stopReason(reason)...), `","stop_sequence":null},"usage":`...)
		b = append(u.anthropic(b), "}\n\n"...)
		return append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	},
	whole: func(b []byte, h *replyHead, choices []choice, u usage) []byte {
		b = appendString(append(h.anthropic(b), `,"content":[{"type":"text","text":`...), choices[0].text)
		b = append(append(b, `}],"stop_reason":"`...), stopReason(choices[0].reason)...)
		b = u.anthropic(append(b, `","stop_sequence":null,"usage":`...))
		return append(b, '}')
	},
}

var formats = map[string]format{
	pathChat:        openAIFormat("chatcmpl-", "chat.completion.chunk", "chat.completion", true),
	pathCompletions: openAIFormat("cmpl-", "text_completion", "text_completion", false),
	pathMessages:    messagesFormat,
}

// writeError answers with an error in the form that the path's API has.
func writeError(w http.ResponseWriter, r *http.Request, status int, msg string) {
	kind := "InternalServerError"
	switch {
	case status == http.StatusNotFound:
		kind = "NotFoundError"
	case status == http.StatusTooManyRequests:
		kind = "RateLimitError"
	case status == http.StatusServiceUnavailable:
		kind = "ServiceUnavailableError"
	case status < 500:
		kind = "BadRequestError"
	}
	var v any = map[string]any{"error": map[string]any{"message": msg, "type": kind, "param": nil, "code": status}}
	if r.URL.Path == pathMessages {
		v = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": msg}}
	}
	writeJSON(w, status, v)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
}
