package prompt

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/racetest"
)

// bodyWork reads a body as one of a and returns the bytes that were read for it, those twice that were looked at twice.
func bodyWork(a api, body []byte) int {
	p := new(parse)
	p.B = body
	p.body(a)
	return p.I + p.Ahead
}

// hostile are texts that invite a reader to search again from each match, n times each.
var hostile = map[string]func(n int) string{
	"CR":            func(n int) string { return strings.Repeat("\r", n) },
	"data and CR":   func(n int) string { return strings.Repeat("data: \r", n) },
	"nested usage":  func(n int) string { return `{` + strings.Repeat(`"usage":{`, n) },
	"usage":         func(n int) string { return `{` + strings.Repeat(`"usage":{"prompt_tokens":1},`, n) + `"a":1}` },
	"usage events":  func(n int) string { return strings.Repeat("data: {\"usage\":{\"prompt_tokens\":1}}\n\n", n) },
	"usage in one":  func(n int) string { return "data: {" + strings.Repeat(`"usage":{},`, n) + "\"a\":1}\n\n" },
	"usage, a line": func(n int) string { return "data: " + strings.Repeat("{\"usage\":{\ndata: ", n) },
	"data lines":    func(n int) string { return strings.Repeat("data: {\n", n) },
	"objects":       func(n int) string { return strings.Repeat(`{"a":`, n) },
	"arrays":        func(n int) string { return `{"a":` + strings.Repeat(`[`, n) },
	"members":       func(n int) string { return `{` + strings.Repeat(`"a":1,`, n) + `"a":1}` },
	"escapes":       func(n int) string { return `{"choices":[{"text":"` + strings.Repeat(`\u00e9`, n) },
	"quotes":        func(n int) string { return strings.Repeat(`"`, n) },
	"choices":       func(n int) string { return `{"choices":[` + strings.Repeat(`{},`, n) + `{}]}` },
	"types at ends": func(n int) string {
		return `{"messages":[` + strings.Repeat(`{"content":[{"a":{"b":[]},"type":"x"}]},`, n) + `{}]}`
	},
	"hints in hints": func(n int) string { return `{"tools":[` + strings.Repeat(`{"cache_control":`, n) },
	"results": func(n int) string {
		return `{"messages":[{"content":[` + strings.Repeat(`{"content":[`, n) +
			strings.Repeat(`],"type":"tool_result"}`, n) + `]}]}`
	},
	"roles at ends": func(n int) string {
		return `{"messages":[` +
			strings.Repeat(`{"content":["x-anthropic-billing-header:","x-anthropic-billing-header:"],"role":"system"},`, n) +
			`{}]}`
	},
	"mixed prompts":  func(n int) string { return `{"prompt":[` + strings.Repeat(`["a",1],`, n) + `1]}` },
	"nested prompts": func(n int) string { return `{"prompt":` + strings.Repeat(`[`, n) },
	"media": func(n int) string {
		return `{"messages":[{"content":[` + strings.Repeat(`{"type":"image","x":[1]},`, n) + `0]}]}`
	},
	"nested media": func(n int) string { return `{"messages":[{"content":[` + strings.Repeat(`{"type":"image","x":[`, n) },
}

// TestWork: the work that a body or a reply costs is linear in its length.
func TestWork(t *testing.T) {
	for name, make := range hostile {
		for _, n := range []int{100, 1_000, 10_000} {
			text := []byte(make(n))
			for _, a := range apis {
				if w := bodyWork(a, text); w > 4*len(text)+1000 {
					t.Errorf("%s, %d times: a body of %s of %d bytes costs %d", name, n, a.name(), len(text), w)
				}
			}
			for _, step := range []int{100, 1 << 30} {
				if w := replyWork(text, step); w > 12*len(text)+1000 {
					t.Errorf("%s, %d times: a reply of %d bytes, by %d, costs %d", name, n, len(text), step, w)
				}
			}
		}
	}
}

// replyWork writes a reply, reads all of it once and returns the bytes that were read for it.
func replyWork(b []byte, step int) int {
	var r Reply
	for rest := b; len(rest) > 0; {
		n := min(step, len(rest))
		r.Write(rest[:n])
		rest = rest[n:]
	}
	r.Text()
	r.Usage()
	r.Err()
	return r.events.Work() + r.members.work
}

// FuzzWork looks for a body or a reply with work that is not linear in its length.
func FuzzWork(f *testing.F) {
	for _, make := range hostile {
		f.Add([]byte(make(20)), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		b = bytes.Repeat(b, 4)
		for _, a := range apis {
			if w := bodyWork(a, b); w > 4*len(b)+1000 {
				t.Errorf("a body of %s of %d bytes costs %d: %q", a.name(), len(b), w, b)
			}
		}
		if w := replyWork(b, max(step, 1)); w > 12*len(b)+1000 {
			t.Errorf("a reply of %d bytes costs %d: %q", len(b), w, b)
		}
	})
}

// TestMemory: what is allocated to read a body is a small multiple of it, whatever is in it. The factors are those that
// the documentation of Parser gives.
func TestMemory(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector changes what is allocated")
	}
	const size = 8 << 20
	prose := strings.Repeat("The handler rejects everything but POST.\\n", size/42)
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail
	}
	for _, c := range []struct {
		name, path, body string
		factor           float64
	}{
		{"one message", "/v1/chat/completions", `{"messages":[{"role":"user","content":"` + prose + `"}]}`, 3},
		{"many messages", "/v1/chat/completions", fill(`{"messages":[`, `{"role":"user","content":"word word word"},`,
			`{}]}`), 3},
		{"out of order", "/v1/chat/completions", `{"messages":[{"role":"user","content":"` + prose +
			`"}],"tools":[{"a":1}]}`, 4},
		{"ids", "/v1/completions", fill(`{"prompt":[`, `12345,`, `1]}`), 3},
		{"short ids", "/v1/completions", fill(`{"prompt":[`, `1,`, `1]}`), 3},
		{"ids of SGLang", "/generate", fill(`{"input_ids":[[`, `1,`, `1]]}`), 3},
		{"short members", "/v1/chat/completions", fill(`{"messages":[],`, `"a":1,`, `"b":1}`), 2},
		{"escaped names", "/v1/chat/completions", fill(`{"messages":[],`, `"\u0061":1,`, `"b":1}`), 2},
		{"short members of a message", "/v1/chat/completions", fill(`{"messages":[{`, `"a":1,`, `"b":1}]}`), 2},
		{"short messages", "/v1/chat/completions", fill(`{"messages":[`, `{},`, `{}]}`), 4},
		{"short blocks", "/v1/messages", fill(`{"messages":[{"role":"user","content":[`, `"a",`, `"b"]}]}`), 4},
		{"tools", "/v1/chat/completions", fill(`{"tools":[`, `{"a":1},`, `{}]}`), 4},
		{"roles", "/v1/chat/completions", fill(`{"messages":[`, `{"role":"a"},`, `{}]}`), 3},
		{"mixed", "/completion", fill(`{"prompt":["a",`, `1,`, `1]}`), 4},
	} {
		body := []byte(c.body)
		read := func() {
			if _, err := FromRequest(c.path, nil, body); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		read()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		got := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body))
		t.Logf("%s: %.2f bytes are allocated for each", c.name, got)
		if got > c.factor {
			t.Errorf("%s: %.2f bytes are allocated for each, want at most %v", c.name, got, c.factor)
		}
	}
}
