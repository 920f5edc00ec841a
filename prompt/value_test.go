package prompt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

var valuePaths = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings",
	"/v1/rerank", "/generate", "/inference/v1/generate", "/completion", "/v1/unknown"}

// checkValue holds that a parsed body gives the prompt of the bytes that encoding/json makes of it.
func checkValue(t *testing.T, path string, v any) {
	t.Helper()
	body, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErr := prompt.FromRequest(path, nil, body)
	got, gotErr := prompt.FromValue(path, nil, v)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s, %.300s: %s", path, body, d)
	}
	var a, b prompt.Error
	if e := new(prompt.Error); errors.As(wantErr, &e) {
		a = *e
	}
	if e := new(prompt.Error); errors.As(gotErr, &e) {
		b = *e
	}
	if a.Kind != b.Kind || a.Kind != prompt.ErrTooDeep && a.Field != b.Field {
		t.Errorf("%s, %.300s: %v, want %v", path, body, gotErr, wantErr)
	}
}

// TestFromValue reads what the tests of FromRequest read, parsed, and recorded conversations.
func TestFromValue(t *testing.T) {
	bodies := [][]byte{
		benchBody(t), []byte(`null`), []byte(`[]`), []byte(`"x"`), []byte(`{}`), []byte(`{"messages":7}`),
		[]byte("{\"messages\":[{\"role\":\"user\",\"content\":\"<a&b> \\u2028 \\u0000 \\\" \\\\ \\ud800 \xff\xfe\"}]}"),
		[]byte(`{"tools":[{"b":1e21,"a":1e-7,"c":0.1,"d":-0,"e":123456789012345678901234567890,"f":1E400}]}`),
		[]byte(`{"prompt":` + strings.Repeat("[", 990) + strings.Repeat("]", 990) + `}`),
		[]byte(`{"prompt":` + strings.Repeat("[", 1100) + strings.Repeat("]", 1100) + `}`),
	}
	for _, c := range replies {
		bodies = append(bodies, []byte(c.next))
	}
	for _, traj := range trajectories(t)[:5] {
		bodies = append(bodies, marshal(t, map[string]any{"model": "m", "messages": traj}))
	}
	for _, body := range bodies {
		for _, useNumber := range []bool{false, true} {
			d := json.NewDecoder(bytes.NewReader(body))
			if useNumber {
				d.UseNumber()
			}
			var v any
			if err := d.Decode(&v); err != nil {
				continue
			}
			for _, path := range valuePaths {
				checkValue(t, path, v)
			}
		}
	}
}

// TestFromValueTypes has values that encoding/json does not read into an any, but hosts have.
func TestFromValueTypes(t *testing.T) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content,omitempty"`
	}
	type request struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}
	text := "<x>"
	for _, v := range []any{
		map[string]any{"model": "m", "messages": []map[string]any{{"role": "user", "content": "x"}, nil}},
		map[string]any{"messages": []message{{"user", "x"}, {Role: "assistant"}}},
		map[string]any{"messages": []any{&message{"user", "x"}, map[string]string{"role": "user", "content": "y"}}},
		request{"m", []message{{"user", "<x>"}}},
		&request{},
		map[string]any{"messages": json.RawMessage(`[ {"role":"user","content":"\u0078"} ]`), "model": json.RawMessage(nil)},
		map[string]any{"prompt": []string{"a", "b"}, "input": []uint32{1, 2}, "token_ids": []int{1, 2}, "text": &text},
		map[string]any{"prompt": []any{1, int64(2), uint32(3), json.Number("4"), json.Number("")}},
		map[string]any{"messages": []any(nil), "tools": map[string]any(nil), "prompt": []string(nil)},
	} {
		for _, path := range valuePaths {
			checkValue(t, path, v)
		}
	}
}

// TestFromValueBad: whatever is handed in, the prompt can be routed, and the work has an end.
func TestFromValueBad(t *testing.T) {
	loop := map[string]any{"model": "m"}
	loop["messages"] = []any{loop, loop}
	var wide any = "x"
	for range 64 { // 2^64 strings
		wide = []any{wide, wide}
	}
	for _, c := range []struct {
		name string
		v    any
		want error
		text string
	}{
		{"a loop", loop, prompt.ErrTooDeep, ""},
		{"one value in many places", map[string]any{"messages": wide}, prompt.ErrTooLarge, ""},
		{"NaN", map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "temperature": math.NaN()},
			prompt.ErrType, u + "x"},
		{"a channel", map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "x": make(chan int)},
			prompt.ErrType, u + "x"},
		{"raw, and no JSON", map[string]any{"messages": json.RawMessage(`[{"role":"user"}],"model":"x"`)},
			prompt.ErrType, ""},
		{"a number, and no JSON", map[string]any{"prompt": []any{json.Number("1,2")}}, prompt.ErrType, ""},
		{"no object", 7, prompt.ErrType, ""},
	} {
		r := prompt.Parser{MaxBody: 1 << 20}
		p, err := r.FromValue("/v1/chat/completions", nil, c.v)
		if !errors.Is(err, c.want) || p.Text != c.text {
			t.Errorf("%s: %q, %v", c.name, p.Text, err)
		}
	}
	h := headers("X-Session-Id", "k", "x-rolter-vllm-token-ids", "1,2")
	p, err := prompt.FromValue("/v1/chat/completions", h, map[string]any{"model": "m"})
	want := router.Prompt{Model: "m", Session: "x-session-id:0::k", Tokens: []uint32{1, 2}}
	if d := cmp.Diff(want, p); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// FuzzFromValue parses arbitrary bodies and reads them as values.
func FuzzFromValue(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, useNumber := range []bool{false, true} {
			d := json.NewDecoder(bytes.NewReader(body))
			if useNumber {
				d.UseNumber()
			}
			var v any
			if d.Decode(&v) != nil {
				return
			}
			if b, _ := encode(v); bytes.Contains(b, []byte(`\u2028`)) || bytes.Contains(b, []byte(`\u2029`)) ||
				bytes.Contains(b, []byte(`\ufffd`)) {
				return // a name or a type with an escape is not looked up, and here it has none
			}
			for _, path := range valuePaths {
				checkValue(t, path, v)
			}
		}
	})
}

func ExampleFromValue() {
	// A host that has parsed the body, with whatever it changed in it.
	body := map[string]any{
		"model":    "llama",
		"messages": []any{map[string]any{"role": "user", "content": "Hello"}},
	}
	p, err := prompt.FromValue("/v1/chat/completions", nil, body)
	fmt.Printf("%s %q %v\n", p.Model, p.Text, err)
	// Output: llama "\xffuHello" <nil>
}

// BenchmarkValueRatio reports how many times faster FromValue is than writing the body again and reading that, from the
// best of rounds that take turns.
func BenchmarkValueRatio(b *testing.B) {
	var v any
	if err := json.Unmarshal(benchBody(b), &v); err != nil {
		b.Fatal(err)
	}
	ours, theirs := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		for range 4 {
			if _, err := prompt.FromValue("/v1/chat/completions", nil, v); err != nil {
				b.Fatal(err)
			}
		}
		ours = min(ours, time.Since(start)/4)
		start = time.Now()
		body, err := json.Marshal(v)
		if err == nil {
			_, err = prompt.FromChat(body)
		}
		if err != nil {
			b.Fatal(err)
		}
		theirs = min(theirs, time.Since(start))
	}
	b.ReportMetric(float64(theirs)/float64(ours), "times_faster")
	b.ReportMetric(float64(ours)/1e3, "us/ours")
	b.ReportMetric(0, "ns/op")
}
