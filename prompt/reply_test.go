package prompt_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

// events makes a stream of server-sent events.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var v struct{ Type string }
		if json.Unmarshal([]byte(d), &v) == nil && v.Type != "" {
			fmt.Fprintf(&b, "event: %s\n", v.Type)
		}
		fmt.Fprintf(&b, "data: %s\n\n", d)
	}
	return b.String()
}

// replies are replies of each API, whole and streamed, and the request that
// sends them back.
var replies = []struct {
	name, api   string
	first, next string // the requests before and after
	reply       []string
}{
	{
		name: "chat", api: "chat",
		first: `{"messages":[{"role":"user","content":"Hi"}]}`,
		next:  `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello 😀, \"you\""},{"role":"user","content":"x"}]}`,
		reply: []string{
			`{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":"hm","content":"Hello 😀, \"you\"","refusal":null,"tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`,
			events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
				`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
				`{"choices":[{"index":0,"delta":{"content":"Hello \ud83d\ude00"},"logprobs":null}]}`,
				`{"choices":[{"delta":{"content":", \"you\""},"index":0,"finish_reason":"stop"}]}`,
				`{"choices":[],"usage":{"prompt_tokens":1}}`, `[DONE]`),
		},
	},
	{
		name: "chat with calls", api: "chat",
		first: `{"messages":[{"role":"user","content":"Hi"}]}`,
		next:  `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"ok","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}]},{"role":"tool","tool_call_id":"a","content":"r"}]}`,
		reply: []string{
			`{"choices":[{"index":0,"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}],"content":"ok","role":"assistant"}}]}`,
			events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"ok"}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"{\"x\""},"index":0}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}},{"index":1,"id":"b","function":{"name":"g"}}]}}]}`, `[DONE]`),
		},
	},
	{
		name: "completion", api: "completion",
		first: `{"prompt":"Once"}`,
		next:  `{"prompt":"Once upon a time, he"}`,
		reply: []string{
			`{"object":"text_completion","choices":[{"index":0,"text":" upon a time","logprobs":null}]}`,
			events(`{"choices":[{"index":0,"text":" upon"}]}`, `{"choices":[{"index":0,"text":" a time"}]}`, `[DONE]`),
		},
	},
	{
		name: "messages", api: "messages",
		first: `{"messages":[{"role":"user","content":"Hi"}]}`,
		next:  `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"Let me"},{"type":"tool_use","id":"1","name":"f","input":{"b":1.50,"a":["é\n"]}},{"type":"tool_use","id":"2","name":"g","input":{}},{"type":"text","text":"and"},{"type":"text","text":"so"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]}`,
		reply: []string{
			`{"id":"m","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"Let me"},{"type":"tool_use","id":"1","name":"f","input":{"b" : 1.50, "a":["\u00e9\u000A"]}},{"type":"tool_use","input":{},"id":"2","name":"g"},{"type":"text","text":"and"},{"type":"text","text":"so"}],"stop_reason":"tool_use"}`,
			`{"content":[{"type":"text","text":"Let me"},{"type":"tool_use","name":"f","input":{"b":1.50,"a":["é\n"]}},{"type":"tool_use","name":"g","input":{}},{"type":"text","text":"and"},{"type":"text","text":"so"}],"role":"assistant","type":"message"}`,
			events(`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[]}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}`,
				`{"type":"content_block_stop","index":0}`, `{"type":"ping"}`,
				`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let"}}`,
				`{"delta":{"text":" me","type":"text_delta"},"index":1,"type":"content_block_delta"}`,
				`{"type":"content_block_stop","index":1}`,
				`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"1","name":"f","input":{}}}`,
				`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
				`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"b\": 1.5"}}`,
				`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"0, \"a\": [\"\\u00"}}`,
				`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"e9\\n\"]}"}}`,
				`{"type":"content_block_stop","index":2}`,
				`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"2","name":"g","input":{}}}`,
				`{"type":"content_block_stop","index":3}`,
				`{"type":"content_block_start","index":4,"content_block":{"type":"text","text":"and"}}`,
				`{"type":"content_block_stop","index":4}`,
				`{"type":"content_block_start","index":5,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_delta","index":5,"delta":{"type":"text_delta","text":"so"}}`,
				`{"type":"content_block_stop","index":5}`,
				`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`,
				`{"type":"message_stop"}`),
		},
	},
	{
		name: "responses", api: "responses",
		first: `{"input":"Hi"}`,
		next:  `{"input":[{"role":"user","content":"Hi"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me"},{"type":"output_text","text":"see"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": 1}"},{"type":"function_call_output","call_id":"1","output":"r"}]}`,
		reply: []string{
			`{"object":"response","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me"},{"type":"output_text","text":"see"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": 1}"}]}`,
			events(`{"type":"response.created","response":{"output":[]}}`,
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","summary":[]}}`,
				`{"type":"response.reasoning_text.delta","output_index":0,"delta":"hm"}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}}`,
				`{"type":"response.output_item.added","output_index":1,"item":{"type":"message","role":"assistant","content":[]}}`,
				`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"Let"}`,
				`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":" me"}`,
				`{"type":"response.output_text.delta","output_index":1,"content_index":1,"delta":"see"}`,
				`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me"},{"type":"output_text","text":"see"}]}}`,
				`{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"1","name":"f","arguments":""}}`,
				`{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"x\":"}`,
				`{"type":"response.function_call_arguments.delta","output_index":2,"delta":" 1}"}`,
				`{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": 1}"}}`,
				`{"type":"response.completed","response":{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"other"}]}]}}`),
			events(`{"type":"response.completed","response":{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me"},{"type":"output_text","text":"see"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": 1}"}]}}`),
		},
	},
}

