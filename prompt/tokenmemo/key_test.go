package tokenmemo

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const chatPath = "/v1/chat/completions"

func keyOf(t testing.TB, path, body string) Key {
	t.Helper()
	k, ok := NewKey(path, []byte(body))
	if !ok {
		t.Fatalf("no key for %s", body)
	}
	return k
}

// TestKeySilent: if the body alone does not determine the ids, there is no key.
func TestKeySilent(t *testing.T) {
	for _, c := range []struct{ name, path, body string }{
		{"other path", "/v1/messages", `{"messages":[{"role":"user","content":"x"}]}`},
		{"responses", "/v1/responses", `{"input":"x"}`},
		{"embeddings", "/v1/embeddings", `{"input":"x"}`},
		{"no JSON", chatPath, `{"messages":[{"role":"user","content":"x"}]`},
		{"more after it", chatPath, `{"messages":[{"role":"user","content":"x"}]}{}`},
		{"no object", chatPath, `[]`},
		{"empty", chatPath, ``},
		{"no messages", chatPath, `{"model":"m"}`},
		{"empty messages", chatPath, `{"messages":[]}`},
		{"messages no array", chatPath, `{"messages":"x"}`},
		{"message no object", chatPath, `{"messages":["x"]}`},
		{"messages twice", chatPath,
			`{"messages":[{"role":"user","content":"x"}],"messages":[{"role":"user","content":"y"}]}`},
		{"tools twice", chatPath, `{"messages":[{"role":"user","content":"x"}],"tools":[],"\u0074ools":[]}`},
		{"image", chatPath, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`},
		{"unknown block", chatPath, `{"messages":[{"role":"user","content":[{"type":"hologram"}]}]}`},
		{"block without a type", chatPath, `{"messages":[{"role":"user","content":[{"text":"x"}]}]}`},
		{"block of two types", chatPath,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x","type":"image_url"}]}]}`},
		{"escaped type", chatPath, `{"messages":[{"role":"user","content":[{"type":"\u0074ext","text":"x"}]}]}`},
		{"content object", chatPath, `{"messages":[{"role":"user","content":{"type":"text"}}]}`},
		{"audio", chatPath, `{"messages":[{"role":"assistant","audio":{"id":"a"}}]}`},
		{"too many messages", chatPath, `{"messages":[` + strings.Repeat(`{},`, maxKeyTurns) + `{}]}`},
		{"several prompts", "/v1/completions", `{"prompt":["x","y"]}`},
		{"ids already", "/v1/completions", `{"prompt":[1,2]}`},
		{"no prompt", "/v1/completions", `{}`},
		{"many members", chatPath, `{"messages":[{"role":"user","content":"x"}]` +
			strings.Repeat(`,"temperature":1`, maxMembers) + `}`},
	} {
		if _, ok := NewKey(c.path, []byte(c.body)); ok {
			t.Errorf("%s: there is a key", c.name)
		}
	}
}

