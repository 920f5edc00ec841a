package prompt_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/prompt"
)

// chatRequest is what a program that reads such a body declares.
type chatRequest struct {
	Model     string `json:"model"`
	CacheSalt string `json:"cache_salt"`
	Messages  []struct {
		Role       string `json:"role"`
		Name       string `json:"name"`
		Content    string `json:"content"`
		Reasoning  string `json:"reasoning_content"`
		Refusal    string `json:"refusal"`
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Type     string `json:"type"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []json.RawMessage `json:"tools"`
	User  string            `json:"user"`
}

// benchBody is an agent's conversation of 128 KiB: tools, a system prompt, and
// turns of prose and code with the escapes that these have in JSON.
func benchBody(t testing.TB) []byte {
	const code = "func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\tif r.Method != \"POST\" " +
		"{\n\t\thttp.Error(w, \"method not allowed\", 405)\n\t\treturn\n\t}\n\t// read what the client sent, and " +
		"answer\n\tbody, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))\n\tif err != nil " +
		"{\n\t\tlog.Printf(\"read: %v\", err)\n\t}\n}\n"
	const prose = "The handler rejects everything but POST, which is what the gateway sends; the limit on the body is " +
		"one mebibyte. I would move the limit into the configuration and return 413 instead of logging.\n\n"
	var tools []any
	for i := range 12 {
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{
			"name":        fmt.Sprintf("tool_%d", i),
			"description": "Reads a file of the project and returns its lines.\nUse it before \"edit\".",
			"parameters": map[string]any{"type": "object", "required": []string{"path"}, "properties": map[string]any{
				"path": map[string]any{"type": "string", "description": "The file's path, from the root"},
				"from": map[string]any{"type": "integer", "description": "The first line", "default": 1},
			}},
		}})
	}
	messages := []any{map[string]any{"role": "system", "content": strings.Repeat(prose, 30)}}
	var body []byte
	for i := 0; len(body) < 128<<10; i++ {
		messages = append(messages,
			map[string]any{"role": "user", "content": fmt.Sprintf("Question %d: what does this do?\n```go\n%s```\n", i, code)},
			map[string]any{"role": "assistant", "content": strings.Repeat(prose, 3), "tool_calls": []any{map[string]any{
				"id": fmt.Sprintf("call_%d", i), "type": "function", "function": map[string]any{"name": "tool_1",
					"arguments": fmt.Sprintf(`{"path":"server/handle_%d.go","from":1}`, i)},
			}}},
			map[string]any{"role": "tool", "tool_call_id": fmt.Sprintf("call_%d", i), "content": strings.Repeat(code, 3)})
		var err error
		if body, err = encode(map[string]any{"model": "m", "messages": messages, "tools": tools,
			"stream": true}); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// encode writes JSON as clients do: without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return []byte(b.String()), err
}

func BenchmarkFromChat(b *testing.B) {
	body := benchBody(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := prompt.FromChat(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	body := benchBody(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var r chatRequest
		if err := json.Unmarshal(body, &r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRatio reports how many times faster FromChat is than encoding/json,
// from the best of rounds that take turns, so that what else the machine does
// weighs on both alike.
func BenchmarkRatio(b *testing.B) {
	body := benchBody(b)
	ours, theirs := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		for range 8 {
			if _, err := prompt.FromChat(body); err != nil {
				b.Fatal(err)
			}
		}
		ours = min(ours, time.Since(start)/8)
		start = time.Now()
		var r chatRequest
		if err := json.Unmarshal(body, &r); err != nil {
			b.Fatal(err)
		}
		theirs = min(theirs, time.Since(start))
	}
	b.ReportMetric(float64(theirs)/float64(ours), "times_faster")
	b.ReportMetric(float64(ours)/1e3, "us/ours")
	b.ReportMetric(float64(theirs)/1e3, "us/encoding-json")
	b.ReportMetric(0, "ns/op")
}
