package tokenmemo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReply(t *testing.T) {
	type ids = []uint32
	for _, c := range []struct {
		name, body     string
		prompt, output ids
	}{
		{"chat", `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop","stop_reason":null,"token_ids":[4,5]}],"usage":{"prompt_tokens":3},"prompt_token_ids":[1,2,3]}`, ids{1, 2, 3}, ids{4, 5}},
		{"completion", `{"choices":[{"index":0,"text":"x","finish_reason":"stop","stop_reason":7,"token_ids":[4],"prompt_token_ids":[1]}]}`, ids{1}, ids{4}},
		{"tool calls", `{"choices":[{"index":0,"finish_reason":"tool_calls","token_ids":[4]}],"prompt_token_ids":[1]}`,
			ids{1}, ids{4}},
		{"cut by max_tokens", `{"choices":[{"index":0,"finish_reason":"length","token_ids":[4]}],"prompt_token_ids":[1]}`,
			ids{1}, nil},
		{"cut by a stop string",
			`{"choices":[{"index":0,"finish_reason":"stop","stop_reason":"END","token_ids":[4]}],"prompt_token_ids":[1]}`,
			ids{1}, nil},
		{"several choices", `{"choices":[{"index":0,"finish_reason":"stop","token_ids":[4]},{"index":1,"finish_reason":"stop","token_ids":[5]}],"prompt_token_ids":[1]}`, ids{1}, nil},
		{"several prompts", `{"choices":[{"index":0,"finish_reason":"stop","prompt_token_ids":[1]},{"index":1,"finish_reason":"stop","prompt_token_ids":[2]}]}`, nil, nil},
		{"not asked for", `{"choices":[{"index":0,"finish_reason":"stop","token_ids":null}],"prompt_token_ids":null}`, nil,
			nil},
		{"ids as text", `{"choices":[],"prompt_token_ids":["1"]}`, nil, nil},
		{"negative", `{"choices":[],"prompt_token_ids":[-1]}`, nil, nil},
		{"fraction", `{"choices":[],"prompt_token_ids":[1.5]}`, nil, nil},
		{"33 bits", `{"choices":[],"prompt_token_ids":[4294967296]}`, nil, nil},
		{"32 bits", `{"choices":[],"prompt_token_ids":[4294967295]}`, ids{4294967295}, nil},
		{"no array", `{"choices":[],"prompt_token_ids":7}`, nil, nil},
		{"broken off", `{"choices":[],"prompt_token_ids":[1,2`, nil, nil},
		{"broken off at its end", `{"choices":[],"prompt_token_ids":[1,2]`, nil, nil},
		{"no object", `[1]`, nil, nil},
		{"chat stream", `data: {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}],"prompt_token_ids":[1,2,3]}

: ping

data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null,"token_ids":[4]}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","token_ids":[5,6]}]}

data: {"choices":[],"usage":{}}

data: [DONE]

`, ids{1, 2, 3}, ids{4, 5, 6}},
		{"CRLF, no blank", "data:{\"choices\":[{\"index\":0,\"finish_reason\":\"stop\",\"token_ids\":[4],\"prompt_token_ids\":[1]}]}\r\n\r\ndata:[DONE]\r\n\r\n", ids{1}, ids{4}},
		{"stream without an end", "data: {\"choices\":[],\"prompt_token_ids\":[1]}\n\n", nil, nil},
		{"stream with an error", "data: {\"choices\":[],\"prompt_token_ids\":[1]}\n\ndata: {oops\n\ndata: [DONE]\n\n", nil,
			nil},
		{"two choices in a stream",
			"data: {\"choices\":[{\"index\":0,\"token_ids\":[1],\"finish_reason\":\"stop\"}],\"prompt_token_ids\":[9]}\n\ndata: {\"choices\":[{\"index\":1,\"token_ids\":[2],\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", ids{9}, nil},
		{"another prompt later",
			"data: {\"choices\":[],\"prompt_token_ids\":[9]}\n\ndata: {\"choices\":[],\"prompt_token_ids\":[8]}\n\ndata: " +
				"[DONE]\n\n", nil, nil},
	} {
		for _, step := range []int{1, 7, 1 << 20} {
			var r Reply
			for b := c.body; len(b) > 0; {
				n := min(step, len(b))
				r.Write([]byte(b[:n]))
				b = b[n:]
			}
			for range 2 { // asked twice it says the same
				p, o := r.Tokens()
				if d := cmp.Diff(c.prompt, p); d != "" {
					t.Errorf("%s in steps of %d: prompt %s", c.name, step, d)
				}
				if d := cmp.Diff(c.output, o); d != "" {
					t.Errorf("%s in steps of %d: output %s", c.name, step, d)
				}
			}
		}
	}
}

func TestReplyLimit(t *testing.T) {
	body := fmt.Sprintf(`{"prompt_token_ids":[1],"x":%q}`, strings.Repeat("x", 1000))
	for limit, want := range map[int]bool{len(body): true, len(body) - 1: false} {
		for _, form := range []string{body, "data: " + body + "\n\ndata: [DONE]\n\n"} {
			r := Reply{Limit: limit}
			r.Write([]byte(form))
			if p, _ := r.Tokens(); (p != nil) != want {
				t.Errorf("limit %d of %d: %v", r.Limit, len(form), p)
			}
			if cap(r.raw) > 4*limit {
				t.Errorf("%d bytes are held", cap(r.raw))
			}
		}
	}
}

// FuzzReply: however it is cut, a reply says the same.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"finish_reason":"stop","token_ids":[4,5]}],"prompt_token_ids":[1,2,3]}`), 3)
	f.Add([]byte("data: {\"choices\":[{\"index\":0,\"token_ids\":[1],\"finish_reason\":\"stop\"}],\"prompt_token_ids\":[9]}\n\ndata: [DONE]\n\n"), 5)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		var one, many Reply
		one.Write(b)
		step = max(1, step)
		for rest := b; len(rest) > 0; {
			n := min(step, len(rest))
			many.Write(rest[:n])
			rest = rest[n:]
		}
		p1, o1 := one.Tokens()
		p2, o2 := many.Tokens()
		if !equalIDs(p1, p2) || !equalIDs(o1, o2) {
			t.Errorf("whole: %v %v; in steps of %d: %v %v", p1, o1, step, p2, o2)
		}
	})
}