// TestKeySame: what cannot change the ids does not change the key.
func TestKeySame(t *testing.T) {
	base := keyOf(t, chatPath,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"a":1}],"chat_template_kwargs":{"k":1}}`)
	for _, body := range []string{
		`{"chat_template_kwargs":{"k":1},"tools":[{"a":1}],"messages":[{"role":"user","content":"x"}],"model":"m"}`,
		` { "model" : "m" , "messages" : [ {"role":"user","content":"x"} ] , "tools":[{"a":1}],"chat_template_kwargs":{"k":1}, "stream":true, "temperature":0.5, "max_tokens":7, "n":2, "user":"u", "return_token_ids":true, "seed":4, "stop":["x"], "session_id":"s" } `,
	} {
		k := keyOf(t, chatPath, body)
		if k.whole() != base.whole() || !k.Plain {
			t.Errorf("%s: another key, or not plain", body)
		}
	}
	text := keyOf(t, "/v1/completions", `{"model":"m","prompt":"x"}`)
	if other := keyOf(t, "/v1/completions", `{"prompt":"x","max_tokens":1,"model":"m"}`); other.whole() != text.whole() ||
		!other.Plain || other.Chat {
		t.Error("a completion's key")
	}
}

// TestKeyDiffers: what may change the ids changes the key, also where the
// canonical text stays the same.
func TestKeyDiffers(t *testing.T) {
	seen := make(map[digest256]string)
	for _, c := range []struct {
		path, body string
		plain      bool
	}{
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"n","messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"x "}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"system","content":"x"}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"user"},{"content":"x"}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}]}`, true},
		{chatPath, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"2","function":{"name":"f","arguments":"{}"}}]}]}`, true},
		{chatPath, `{"model":"m","tools":[{"a":1,"b":2}],"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","tools":[{"b":2,"a":1}],"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","chat_template":"t","messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","chat_template_kwargs":{"enable_thinking":false},"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","add_generation_prompt":false,"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","continue_final_message":true,"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","add_special_tokens":true,"messages":[{"role":"user","content":"x"}]}`, true},
		{chatPath, `{"model":"m","tool_choice":"none","tools":[{"a":1,"b":2}],"messages":[{"role":"user","content":"x"}]}`,
			false},
		{chatPath, `{"model":"m","documents":[{"text":"d"}],"messages":[{"role":"user","content":"x"}]}`, false},
		{chatPath, `{"model":"m","reasoning_effort":"high","messages":[{"role":"user","content":"x"}]}`, false},
		{chatPath, `{"model":"m","truncate_prompt_tokens":10,"messages":[{"role":"user","content":"x"}]}`, false},
		{chatPath, `{"model":"m","lora_path":"a","messages":[{"role":"user","content":"x"}]}`, false},
		{chatPath, `{"model":"m","something_new":1,"messages":[{"role":"user","content":"x"}]}`, false},
		{"/v1/completions", `{"model":"m","prompt":"x"}`, true},
		{"/v1/completions", `{"model":"m","prompt":"x","add_special_tokens":false}`, true},
		{"/v1/completions", `{"model":"m","prompt":"x","suffix":"y"}`, false},
		{"/v1/completions", `{"model":"m","prompt":"x","echo":true}`, false},
	} {
		k := keyOf(t, c.path, c.body)
		if k.Plain != c.plain {
			t.Errorf("%s: plain is %v", c.body, k.Plain)
		}
		if other, ok := seen[k.whole()]; ok {
			t.Errorf("%s\n%s: one key", c.body, other)
		}
		seen[k.whole()] = c.body
	}
}

// TestKeyExtends: a conversation that goes on has its key as the beginning of
// the next one's.
func TestKeyExtends(t *testing.T) {
	a := keyOf(t, chatPath, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	b := keyOf(t, chatPath,
		`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]}`)
	if len(b.turns) != 3 || b.turns[0] != a.whole() || b.steady != 3 {
		t.Errorf("%d turns, %d steady", len(b.turns), b.steady)
	}
	for _, m := range []string{
		`{"role":"assistant","content":"y","reasoning":"r"}`, `{"role":"assistant","content":"y","reasoning_content":"r"}`,
		`{"role":"assistant","content":"<think>r</think>y"}`, `{"role":"assistant","content":"r\u003c/think\u003ey"}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":"r"},{"type":"text","text":"y"}]}`,
	} {
		k := keyOf(t, chatPath, `{"model":"m","messages":[{"role":"user","content":"x"},`+m+
			`,{"role":"user","content":"z"}]}`)
		if k.steady != 1 {
			t.Errorf("%s: %d are steady", m, k.steady)
		}
	}
	if k := keyOf(t, chatPath, `{"messages":[{"role":"user","content":"my reasoning","reasoning":null}]}`); k.steady != 1 {
		t.Error("no reasoning is reasoning")
	}
}

// FuzzKey: what has a key is JSON, with its text under one member of that
// name, and members that change nothing do not change the key.
func FuzzKey(f *testing.F) {
	f.Add(true, []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[1],"n":2}`))
	f.Add(false, []byte(`{"prompt":"x","add_special_tokens":false}`))
	f.Add(true, []byte(`{"messages":[{"role":"\u0075ser","content":null,"reasoning":"r","audio":null}]}`))
	f.Fuzz(func(t *testing.T, chat bool, body []byte) {
		path, own := "/v1/completions", "prompt"
		if chat {
			path, own = chatPath, "messages"
		}
		k, ok := NewKey(path, body)
		if !ok {
			return
		}
		var in map[string]json.RawMessage
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatalf("%q has a key: %v", body, err)
		}
		if len(in[own]) == 0 || len(k.turns) == 0 || k.steady > len(k.turns) || k.lastUser > len(k.turns) {
			t.Fatalf("%q: %d turns, %d steady, last user %d", body, len(k.turns), k.steady, k.lastUser)
		}
		var messages []json.RawMessage
		if chat && (json.Unmarshal(in[own], &messages) != nil || len(messages) != len(k.turns)) {
			t.Fatalf("%q: %d turns of %d messages", body, len(k.turns), len(messages))
		}
		i := bytes.IndexByte(body, '{') + 1
		more := `"temperature":0.25`
		if len(in) > 0 {
			more += ","
		}
		same, ok := NewKey(path, slices.Concat(body[:i], []byte(more), body[i:]))
		if !ok || same.whole() != k.whole() || same.Plain != k.Plain {
			t.Fatalf("%q: a temperature changes the key", body)
		}
		other, ok := NewKey(path, slices.Concat(body[:i], []byte(`"never_heard_of":1,`), body[i:]))
		if ok && (other.whole() == k.whole() || other.Plain) {
			t.Fatalf("%q: an unknown member changes nothing", body)
		}
	})
}

func BenchmarkNewKey(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"model":"m","messages":[{"role":"system","content":"s"}`)
	for body.Len() < 128<<10 {
		body.WriteString(`,{"role":"user","content":"` + strings.Repeat("the weather ", 100) + `"}`)
	}
	body.WriteString(`]}`)
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := NewKey(chatPath, body.Bytes()); !ok {
			b.Fatal("no key")
		}
	}
}
