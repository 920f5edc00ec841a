package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/prompt"
)

func TestUsage(t *testing.T) {
	filler := "event: content_block_delta\ndata: {\"delta\":\"" + strings.Repeat("word ", 4000) + "\"}\n\n"
	for _, c := range []struct {
		name, body string
		want       prompt.Usage
	}{
		{"chat", `{"choices":[{"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`, prompt.Usage{Prompt: 7, Cached: 5, Output: 3}},
		{"chat, stream", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\ndata: " +
			"{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
			prompt.Usage{Prompt: 7, Output: 3}},
		{"chat, a count in each event",
			strings.Repeat(`data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`+"\n\n", 400) +
				`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":900}}` +
				"\n\n", prompt.Usage{Prompt: 7, Output: 900}},
		{"ids behind it", `{"usage":{"prompt_tokens":7},"prompt_token_ids":[` + strings.Repeat("1234,", 5000) + `1]}`,
			prompt.Usage{Prompt: 7}},
		{"messages", `{"usage":{"input_tokens":10,"cache_read_input_tokens":30,"cache_creation_input_tokens":2,"output_tokens":4}}`, prompt.Usage{Prompt: 42, Cached: 30, Output: 4}},
		{"messages, long stream",
			`data: {"message":{"usage":{"input_tokens":10,"cache_read_input_tokens":30,"output_tokens":1}}}` + "\n\n" + filler +
				`data: {"type":"message_delta","usage":{"output_tokens":400}}` +
				"\n\n", prompt.Usage{Prompt: 40, Cached: 30, Output: 400}},
		{"responses", `{"usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 4}}`,
			prompt.Usage{Prompt: 10, Cached: 8, Output: 4}},
		{"null at the end", `{"usage":{"prompt_tokens":3}}{"usage":null}`, prompt.Usage{Prompt: 3}},
		{"said by the model", `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":99}"}}]}`, prompt.Usage{}},
		{"negative", `{"usage":{"prompt_tokens":-3}}`, prompt.Usage{}},
		{"cut", `{"usage":{"prompt_tok`, prompt.Usage{}},
		{"wrong type", `{"usage":{"prompt_tokens":"x"}}`, prompt.Usage{}},
		{"none", `{}`, prompt.Usage{}},
	} {
		for _, step := range []int{1, 7, 1 << 20} {
			var r prompt.Reply
			for b := c.body; len(b) > 0; {
				n := min(step, len(b))
				_, _ = r.Write([]byte(b[:n]))
				b = b[n:]
			}
			if d := cmp.Diff(c.want, r.Usage()); d != "" {
				t.Errorf("%s, by %d bytes: %s", c.name, step, d)
			}
		}
	}
}

func ExampleReply_Usage() {
	var r prompt.Reply
	_, _ = r.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"Rayleigh."}}],`))
	_, _ = r.Write([]byte(`"usage":{"prompt_tokens":120,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":96}}}`))
	u := r.Usage()
	fmt.Println(u.Prompt, u.Cached, u.Output)
	// Output: 120 96 4
}