// TestReply checks each reply against the requests before and after it: with
// the reply's text the first text begins the next. It holds for every form of
// the reply, however it is cut into Writes, and for every beginning of it.
func TestReply(t *testing.T) {
	for _, c := range replies {
		first, next := text(t, c.api, c.first), text(t, c.api, c.next)
		want := ""
		for i, body := range c.reply {
			var r prompt.Reply
			for j := range len(body) {
				if n, err := r.Write([]byte{body[j]}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if got := first + r.Text(); !strings.HasPrefix(next, got) {
					t.Fatalf("%s, form %d, after %q:\n%q is no beginning of\n%q", c.name, i, body[max(0, j-40):j+1], got, next)
				}
			}
			got := r.Text()
			if want == "" {
				want = got
			}
			if got != want || got == "" {
				t.Errorf("%s, form %d: %q, want %q", c.name, i, got, want)
			}
			// The mark that opens the next turn, or the completion's next words.
			if rest := strings.TrimPrefix(next, first+got); len(rest) == 0 || c.api != "completion" && rest[0] != 0xFF {
				t.Errorf("%s, form %d: the next request has %q after the reply", c.name, i, rest)
			}
			for limit := 1; limit < len(want)+2; limit++ {
				short := prompt.Reply{Limit: limit}
				short.Write([]byte(body))
				if got := short.Text(); len(got) > limit || !strings.HasPrefix(want, got) || len(got) < min(limit, len(want))-40 {
					t.Errorf("%s, form %d, limit %d: %q", c.name, i, limit, got)
				}
			}
			for _, end := range []string{"\r\n", "\r"} {
				if i == 0 || body[0] == '{' {
					continue
				}
				var r prompt.Reply
				crlf := strings.ReplaceAll(": hi\n\n"+body, "\n", end)
				r.Write([]byte(crlf[:len(crlf)/2]))
				r.Write([]byte(crlf[len(crlf)/2:]))
				if got := r.Text(); got != want {
					t.Errorf("%s, form %d, line ends %q: %q", c.name, i, end, got)
				}
			}
		}
	}
}

// TestReplyMixed streams content after a call, which still comes first, and
// pieces of two calls that take turns.
func TestReplyMixed(t *testing.T) {
	var r prompt.Reply
	r.Write([]byte(events(`{"choices":[{"index":0,"delta":{"content":"o"}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"name":"g","arguments":"["}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"k","tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":"]"}}]}}]}`)))
	if got, want := r.Text(), a+"ok\xffcf\xffj{}\xffcg\xffj[]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReplyUnknown has replies that say nothing of the next request.
func TestReplyUnknown(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":         ``,
		"error":           `{"error":{"message":"no"}}`,
		"Anthropic error": `{"type":"error","error":{"type":"x","message":"no"}}`,
		"HTML":            `<html><body>data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`,
		"array":           `[{"choices":[]}]`,
		"two choices":     `{"choices":[{"index":0,"message":{"role":"assistant","content":"a"}},{"index":1,"message":{"role":"assistant","content":"b"}}]}`,
		"two texts":       `{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}`,
		"two streams": events(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"choices":[{"index":1,"delta":{"content":"b"}}]}`),
		"empty":            `{"choices":[{"index":0,"message":{"role":"assistant","content":""}}]}`,
		"empty stream":     events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, `[DONE]`),
		"only thinking":    events(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, `{"type":"content_block_stop","index":0}`),
		"only a reasoning": `{"output":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"x"}]}]}`,
	} {
		var r prompt.Reply
		r.Write([]byte(body))
		if got := r.Text(); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestReplyBounds writes more than is kept.
func TestReplyBounds(t *testing.T) {
	long := strings.Repeat("añ", 1<<20)
	want := u[:1] + "a" + long
	for name, body := range map[string]string{
		"whole":  `{"choices":[{"index":0,"message":{"role":"assistant","content":"` + long + `"}}]}`,
		"stream": strings.Repeat(events(`{"choices":[{"index":0,"delta":{"content":"`+long[:3*1000]+`"}}]}`), 100),
		"blocks": events(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
			strings.Repeat(events(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+long[:3*1000]+
				`"}}`), 100),
		"items": strings.Repeat(events(`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"`+
			long[:3*1000]+`"}`), 100),
	} {
		var r prompt.Reply
		for len(body) > 0 {
			n := min(len(body), 4096)
			r.Write([]byte(body[:n]))
			body = body[n:]
		}
		if got := r.Text(); len(got) > prompt.DefaultReply || len(got) < prompt.DefaultReply-4 ||
			!strings.HasPrefix(want, got) {
			t.Errorf("%s: %d bytes, %.20q ... %q", name, len(got), got, got[max(0, len(got)-4):])
		}
	}
}

func ExampleReply() {
	var r prompt.Reply
	fmt.Fprint(&r, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel")
	fmt.Fprint(&r, "lo\"}}]}\n\ndata: [DONE]\n\n")
	fmt.Printf("%q\n", r.Text())
	// Output: "\xffaHello"
}
