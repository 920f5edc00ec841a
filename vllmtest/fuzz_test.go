package vllmtest

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var fuzzPaths = []string{pathChat, pathCompletions, pathMessages, pathTokenize}

// A body is refused or it becomes a bounded job; nothing panics.
func FuzzBody(f *testing.F) {
	for i, b := range []string{
		`{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":[1,2,3],"cache_salt":"s"}`,
		`{"max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: a\nb"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]}`,
		`{"prompt":["a","b"]}`,
		`{"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"prompt":[[1],[4294967295]],"ignore_eos":true,"min_tokens":-5}`,
		strings.Repeat(`{"messages":[{"content":[{"type":"tool_result","content":`, 50),
	} {
		f.Add(byte(i), []byte(b))
	}
	cfg, err := Config{Blocks: 64, Adapters: []string{"lora"}}.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p byte, raw []byte) {
		path := fuzzPaths[int(p)%len(fuzzPaths)]
		hasTrue(raw, `"stream"`)
		b, err := decode(raw)
		if err == nil {
			var j *job
			if j, err = cfg.job(path, b); err == nil {
				if len(j.prompts) == 0 || len(j.prompts) != len(j.replies) || len(j.prompts) > maxPrompts {
					t.Fatalf("%d prompts, %d replies", len(j.prompts), len(j.replies))
				}
				for i, p := range j.prompts {
					// Every byte of a text takes at least one byte of body, but for
					// the marks, of which a turn or a block has a handful.
					if len(p) == 0 || len(p) > 2*len(raw)+64 {
						t.Fatalf("%d tokens of a body of %d bytes", len(p), len(raw))
					}
					if n := j.replies[i].tokens(); n < 1 || len(p)+n > cfg.MaxModelLen {
						t.Fatalf("a prompt of %d tokens and a reply of %d", len(p), n)
					}
				}
				return
			}
		}
		var e *requestError
		if !errors.As(err, &e) || e.status < 400 || e.status > 499 {
			t.Fatalf("%v", err)
		}
	})
}

// textOf undoes appendTokens.
func textOf(tokens []uint32) string {
	var b []byte
	for _, id := range tokens {
		if id >= 1<<28 {
			b = append(b, byte(id>>21&0x7f), byte(id>>14&0x7f), byte(id>>7&0x7f), byte(id&0x7f))
			continue
		}
		for i := range id >> 24 {
			b = append(b, byte(id>>(8*i)))
		}
	}
	return string(b)
}

// Tokens keep their text, a text that grows by a line keeps its tokens, and a
// reply that is sent back becomes the tokens that were generated.
func FuzzTokens(f *testing.F) {
	f.Add("héllo\n\nworld", "next", uint16(9))
	f.Add("", "\n", uint16(1))
	f.Add("\xff\x00abc", "ä", uint16(0))
	f.Fuzz(func(t *testing.T, text, more string, words uint16) {
		tokens := appendTokens(nil, text)
		if got := textOf(tokens); got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if n := len(text); len(tokens) > n || len(tokens) < (n+3)/4 {
			t.Fatalf("%d tokens of %d bytes", len(tokens), n)
		}
		for _, id := range tokens {
			if id < 1<<24 {
				t.Fatalf("text became the special token %d", id)
			}
		}
		if grown := appendTokens(nil, text+"\n"+more); !slices.Equal(grown[:len(tokens)], tokens) {
			t.Fatalf("%q and a line: the tokens changed", text)
		}
		max := int(words%300) + 1
		for _, line := range []bool{false, true} {
			for _, ignoreEnd := range []bool{false, true} {
				r := newReply(tokens, 100, max, ignoreEnd, line)
				var generated []uint32
				for i := range r.tokens() {
					generated = append(generated, r.token(i))
				}
				if r.end != (generated[len(generated)-1] == tokEnd) {
					t.Fatalf("end %v, tokens %v", r.end, generated)
				}
				generated = generated[:r.words]
				reply := string(r.appendText(nil, 0, r.tokens()))
				before := ""
				if line {
					before = text
				}
				if got := appendTokens(nil, before+reply); !slices.Equal(got[len(got)-len(generated):], generated) {
					t.Fatalf("%q after %q does not become what was generated", reply, before)
				}
			}
		}
	})
}
